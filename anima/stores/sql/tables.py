"""The tables of Catalog and Ledger.  A change here needs a migration.

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


async def insert_if_absent(connection: AsyncConnection, table: Table, row: dict[str, Any]) -> bool:
    """Insert a row unless one with the same key is there; tell whether it was absent."""
    insert = sqlite.insert if connection.dialect.name == "sqlite" else postgresql.insert
    return (await connection.execute(insert(table).on_conflict_do_nothing(), row)).rowcount == 1
