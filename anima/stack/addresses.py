"""What a running stack says of itself: ``run/stack.json`` and a lock."""

import fcntl
import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass

from anima.home import Home
from anima.stack.process import StackError

TEMPORAL_NAMESPACE = "default"


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where the parts of a running stack answer; `model` is none without a small model."""

    gateway: str
    temporal: str
    ui: str
    model: str | None
    pid: int
    namespace: str = TEMPORAL_NAMESPACE

    def to_json(self) -> dict[str, str | int | None]:
        """Return the content of ``stack.json``."""
        body = asdict(self)
        return {"temporalNamespace": body.pop("namespace"), **body}

    @classmethod
    def from_json(cls, text: str) -> "Addresses":
        """Read the content of ``stack.json``.

        Raises:
            ValueError, KeyError, TypeError: it is not such a content.
        """
        body = json.loads(text)
        return cls(namespace=body.pop("temporalNamespace"), **body)


def write_addresses(home: Home, addresses: Addresses) -> None:
    """Publish the addresses in one step, readable by the owner only."""
    draft = home.stack.with_suffix(".draft")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        json.dump(addresses.to_json(), file, indent=2)
    draft.replace(home.stack)


def running_stack(home: Home) -> Addresses | None:
    """Return the addresses of the stack that runs on this home, or none."""
    try:
        with (home.run / "stack.lock").open() as file:
            return _read(home) if _is_held(file.fileno()) else None
    except OSError:
        return None


def _read(home: Home) -> Addresses | None:
    with suppress(OSError, ValueError, KeyError, TypeError):
        return Addresses.from_json(home.stack.read_text())
    return None


class HomeLock:
    """The right to run the stack of a home; the kernel takes it back from the dead."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._descriptor = -1

    def __enter__(self) -> None:
        self._descriptor = os.open(self._home.run / "stack.lock", os.O_RDWR | os.O_CREAT, 0o600)
        while not _take(self._descriptor):
            # Commands that look for a running stack share the lock for a moment.
            if _is_held(self._descriptor):
                os.close(self._descriptor)
                raise StackError(self._busy())

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    def _busy(self) -> str:
        found = _read(self._home)
        where = f" (process {found.pid}, gateway {found.gateway})" if found else ""
        return (
            f"a stack already runs on {self._home.root}{where}; use it as it is, stop it with Ctrl-C in its terminal, "
            "or set ANIMA_HOME to another directory"
        )


def _take(descriptor: int, kind: int = fcntl.LOCK_EX) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_held(descriptor: int) -> bool:
    if not _take(descriptor, fcntl.LOCK_SH):
        return True
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    return False
