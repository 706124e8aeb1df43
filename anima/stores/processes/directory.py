"""The directory of one Job: everything that is known of it, on disk.

============== ==============================================================
spec.json      the JobSpec, its digest and uid; never the environment
claim.json     written once: the Job started, or never will
deleted.json   the Job was deleted; its name is never used again
exit.json      how it ended
log            its output
scratch/       its working directory, gone when it has ended
lock           locked by the supervisor for as long as it lives
============== ==============================================================

Each ``.json`` file appears whole, once, and by whoever is first; so whatever
crashes when, a Job starts at most once.
"""

import errno
import fcntl
import json
import os
import shutil
import struct
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

SPEC = "spec.json"
_CLAIM = "claim.json"
_DELETED = "deleted.json"
_EXIT = "exit.json"

# struct flock: (type, whence, start, length, pid), in each system's own order.
_FLOCK = "qqihh" if sys.platform == "darwin" else "hhqqi0q"


@dataclass(frozen=True, slots=True)
class Claim:
    """The one decision whether a Job starts, with its processes if it does."""

    started_at: str | None = None
    """None: the name was fenced before the Job started."""
    group: int = 0
    session: int = 0
    ticks: int = 0
    """When the leader of the group started, in clock ticks since boot."""
    boot: str = ""


@dataclass(frozen=True, slots=True)
class Ending:
    """How a Job ended."""

    ended_at: str
    exit_code: int | None = None
    timed_out: bool = False
    message: str = ""
    lost: bool = False
    """Its supervisor died before it could write down the exit status."""


@dataclass(frozen=True, slots=True)
class JobDirectory:
    """Reads and writes the state of one Job."""

    path: Path

    @property
    def namespace(self) -> str:
        return self.path.parent.name

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def log(self) -> Path:
        return self.path / "log"

    @property
    def scratch(self) -> Path:
        return self.path / "scratch"

    def read(self, name: str) -> dict[str, Any] | None:
        """Return the content of a ``.json`` file; none if there is no such file."""
        try:
            content: dict[str, Any] = json.loads((self.path / name).read_bytes())
        except (FileNotFoundError, NotADirectoryError):
            return None
        return content

    def publish(self, name: str, content: Mapping[str, object]) -> bool:
        """Write a file whole and durably; return False if it was there before."""
        handle, draft = tempfile.mkstemp(prefix=f".{name}.", dir=self.path)
        try:
            with os.fdopen(handle, "w") as file:
                json.dump(content, file)
                file.flush()
                os.fsync(handle)
            os.link(draft, self.path / name)
        except FileExistsError:
            return False
        finally:
            Path(draft).unlink()
        self._sync()
        return True

    def claim(self) -> Claim | None:
        """Return the decision whether the Job starts; none before it is made."""
        content = self.read(_CLAIM)
        return Claim(**content) if content else None

    def decide(self, claim: Claim) -> bool:
        """Start or fence the Job; return False if that was decided before."""
        return self.publish(_CLAIM, asdict(claim))

    def ending(self) -> Ending | None:
        """Return how the Job ended; none if it did not, or nobody knows."""
        content = self.read(_EXIT)
        return Ending(**content) if content else None

    def end(self, ending: Ending) -> bool:
        """Write down how the Job ended; the first to do so wins."""
        return self.publish(_EXIT, asdict(ending))

    def deleted(self) -> str | None:
        """Return the path of the attempt for which the Job was deleted."""
        content = self.read(_DELETED)
        return str(content["key"]) if content else None

    def bury(self, key: str) -> None:
        """Mark the Job as deleted, and fence it if it has not started."""
        self.publish(_DELETED, {"key": key})
        self.decide(Claim())

    def hold(self) -> bool:
        """Take the lock for the life of this process, and no child's; False if it is taken.

        It is a record lock: closing *any* descriptor of the file releases it, so
        the process that holds it must not call `holder`.
        """
        descriptor = os.open(self._lock, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise
            return False
        return True

    def holder(self) -> int | None:
        """Return the pid of the living supervisor; none if there is none.

        Only asks: unlike a trial with `flock` it cannot get in a supervisor's way.
        """
        try:
            descriptor = os.open(self._lock, os.O_RDONLY)
        except (FileNotFoundError, NotADirectoryError):
            return None
        try:
            return _locked_by(descriptor)
        finally:
            os.close(descriptor)

    def remove_scratch(self) -> str:
        """Remove the scratch directory; return why if that was not possible."""
        try:
            _remove_tree(self.scratch)
        except OSError as error:
            return f"its scratch directory could not be removed: {error.strerror}"
        return ""

    @property
    def _lock(self) -> Path:
        return self.path / "lock"

    def _sync(self) -> None:
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _locked_by(descriptor: int) -> int | None:
    darwin = sys.platform == "darwin"
    question = (0, 0, 0, fcntl.F_WRLCK, 0) if darwin else (fcntl.F_WRLCK, 0, 0, 0, 0)
    answer = struct.unpack(_FLOCK, fcntl.fcntl(descriptor, fcntl.F_GETLK, struct.pack(_FLOCK, *question)))
    kind, pid = (answer[3], answer[2]) if darwin else (answer[0], answer[4])
    return None if kind == fcntl.F_UNLCK else pid


def _remove_tree(tree: Path) -> None:
    try:
        shutil.rmtree(tree)
    except FileNotFoundError:
        return
    except PermissionError:
        # A Job may have taken its own rights away; its processes are gone by now.
        tree.chmod(0o700)
        for parent, names, _ in os.walk(tree):
            for path in (Path(parent, name) for name in names):
                if not path.is_symlink():
                    path.chmod(0o700)
        shutil.rmtree(tree)
