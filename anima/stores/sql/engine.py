"""The database engine: how it is opened, and how its failures are told.

Rows hold persona and Secrets, and a driver puts a statement's parameters into
its errors, its debug log and the frames of its tracebacks.  All three ways are
closed here.
"""

import contextlib
import functools
import logging
import sqlite3
import tempfile
from collections.abc import Awaitable, Callable, Coroutine
from datetime import datetime
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from pydantic import ValidationError
from sqlalchemy import URL, Connection, event, make_url
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from anima.model.errors import Refusal, Unavailable
from anima.model.reasons import Reason

P = ParamSpec("P")
R = TypeVar("R")

BUSY_TIMEOUT = 10.0
"""How long SQLite waits for another process to finish its write, in seconds."""

_WRITES = "anima_writes"

_OTHER_TABLES = "its tables are not those of this version; start Anima again, so that it migrates them"
_NO_SERVER = "no server answers at its address; start it, or correct ANIMA_DATABASE_URL"
# The driver's messages may quote values, so only its code is told.
_CAUSES = {
    "SQLITE_BUSY": "it is locked by another process; if this stays so, end what holds it",
    "SQLITE_LOCKED": "it is locked by another process; if this stays so, end what holds it",
    "SQLITE_FULL": "the disk is full; free some space",
    "SQLITE_CANTOPEN": "it cannot be opened; check that its directory exists and is yours",
    "SQLITE_READONLY": "it is read-only; check the permissions of the file and its directory",
    "SQLITE_IOERR": "reading or writing failed; check the disk and the space on it",
    "SQLITE_CORRUPT": "it is damaged; restore it from a backup",
    "SQLITE_NOTADB": "it is not an Anima database; check its path",
    "SQLITE_PERM": "its permissions forbid it; check who owns the file",
    "SQLITE_ERROR": _OTHER_TABLES,
    # PostgreSQL's classes and codes; then what is raised before it can give one.
    "28": "it refuses the user or the password; correct ANIMA_DATABASE_URL",
    "3D000": "there is no database of that name; create it, or correct ANIMA_DATABASE_URL",
    "42501": "its user may not do that; grant it all rights on the database's schema",
    "42P01": _OTHER_TABLES,
    "42703": _OTHER_TABLES,
    "25006": "it is read-only; give the address of the server that takes writes",
    "53100": "the disk is full; free some space",
    "53300": "it has too many connections; raise its max_connections",
    "ConnectionRefusedError": _NO_SERVER,
    "FileNotFoundError": _NO_SERVER,
    "gaierror": "the name of its host is unknown; correct ANIMA_DATABASE_URL",
}


def sqlite_url(path: Path) -> URL:
    """Return the address of a SQLite file, whatever characters its path has."""
    return URL.create("sqlite+aiosqlite", database=str(path))


def open_engine(url: str | URL) -> AsyncEngine:
    """Open a database; a SQLite file is created for its owner only.

    Args:
        url: ``sqlite+aiosqlite:///PATH``, see `sqlite_url`, or a PostgreSQL address.

    Raises:
        Unavailable: a SQLite file cannot be created.
        Refusal: `SettingInvalid` if the driver for PostgreSQL is not installed.
    """
    address = make_url(url)
    if address.get_backend_name() == "sqlite":
        return _open_sqlite(address)
    try:
        return create_async_engine(address, hide_parameters=True, pool_pre_ping=True)
    except ModuleNotFoundError as error:
        raise Refusal(
            Reason.SETTING_INVALID,
            f"ANIMA_DATABASE_URL is an address of PostgreSQL, whose driver {error.name} is not installed: "
            "`pip install 'anima[postgresql]'`",
        ) from None


def for_writing(engine: AsyncEngine) -> AsyncEngine:
    """Return the engine for transactions that write: SQLite locks as they begin."""
    return engine.execution_options(**{_WRITES: True})


