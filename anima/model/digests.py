"""Content digests: SHA-256 over exact bytes, or over RFC 8785 canonical JSON."""

import hashlib
from typing import Annotated, Any

import rfc8785
from pydantic import AfterValidator, WithJsonSchema

PREFIX = "sha256:"
_HEX = frozenset("0123456789abcdef")


def digest_bytes(data: bytes) -> str:
    """Return ``sha256:`` and 64 lowercase hex digits of exactly these bytes."""
    return PREFIX + hashlib.sha256(data).hexdigest()


def digest_json(domain: str, value: Any) -> str:
    """Digest a JSON value in canonical form, apart from every other domain.

    Args:
        domain: what the value is, with a version: ``anima.task-inputs/1``.
        value: plain JSON data; integers at most 2^53-1 in size.
    """
    return digest_bytes(domain.encode() + b"\n" + rfc8785.dumps(value))


def check_digest(text: str) -> str:
    """Return `text` if it is a well-formed digest.

    Raises:
        ValueError: with the fault and the remedy as its two arguments.
    """
    hexed = text.removeprefix(PREFIX)
    if len(text) != len(PREFIX) + 64 or len(hexed) != 64 or not set(hexed) <= _HEX:
        raise ValueError(
            "must be sha256: and 64 lowercase hex digits",
            "`anima soul digest FILE` prints it",
        )
    return text


Digest = Annotated[
    str,
    AfterValidator(check_digest),
    WithJsonSchema({"type": "string", "pattern": "^sha256:[0-9a-f]{64}$", "maxLength": 71}),
]
