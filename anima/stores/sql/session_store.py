"""What every part of the Sessions in SQL is made with."""

from collections.abc import Callable
from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncEngine

from anima.stores.sql.engine import SqlStore


class SessionStore(SqlStore):
    """A store that creates Sessions.

    Args:
        engine: from `open_engine`, migrated.
        clock: the time now, with its zone.
        new_uid: gives an identity that was never used before.
    """

    def __init__(self, engine: AsyncEngine, clock: Callable[[], datetime], new_uid: Callable[[], str]) -> None:
        super().__init__(engine, clock)
        self._new_uid = new_uid
