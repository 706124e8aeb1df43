"""The Ledger in SQL: Tasks, their bindings, attempts, outcomes and results."""

from anima.stores.sql.attempts import SqlAttempts
from anima.stores.sql.outcomes import SqlOutcomes
from anima.stores.sql.tasks import SqlTasks


class SqlLedger(SqlTasks, SqlAttempts, SqlOutcomes):
    """The `Ledger`: see there for what each method promises."""
