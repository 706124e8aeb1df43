"""The Sessions in SQL: transcripts, their identities, their locks and queues."""

from anima.stores.sql.retention import SqlRetention
from anima.stores.sql.session_queue import SqlSessionQueue
from anima.stores.sql.session_records import SqlSessionRecords
from anima.stores.sql.session_turns import SqlSessionTurns


class SqlSessions(SqlSessionQueue, SqlSessionTurns, SqlSessionRecords, SqlRetention):
    """The `Sessions`: see there for what each method promises."""
