"""The history of the database's tables, applied at the start of a process."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.util import CommandError
from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import AsyncEngine

from anima.model.errors import Unavailable
from anima.stores.sql.engine import for_writing, guarded

# Any number that nothing else in the same PostgreSQL database locks.
_LOCK = 7_244_261


@guarded
async def migrate(engine: AsyncEngine) -> None:
    """Bring the tables to this version, in one transaction that others wait for.

    Raises:
        Unavailable: the database cannot be used, or a newer Anima has written it.
    """
    async with for_writing(engine).begin() as connection:
        await connection.run_sync(_upgrade)


def _upgrade(connection: Connection) -> None:
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    config.attributes["connection"] = connection
    try:
        command.upgrade(config, "head")
    except CommandError as error:
        raise Unavailable(
            f"the database's tables cannot be migrated: {error}; run the version of Anima that last wrote them"
        ) from None
