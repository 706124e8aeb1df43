"""Sessions."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Create the tables of transcripts, locks and conversations."""
    _sessions()
    _records()
    _waiters()
    _conversations()


def _sessions() -> None:
    op.create_table(
        "sessions",
        sa.Column("uid", sa.String(128), nullable=False),
        sa.Column("namespace", sa.String(63), nullable=False),
        sa.Column("name", sa.String(63), nullable=False),
        sa.Column("owner", sa.String(16)),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column(
            "messages", sa.BigInteger, nullable=False, comment="How many there are, so that nobody has to count."
        ),
        sa.Column(
            "last_sequence", sa.BigInteger, nullable=False, comment="Never falls, so that no sequence comes again."
        ),
        sa.Column(
            "last_token", sa.BigInteger, nullable=False, comment="Never falls, so that no fencing token comes again."
        ),
        sa.Column("holder", sa.String(128), comment="The uid of the Task that has last_token."),
        sa.Column("holder_task", sa.String(63)),
        sa.Column("holder_workflow", sa.Text),
        sa.Column("held_since", sa.DateTime(timezone=True)),
        sa.Column("taken", sa.Boolean, nullable=False, comment="The holder knows that it is the holder."),
        sa.PrimaryKeyConstraint("uid", name="pk_sessions"),
        sa.UniqueConstraint("namespace", "name", name="uq_sessions_namespace_name"),
    )


def _records() -> None:
    op.create_table(
        "session_records",
        sa.Column("session_uid", sa.String(128), nullable=False),
        sa.Column("sequence", sa.BigInteger, nullable=False, comment="From 1; the identity has 0."),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("role", sa.String(16), nullable=False),
        sa.Column("content", sa.Text, nullable=False),
        sa.Column("tools", sa.Text, comment="Calls of an assistant, or the call that a tool answers."),
        sa.Column("task_uid", sa.String(128)),
        sa.Column("iteration", sa.BigInteger),
        sa.Column("part", sa.BigInteger, comment="Place in its turn."),
        sa.Column("revision", sa.String(71)),
        sa.Column("reason", sa.String(63)),
        sa.Column("unbound", sa.Boolean, nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("session_uid", "sequence", name="pk_session_records"),
        sa.UniqueConstraint(
            "session_uid",
            "task_uid",
            "iteration",
            "part",
            name="uq_session_records_session_uid_task_uid_iteration_part",
        ),
        sa.ForeignKeyConstraint(
            ["session_uid"], ["sessions.uid"], name="fk_session_records_sessions", ondelete="CASCADE"
        ),
    )
    identity = sa.text("kind = 'identity'")
    op.create_index(
        "ix_session_records_identity",
        "session_records",
        ["session_uid"],
        unique=True,
        sqlite_where=identity,
        postgresql_where=identity,
    )


def _waiters() -> None:
    op.create_table(
        "session_waiters",
        sa.Column("number", sa.BigInteger().with_variant(sa.Integer, "sqlite"), nullable=False),
        sa.Column("session_uid", sa.String(128), nullable=False),
        sa.Column("task_uid", sa.String(128), nullable=False),
        sa.Column("task", sa.String(63), nullable=False),
        sa.Column("workflow_id", sa.Text, nullable=False),
        sa.Column("asked_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("number", name="pk_session_waiters"),
        sa.UniqueConstraint("session_uid", "task_uid", name="uq_session_waiters_session_uid_task_uid"),
        sa.ForeignKeyConstraint(
            ["session_uid"], ["sessions.uid"], name="fk_session_waiters_sessions", ondelete="CASCADE"
        ),
        sqlite_autoincrement=True,
    )


def _conversations() -> None:
    op.create_table(
        "conversation_messages",
        sa.Column("session_uid", sa.String(128), nullable=False),
        sa.Column("number", sa.BigInteger, nullable=False),
        sa.Column("idempotency_key", sa.String(200), nullable=False),
        sa.Column("content_digest", sa.String(71), nullable=False),
        sa.Column("agent", sa.String(63), nullable=False),
        sa.Column("content", sa.Text, nullable=False, comment="Emptied once it is answered: it is a record then."),
        sa.Column("task", sa.String(63), nullable=False),
        sa.Column("posted_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("answer", sa.BigInteger, comment="The sequence of the answer; none while it is pending."),
        sa.PrimaryKeyConstraint("session_uid", "number", name="pk_conversation_messages"),
        sa.UniqueConstraint(
            "session_uid", "idempotency_key", name="uq_conversation_messages_session_uid_idempotency_key"
        ),
        sa.ForeignKeyConstraint(
            ["session_uid"], ["sessions.uid"], name="fk_conversation_messages_sessions", ondelete="CASCADE"
        ),
    )
    pending = sa.text("answer IS NULL")
    op.create_index(
        "ix_conversation_messages_pending",
        "conversation_messages",
        ["session_uid", "number"],
        sqlite_where=pending,
        postgresql_where=pending,
    )
