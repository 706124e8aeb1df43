"""Putting the activities together from the parts of the world they act on."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from activities.attempts import AttemptActivities
from activities.jobs import JobActivities
from activities.providers import ProviderResolver
from activities.souls import SoulActivities, SoulResolver
from activities.tasks import TaskActivities
from anima.model.attempts import AttemptKey
from anima.stores.ports import Catalog, Jobs, Ledger


@dataclass(frozen=True, kw_only=True)
class Parts:
    """What the activities are given.

    Args:
        token: derives an attempt's credential.
        gateway: the address at which a Job reaches the gateway.
        local_model: base URL of the small model on this machine, if it runs.
        jobs_queue: the task queue of Job activities; none if Jobs are local.
        check_interval: how often a workflow looks at a Job that says nothing.
        trace: the environment that carries the current trace into a Job.
    """

    catalog: Catalog
    ledger: Ledger
    jobs: Jobs
    clock: Callable[[], datetime]
    token: Callable[[AttemptKey], str]
    gateway: str
    local_model: str | None
    jobs_queue: str | None
    check_interval: timedelta
    trace: Callable[[], Mapping[str, str]] = dict


def build_activities(parts: Parts) -> list[Callable[..., Any]]:
    """Return every activity of the Task workflow."""
    souls = SoulResolver(parts.catalog)
    providers = ProviderResolver(parts.catalog, parts.local_model)
    tasks = TaskActivities(parts.ledger, parts.jobs_queue, parts.check_interval)
    binding = SoulActivities(souls, providers, parts.ledger, parts.jobs, parts.clock)
    attempts = AttemptActivities(parts.ledger, parts.jobs, parts.clock)
    jobs = JobActivities(
        souls, providers, parts.ledger, parts.jobs, token=parts.token, gateway=parts.gateway, trace=parts.trace
    )
    return [tasks.admit, tasks.edit, tasks.close, binding.bind, attempts.settle, jobs.create, jobs.delete]