def guarded(method: Callable[P, Awaitable[R]]) -> Callable[P, Coroutine[Any, Any, R]]:
    """Tell every failure of the database as `Unavailable`, without its parameters."""

    @functools.wraps(method)
    async def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return await method(*args, **kwargs)
        except (SQLAlchemyError, sqlite3.Error, OSError) as error:
            failure = _unavailable(error)
        except ValidationError as error:
            failure = Unavailable(
                f"a stored {error.title} cannot be read by this version of Anima; run the version that wrote it"
            )
        # Raised out here, it chains to no traceback whose frames hold parameters.
        raise failure

    return wrapper


class SqlStore:
    """What every store in SQL has.

    Args:
        engine: from `open_engine`, migrated.
        clock: the time now, with its zone.
    """

    def __init__(self, engine: AsyncEngine, clock: Callable[[], datetime]) -> None:
        self._reads = engine
        self._writes = for_writing(engine)
        self._clock = clock


def _open_sqlite(address: URL) -> AsyncEngine:
    logging.getLogger("aiosqlite").addFilter(_above_debug)
    _create_private(Path(address.database or ""))
    # SQLite has one writer: a second connection would only poll for its lock.
    engine = create_async_engine(address, hide_parameters=True, pool_size=1, max_overflow=0)
    event.listen(engine.sync_engine, "connect", _configure_sqlite)
    event.listen(engine.sync_engine, "begin", _begin_sqlite)
    return engine


def _above_debug(record: logging.LogRecord) -> bool:
    # At DEBUG the driver logs each call with its arguments.
    return record.levelno > logging.DEBUG


def _create_private(path: Path) -> None:
    # Two processes that switch one file to WAL at once find it busy, so it gets its
    # name only when it is complete.  A file that exists is never opened here: to
    # close it would drop the locks that SQLite holds on it in this process.
    try:
        if path.exists():
            return
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}-") as private:
            new = Path(private) / path.name
            new.touch(mode=0o600)
            with contextlib.closing(sqlite3.connect(new)) as connection:
                connection.execute("PRAGMA journal_mode = WAL")
            with contextlib.suppress(FileExistsError):
                path.hardlink_to(new)
    except (OSError, sqlite3.Error) as error:
        raise Unavailable(
            f"the database {path} cannot be created: {getattr(error, 'strerror', error)}; "
            "check that its directory exists, is yours and has space"
        ) from None


def _configure_sqlite(connection: Any, _record: Any) -> None:
    # None stops the driver from beginning transactions by itself.
    connection.isolation_level = None
    cursor = connection.cursor()
    # First, since the other ones may have to wait.
    cursor.execute(f"PRAGMA busy_timeout = {int(BUSY_TIMEOUT * 1000)}")
    cursor.execute("PRAGMA journal_mode = WAL")
    cursor.execute("PRAGMA synchronous = FULL")
    cursor.execute("PRAGMA foreign_keys = ON")
    cursor.close()


def _begin_sqlite(connection: Connection) -> None:
    # A read is one statement and needs no BEGIN.  A write takes the lock first:
    # one that began by reading could not wait for it.
    if connection.get_execution_options().get(_WRITES):
        connection.connection.dbapi_connection.run_async(lambda driver: driver.execute("BEGIN IMMEDIATE"))  # type: ignore[union-attr]


def _unavailable(error: SQLAlchemyError | sqlite3.Error | OSError) -> Unavailable:
    # What an event handler or a socket raises comes as it is, all else wrapped.
    origin = error.orig if isinstance(error, DBAPIError) else error
    code = getattr(origin, "sqlite_errorname", None) or getattr(origin, "sqlstate", None) or type(error).__name__
    # SQLITE_BUSY_SNAPSHOT is a kind of SQLITE_BUSY.
    cause = next((text for name, text in _CAUSES.items() if code.startswith(name)), "it is tried again")
    return Unavailable(f"the database did not answer ({code}): {cause}")
