"""Putting the activities together from the parts of the world they act on."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from activities.attempts import AttemptActivities
from activities.conversations import ConversationActivities
from activities.drivers import Drivers
from activities.jobs import JobActivities
from activities.orphans import Orphans
from activities.providers import ProviderResolver
from activities.sessions import SessionActivities
from activities.souls import SoulActivities, SoulResolver
from activities.tasks import TaskActivities
from activities.transcripts import TranscriptReader
from activities.turns import Turns
from anima.model.attempts import AttemptKey
from anima.stores.ports import Catalog, Jobs, Ledger
from anima.stores.sessions import Conversations, Sessions


@dataclass(frozen=True, kw_only=True)
class Parts:
    """What the activities are given.

    Args:
        drivers: wakes the workflows that hand Sessions on.
        token: derives an attempt's credential.
        gateway: the address at which a Job reaches the gateway.
        local_model: base URL of the small model on this machine, if it runs.
        jobs_queue: the task queue of Job activities; none if Jobs are local.
        check_interval: how often a workflow looks at a Job that says nothing.
        trace: the environment that carries the current trace into a Job.
    """

    catalog: Catalog
    ledger: Ledger
    sessions: Sessions
    conversations: Conversations
    jobs: Jobs
    drivers: Drivers
    clock: Callable[[], datetime]
    token: Callable[[AttemptKey], str]
    gateway: str
    local_model: str | None
    jobs_queue: str | None
    check_interval: timedelta
    trace: Callable[[], Mapping[str, str]] = dict


def build_activities(parts: Parts) -> list[Callable[..., Any]]:
    """Return every activity of the workflows."""
    souls = SoulResolver(parts.catalog)
    providers = ProviderResolver(parts.catalog, parts.local_model)
    turns = build_turns(parts)
    orphans = build_orphans(parts)
    tasks = TaskActivities(parts.ledger, orphans, parts.jobs_queue, parts.check_interval)
    binding = SoulActivities(souls, providers, parts.ledger, parts.jobs, parts.clock)
    attempts = AttemptActivities(parts.ledger, parts.jobs, parts.clock)
    jobs = JobActivities(
        souls,
        providers,
        parts.ledger,
        parts.jobs,
        TranscriptReader(parts.sessions),
        token=parts.token,
        gateway=parts.gateway,
        trace=parts.trace,
    )
    sessions = SessionActivities(parts.ledger, parts.sessions, turns, orphans, parts.drivers)
    conversations = ConversationActivities(parts.ledger, parts.jobs, parts.conversations, orphans, parts.drivers)
    return [
        tasks.admit,
        tasks.edit,
        tasks.close,
        binding.bind,
        attempts.settle,
        jobs.create,
        jobs.delete,
        sessions.acquire,
        sessions.pin,
        sessions.append,
        sessions.leave,
        sessions.grant,
        sessions.look,
        conversations.next,
        conversations.start,
        conversations.project,
    ]


def build_turns(parts: Parts) -> Turns:
    """Return what writes turns and hands Sessions on."""
    return Turns(parts.ledger, parts.sessions, parts.drivers)


def build_orphans(parts: Parts) -> Orphans:
    """Return what ends a Task whose workflow is gone."""
    return Orphans(parts.ledger, parts.jobs, parts.sessions, build_turns(parts), parts.clock)
