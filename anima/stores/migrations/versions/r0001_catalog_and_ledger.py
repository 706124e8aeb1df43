"""Catalog and Ledger."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create the first tables."""
    _catalog()
    _tasks()
    _attempts()
    _events()


def _catalog() -> None:
    op.create_table(
        "resources",
        sa.Column("kind", sa.String(63), nullable=False),
        sa.Column("namespace", sa.String(63), nullable=False),
        sa.Column("name", sa.String(63), nullable=False),
        sa.Column("uid", sa.String(128), nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("kind", "namespace", "name", name="pk_resources"),
        sa.UniqueConstraint("uid", name="uq_resources_uid"),
    )
    revisions = op.create_table(
        "catalog_revision",
        sa.Column("revision", sa.BigInteger, nullable=False),
        comment="One row: the last resourceVersion given out; locked by every apply.",
    )
    op.bulk_insert(revisions, [{"revision": 0}])


def _tasks() -> None:
    op.create_table(
        "tasks",
        sa.Column("number", sa.BigInteger().with_variant(sa.Integer, "sqlite"), nullable=False),
        sa.Column("uid", sa.String(128), nullable=False),
        sa.Column("namespace", sa.String(63), nullable=False),
        sa.Column("name", sa.String(63), nullable=False),
        sa.Column("workflow_id", sa.Text, nullable=False),
        sa.Column("spec", sa.Text, nullable=False),
        sa.Column("spec_digest", sa.String(71), nullable=False),
        sa.Column("binding", sa.Text),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("closed", sa.Boolean, nullable=False),
        sa.PrimaryKeyConstraint("number", name="pk_tasks"),
        sa.UniqueConstraint("uid", name="uq_tasks_uid"),
        sa.UniqueConstraint("namespace", "name", name="uq_tasks_namespace_name"),
    )


def _attempts() -> None:
    op.create_table(
        "attempts",
        sa.Column("task_uid", sa.String(128), nullable=False),
        sa.Column("iteration", sa.BigInteger, nullable=False),
        sa.Column("attempt", sa.BigInteger, nullable=False),
        sa.Column("job_name", sa.String(63), nullable=False),
        sa.Column("input", sa.Text, nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True)),
        sa.Column("outcome", sa.Text),
        sa.Column("usage", sa.Text),
        sa.Column("model", sa.String(253)),
        sa.Column("report_digest", sa.String(71)),
        sa.Column("result", sa.LargeBinary),
        sa.PrimaryKeyConstraint("task_uid", "iteration", "attempt", name="pk_attempts"),
        sa.ForeignKeyConstraint(["task_uid"], ["tasks.uid"], name="fk_attempts_tasks", ondelete="CASCADE"),
    )


def _events() -> None:
    op.create_table(
        "events",
        sa.Column("task_uid", sa.String(128), nullable=False),
        sa.Column("iteration", sa.BigInteger, nullable=False),
        sa.Column("attempt", sa.BigInteger, nullable=False),
        sa.Column("sequence", sa.BigInteger, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("task_uid", "iteration", "attempt", "sequence", name="pk_events"),
        sa.ForeignKeyConstraint(
            ["task_uid", "iteration", "attempt"],
            ["attempts.task_uid", "attempts.iteration", "attempts.attempt"],
            name="fk_events_attempts",
            ondelete="CASCADE",
        ),
    )
