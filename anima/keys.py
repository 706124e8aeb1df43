"""The two secrets of an installation, each a file that only its owner reads."""

import os
import secrets
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from anima.home import Home
from anima.model.errors import Conflict, NotFound, Unavailable

_CHARACTERS = 43
"""32 random bytes as base64url."""


@dataclass(frozen=True, slots=True)
class Keys:
    """What the gateway checks credentials with; never shown in a repr."""

    user_token: str = field(repr=False)
    attempt_secret: bytes = field(repr=False)

    @classmethod
    def load_or_create(cls, home: Home) -> "Keys":
        """Read both files, and make those that are missing.

        Raises:
            Conflict: a file holds something else than a key.
            Unavailable: a file cannot be read or made.
        """
        return cls(load_or_create(home.user_token), load_or_create(home.attempt_key).encode())


def load_or_create(path: Path, generate: Callable[[], str] = secrets.token_urlsafe) -> str:
    """Return the key in a file; make it, mode 0600, if there is none.

    Processes that race agree: the file appears whole, and whoever is late reads it.

    Raises:
        Conflict: the file holds something else than a key.
        Unavailable: the file cannot be read or made.
    """
    try:
        with suppress(NotFound):
            return load(path)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _publish(path, generate())
    except OSError as error:
        raise _unusable(path, error) from None
    return load(path)


def load(path: Path) -> str:
    """Return the key in a file.

    Raises:
        NotFound: there is no such file.
        Conflict: it holds something else than a key.
        Unavailable: it cannot be read.
    """
    try:
        text = path.read_bytes().decode("ascii", "replace").strip()
    except FileNotFoundError:
        raise NotFound(f"there is no key file {path}; `anima dev` makes it") from None
    except OSError as error:
        raise _unusable(path, error) from None
    # An empty key would let anyone forge tokens.
    if len(text) != _CHARACTERS:
        raise Conflict(f"the file {path} holds no key; delete it and start `anima dev` again")
    return text


def _publish(path: Path, key: str) -> None:
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        with os.fdopen(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
            file.write(key + "\n")
            file.flush()
            os.fsync(file.fileno())
        # Unlike a rename, a link never replaces the key that another process made.
        with suppress(FileExistsError):
            path.hardlink_to(draft)
    finally:
        draft.unlink(missing_ok=True)


def _unusable(path: Path, error: OSError) -> Unavailable:
    return Unavailable(f"the key file {path} cannot be used: {error.strerror}; check its directory's owner and mode")
