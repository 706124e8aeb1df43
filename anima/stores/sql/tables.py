"""The tables of Catalog, Ledger and Sessions.  A change here needs a migration.

Models are kept whole, as JSON text; columns repeat only what a query asks for.
JSON escapes NUL, which PostgreSQL refuses in text, and results are bytes.
"""

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    DateTime,
    Dialect,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    Text,
    TypeDecorator,
    UniqueConstraint,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

from anima.model.persona import SensitiveText


class PrivateText(TypeDecorator[SensitiveText]):
    """Text that is `SensitiveText` outside the driver, so no row shows it."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: SensitiveText | None, _dialect: Dialect) -> str | None:
        return None if value is None else value.reveal()

    def process_result_value(self, value: str | None, _dialect: Dialect) -> SensitiveText | None:
        return None if value is None else SensitiveText(value)


class Instant(TypeDecorator[datetime]):
    """A time in UTC, aware on every database."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, _dialect: Dialect) -> datetime | None:
        return None if value is None else value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, _dialect: Dialect) -> datetime | None:
        return None if value is None else value.replace(tzinfo=value.tzinfo or UTC)


metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(referred_table_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    }
)

resources = Table(
    "resources",
    metadata,
    Column("kind", String(63), nullable=False),
    Column("namespace", String(63), nullable=False),
    Column("name", String(63), nullable=False),
    Column("uid", String(128), nullable=False, unique=True),
    Column("body", PrivateText, nullable=False),
    PrimaryKeyConstraint("kind", "namespace", "name"),
)

catalog_revision = Table(
    "catalog_revision",
    metadata,
    Column("revision", BigInteger, nullable=False),
    comment="One row: the last resourceVersion given out; locked by every apply.",
)

tasks = Table(
    "tasks",
    metadata,
    Column("number", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("uid", String(128), nullable=False, unique=True),
    Column("namespace", String(63), nullable=False),
    Column("name", String(63), nullable=False),
    Column("workflow_id", Text, nullable=False),
    Column("spec", Text, nullable=False),
    Column("spec_digest", String(71), nullable=False),
    Column("binding", Text),
    Column("status", Text, nullable=False),
    Column("closed", Boolean, nullable=False),
    UniqueConstraint("namespace", "name"),
)

attempts = Table(
    "attempts",
    metadata,
    Column("task_uid", String(128), ForeignKey(tasks.c.uid, ondelete="CASCADE"), nullable=False),
    Column("iteration", BigInteger, nullable=False),
    Column("attempt", BigInteger, nullable=False),
    Column("job_name", String(63), nullable=False),
    Column("input", Text, nullable=False),
    Column("started_at", Instant),
    Column("outcome", Text),
    Column("usage", Text),
    Column("model", String(253)),
    Column("report_digest", String(71)),
    Column("result", LargeBinary),
    PrimaryKeyConstraint("task_uid", "iteration", "attempt"),
)

events = Table(
    "events",
    metadata,
    Column("task_uid", String(128), nullable=False),
    Column("iteration", BigInteger, nullable=False),
    Column("attempt", BigInteger, nullable=False),
    Column("sequence", BigInteger, nullable=False),
    Column("body", Text, nullable=False),
    PrimaryKeyConstraint("task_uid", "iteration", "attempt", "sequence"),
    ForeignKeyConstraint(
        ["task_uid", "iteration", "attempt"],
        [attempts.c.task_uid, attempts.c.iteration, attempts.c.attempt],
        ondelete="CASCADE",
    ),
)


sessions = Table(
    "sessions",
    metadata,
    Column("uid", String(128), primary_key=True),
    Column("namespace", String(63), nullable=False),
    Column("name", String(63), nullable=False),
    Column("owner", String(16)),
    Column("created_at", Instant, nullable=False),
    Column("updated_at", Instant, nullable=False),
    Column("messages", BigInteger, nullable=False, comment="How many there are, so that nobody has to count."),
    Column("last_sequence", BigInteger, nullable=False, comment="Never falls, so that no sequence comes again."),
    Column("last_token", BigInteger, nullable=False, comment="Never falls, so that no fencing token comes again."),
    Column("holder", String(128), comment="The uid of the Task that has last_token."),
    Column("holder_task", String(63)),
    Column("holder_workflow", Text),
    Column("held_since", Instant),
    Column("taken", Boolean, nullable=False, comment="The holder knows that it is the holder."),
    UniqueConstraint("namespace", "name"),
)

session_records = Table(
    "session_records",
    metadata,
    Column("session_uid", String(128), ForeignKey(sessions.c.uid, ondelete="CASCADE"), nullable=False),
    Column("sequence", BigInteger, nullable=False, comment="From 1; the identity has 0."),
    Column("kind", String(16), nullable=False),
    Column("role", String(16), nullable=False),
    Column("content", Text, nullable=False),
    Column("tools", Text, comment="Calls of an assistant, or the call that a tool answers."),
    Column("task_uid", String(128)),
    Column("iteration", BigInteger),
    Column("part", BigInteger, comment="Place in its turn."),
    Column("revision", String(71)),
    Column("reason", String(63)),
    Column("unbound", Boolean, nullable=False),
    Column("created_at", Instant, nullable=False),
    PrimaryKeyConstraint("session_uid", "sequence"),
    UniqueConstraint("session_uid", "task_uid", "iteration", "part"),
)

Index(
    "ix_session_records_identity",
    session_records.c.session_uid,
    unique=True,
    sqlite_where=session_records.c.kind == "identity",
    postgresql_where=session_records.c.kind == "identity",
)

session_waiters = Table(
    "session_waiters",
    metadata,
    Column("number", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("session_uid", String(128), ForeignKey(sessions.c.uid, ondelete="CASCADE"), nullable=False),
    Column("task_uid", String(128), nullable=False),
    Column("task", String(63), nullable=False),
    Column("workflow_id", Text, nullable=False),
    Column("asked_at", Instant, nullable=False),
    UniqueConstraint("session_uid", "task_uid"),
    # A number that was the last would come again without it.
    sqlite_autoincrement=True,
)

conversation_messages = Table(
    "conversation_messages",
    metadata,
    Column("session_uid", String(128), ForeignKey(sessions.c.uid, ondelete="CASCADE"), nullable=False),
    Column("number", BigInteger, nullable=False),
    Column("idempotency_key", String(200), nullable=False),
    Column("content_digest", String(71), nullable=False),
    Column("agent", String(63), nullable=False),
    Column("content", Text, nullable=False, comment="Emptied once it is answered: it is a record then."),
    Column("task", String(63), nullable=False),
    Column("posted_at", Instant, nullable=False),
    Column("answer", BigInteger, comment="The sequence of the answer; none while it is pending."),
    PrimaryKeyConstraint("session_uid", "number"),
    UniqueConstraint("session_uid", "idempotency_key"),
)

Index(
    "ix_conversation_messages_pending",
    conversation_messages.c.session_uid,
    conversation_messages.c.number,
    sqlite_where=conversation_messages.c.answer.is_(None),
    postgresql_where=conversation_messages.c.answer.is_(None),
)


async def insert_if_absent(connection: AsyncConnection, table: Table, row: dict[str, Any]) -> bool:
    """Insert a row unless one with the same key is there; tell whether it was absent."""
    insert = sqlite.insert if connection.dialect.name == "sqlite" else postgresql.insert
    return (await connection.execute(insert(table).on_conflict_do_nothing(), row)).rowcount == 1
