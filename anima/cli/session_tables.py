"""How Sessions, their messages and the revisions in use look to a person.

Messages are strangers' words: no character of them steers a terminal, and no line of
them looks like one of ours, since theirs are indented.
"""

import sys
from collections.abc import Sequence
from datetime import UTC, datetime

import typer

from anima.cli.output import emit_fields, emit_table, printable
from anima.cli.tables import short
from anima.model.api import AgentVerdict, RevisionsInUse, SessionExplanation
from anima.model.session import Holder, Identity, SessionRecord, SessionStatus

NO_SOUL = "no soul"
_INDENT = "    "
_NAMES = 5


def show_sessions(found: Sequence[SessionStatus]) -> None:
    """Print one line a Session."""
    emit_table(
        ["NAMESPACE", "NAME", "OWNER", "MESSAGES", "REVISION", "HOLDER", "WAITING", "USED"],
        [
            [
                session.namespace,
                session.name,
                session.owner or "",
                str(session.messages),
                (short(session.identity.digest) or NO_SOUL) if session.identity else "",
                session.queue.holder.task if session.queue.holder else "",
                str(session.queue.waiting),
                _time(session.updated_at),
            ]
            for session in found
        ],
    )


def show_session(session: SessionStatus) -> None:
    """Print how a Session stands."""
    queue = session.queue
    waiting = ", ".join(waiter.task for waiter in queue.next)
    emit_fields(
        [
            ("Session", f"{session.namespace}/{session.name}"),
            ("UID", session.uid),
            ("Owner", session.owner or "nobody yet"),
            ("Messages", str(session.messages)),
            *_pinned(session.identity),
            ("Held by", _holder(queue.holder)),
            ("Waiting", f"{queue.waiting}, first {waiting}" if queue.waiting else "0"),
            ("Created", _time(session.created_at)),
            ("Used", _time(session.updated_at)),
        ]
    )


def show_messages(records: Sequence[SessionRecord]) -> None:
    """Print messages, each below a line of its own that says whose it is."""
    for record in records:
        sys.stdout.write(f"\n{_head(record)}\n{_indented(record.content)}")
        for call in record.tool_calls:
            sys.stdout.write(_indented(f"calls {_one_line(call.name)} with {call.arguments}"))


def show_explanation(found: SessionExplanation) -> None:
    """Print what a Session is pinned to, by whom, and what it would say to each Agent."""
    emit_fields(
        [
            ("Session", f"{found.namespace}/{found.name}"),
            ("Owner", found.owner or "nobody yet"),
            ("Messages", str(found.messages)),
            *_pinned(found.identity),
            ("Open to", "" if found.identity else _open_to(found)),
            ("Held by", _holder(found.holder)),
            ("Waiting", str(found.waiting)),
        ]
    )
    if not found.agents:
        typer.echo(f"\nThere is no Agent in namespace {found.namespace}")
        return
    typer.echo()
    emit_table(
        ["AGENT", "REVISION", "SOUL", "ACCEPTED", "REASON"],
        [[item.agent, *_revision(item), "yes" if item.accepted else "no", item.reason or ""] for item in found.agents],
    )
    for item in found.agents:
        if item.reason is not None:
            typer.echo(f"\n{item.agent}: {printable(item.message)}. {item.reason.remedy}")


def show_in_use(found: RevisionsInUse) -> None:
    """Print one line a revision, and which Agents have none now."""
    emit_table(
        ["REVISION", "SOUL", "AGENTS", "OPEN TASKS", "ENDED", "SESSIONS"],
        [
            [
                short(item.digest) or NO_SOUL,
                short(item.soul_digest),
                _names(item.agents),
                _names(item.tasks.open),
                str(item.tasks.ended),
                _names(item.sessions),
            ]
            for item in found.items
        ],
    )
    for agent in found.unresolved:
        typer.echo(f"\nAgent {agent.agent} has no revision now ({agent.reason}): {printable(agent.message)}")


def _pinned(identity: Identity | None) -> list[tuple[str, str]]:
    if identity is None:
        return [("Revision", "not pinned yet")]
    revision = identity.revision
    by = f"by Task {identity.task}, " if identity.task else ""
    fields = [("Revision", identity.digest or NO_SOUL)]
    if revision is not None:
        fields += [
            ("Soul", revision.soul_digest or ""),
            ("Agent", f"uid {revision.agent_uid}, generation {revision.agent_generation}"),
        ]
    return [*fields, ("Pinned", by + _time(identity.pinned_at))]


def _open_to(found: SessionExplanation) -> str:
    if found.has_history:
        return "Tasks without a soul: it has history without an identity"
    return "any Task, and the first one pins it"


def _holder(holder: Holder | None) -> str:
    return f"Task {holder.task} since {_time(holder.since)}" if holder else ""


def _revision(item: AgentVerdict) -> tuple[str, str]:
    if item.revision is None:
        return (NO_SOUL if item.accepted else "", "")
    return short(item.revision), short(item.soul_digest)


def _head(record: SessionRecord) -> str:
    parts = [f"#{record.sequence} {record.role}", _time(record.created_at)]
    if record.revision is not None:
        parts.append(f"revision {short(record.revision)}")
    if record.tool_call_id is not None:
        parts.append(f"answers call {_one_line(record.tool_call_id)}")
    if record.reason is not None:
        parts.append(f"no answer: {record.reason}" + (", establishes nothing" if record.unbound else ""))
    return "  ".join(parts)


def _indented(text: str) -> str:
    return "".join(f"{_INDENT}{line}\n" for line in printable(text).split("\n")) if text else ""


def _one_line(text: str) -> str:
    return printable(text).replace("\n", "\ufffd")


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMES} more" if len(names) > _NAMES else ""
    return ", ".join(names[:_NAMES]) + more


def _time(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
