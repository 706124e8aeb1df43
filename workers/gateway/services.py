"""What the routes are given."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Annotated, cast

from fastapi import Depends, Request

from activities.readiness import AgentInspector
from activities.revisions import RevisionInspector
from activities.transcripts import TranscriptReader
from anima.keys import Keys
from anima.model.attempts import AttemptKey
from anima.stores.ports import Catalog, Ledger, TaskRecord
from anima.stores.sessions import Conversations, SessionKey, Sessions
from anima.telemetry.metrics import Metrics
from anima.telemetry.traces import Traces


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """The stores behind the routes, and the one way to wake a workflow."""

    catalog: Catalog
    ledger: Ledger
    conversations: Conversations
    sessions: Sessions
    transcripts: TranscriptReader
    keys: Keys
    inspector: AgentInspector
    revisions: RevisionInspector
    job_log: Callable[[str, str, int], Awaitable[bytes]]
    """`Jobs.log`: namespace, name of the Job, limit in bytes."""
    notify: Callable[[TaskRecord, AttemptKey], Awaitable[None]]
    """Wakes the Task's workflow after a report; a slow check makes up for a failure."""
    wake: Callable[[SessionKey], Awaitable[None]]
    """Wakes the workflow of a conversation after a post; a sweep makes up for a failure."""
    poll_interval: timedelta = timedelta(milliseconds=500)
    """How often an open stream of events looks for more."""
    traces: Traces = field(default_factory=Traces)
    metrics: Metrics = field(default_factory=Metrics)


async def _services(request: Request) -> Services:
    return cast(Services, request.app.state.services)


Given = Annotated[Services, Depends(_services)]
