"""A PostgreSQL cluster of the tests' own, which goes with them however they end.

Run as a program, it keeps a cluster until its standard input ends: also when the process
at the other end of the pipe is killed.
"""

import contextlib
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import URL

ROOT = Path(__file__).parent.parent
USER = "anima"
# PostgreSQL refuses to run as root.
ACCOUNTS = ("postgres", "nobody")
# Nothing has to survive a crash of the machine, and nobody comes over the network.
SETTINGS = """
listen_addresses = ''
unix_socket_directories = '{directory}'
fsync = off
full_page_writes = off
shared_buffers = 16MB
"""


@dataclass(frozen=True)
class Cluster:
    """A running cluster; whoever may enter the directory of its socket may connect."""

    binaries: Path
    directory: Path

    def url(self, database: str) -> URL:
        """Return the address of a database, as ``ANIMA_DATABASE_URL`` has it."""
        return URL.create("postgresql+asyncpg", username=USER, database=database, query={"host": str(self.directory)})

    @contextlib.contextmanager
    def database(self, name: str) -> Iterator[URL]:
        """Create a database, and drop it afterwards, whoever is still connected."""
        self._run("createdb", name)
        yield self.url(name)
        self._run("dropdb", "--force", name)

    def _run(self, program: str, *arguments: str) -> None:
        connect = ("--host", str(self.directory), "--username", USER)
        subprocess.run([self.binaries / program, *connect, *arguments], check=True)


def binaries() -> Path:
    """Return the directory of PostgreSQL's programs.

    Raises:
        RuntimeError: there is none.
    """
    on_path = [Path(found).resolve().parent] if (found := shutil.which("initdb")) else []
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name))
    for directory in (*on_path, *reversed(installed)):
        if all((directory / program).exists() for program in ("initdb", "pg_ctl", "createdb", "dropdb")):
            return directory
    raise RuntimeError(
        "PostgreSQL is not installed, and these tests run on a real one: its initdb, pg_ctl, createdb and dropdb are "
        "neither on the PATH nor in /usr/lib/postgresql/*/bin; `make postgresql` installs it on Debian"
    )


@contextlib.contextmanager
def cluster() -> Iterator[Cluster]:
    """Start a cluster, and stop and remove it afterwards."""
    programs = binaries()
    pipe = subprocess.PIPE
    command = [sys.executable, "-m", "tests.postgresql", str(programs)]
    # In a session of its own, Ctrl-C does not reach it: the end of its input does.
    with subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True, start_new_session=True) as keeper:
        assert keeper.stdout is not None
        directory = keeper.stdout.readline().strip()
        if not directory:
            raise RuntimeError("PostgreSQL did not start; its own messages are above")
        # At its end, the pipe is closed and the keeper waited for.
        yield Cluster(programs, Path(directory))


def _keep(programs: Path) -> None:
    account = _account()
    # Its path is short, as that of a socket has to be, and the account may enter it.
    with tempfile.TemporaryDirectory(prefix="anima-postgresql-") as temporary:
        directory = Path(temporary)
        if account is not None:
            os.chown(directory, *account)
        control = _Control(programs, directory, account)
        control.run("initdb", "--username", USER, "--auth", "trust", "--encoding", "UTF8", "--no-locale", "--no-sync")
        with (directory / "data" / "postgresql.conf").open("a") as settings:
            settings.write(SETTINGS.format(directory=directory))
        control.run("pg_ctl", "--wait", "--log", str(directory / "log"), "start")
        try:
            sys.stdout.write(f"{directory}\n")
            sys.stdout.flush()
            sys.stdin.read()
        finally:
            control.run("pg_ctl", "--wait", "--mode", "immediate", "stop")


@dataclass(frozen=True)
class _Control:
    programs: Path
    directory: Path
    account: tuple[int, int] | None

    def run(self, program: str, *arguments: str) -> None:
        uid, gid = self.account or (None, None)
        subprocess.run(
            [self.programs / program, "--pgdata", self.directory / "data", *arguments],
            cwd=self.directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            user=uid,
            group=gid,
            extra_groups=None if gid is None else [],
            check=True,
        )


def _account() -> tuple[int, int] | None:
    if os.getuid() != 0:
        return None
    for name in ACCOUNTS:
        with contextlib.suppress(KeyError):
            found = pwd.getpwnam(name)
            return found.pw_uid, found.pw_gid
    raise RuntimeError(f"PostgreSQL refuses to run as root, and there is no account {' or '.join(ACCOUNTS)}")


if __name__ == "__main__":
    _keep(Path(sys.argv[1]))
