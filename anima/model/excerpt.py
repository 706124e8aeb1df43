"""Text made fit for storage: no characters that a database refuses, and no more than a bound."""

import json
from typing import Any

from anima.model.digests import digest_bytes
from anima.model.plain import MAX_DEPTH

_REPLACEMENT = "\ufffd"
# What replaces longer ones is shorter.
_LEAST_ARGUMENTS = 128


def clean(text: str) -> str:
    """Replace NUL and lone surrogates by U+FFFD; two halves of one character become it."""
    text = text.replace("\0", _REPLACEMENT)
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def excerpt(text: str, limit: int) -> str:
    """Return text of at most `limit` bytes: what is longer loses its middle, and says so there.

    Args:
        text: valid Unicode.
        limit: in bytes; below about 200 the notice alone is longer.
    """
    data = text.encode()
    if len(data) <= limit:
        return text
    digest = digest_bytes(data)
    kept = max(0, limit - len(_notice(len(data), len(data), digest)))
    head = data[: kept - kept // 2].decode(errors="ignore")
    tail = data[len(data) - kept // 2 :].decode(errors="ignore")
    left_out = len(data) - len(head.encode()) - len(tail.encode())
    return f"{head}{_notice(left_out, len(data), digest)}{tail}"


def _notice(left_out: int, size: int, digest: str) -> str:
    return f"\n[{left_out} of {size} bytes are left out here; the whole has the digest {digest}]\n"


def arguments_excerpt(arguments: str, limit: int) -> str:
    """Return a call's arguments as an object of JSON that every provider reads.

    Args:
        arguments: what a model wrote; it should be JSON.
        limit: in bytes; what is longer is replaced by its size and digest, and what is
            no object becomes a text in one.
    """
    text = clean(arguments) or "{}"
    size = len(text.encode())
    if size > max(limit, _LEAST_ARGUMENTS):
        return json.dumps({"leftOutBytes": size, "digest": digest_bytes(text.encode())})
    try:
        value = json.loads(text, parse_constant=_refuse)
        cleaned = _cleaned(value, MAX_DEPTH)
        written = json.dumps(cleaned, ensure_ascii=False, allow_nan=False)
    except (ValueError, RecursionError):
        return _unreadable(text, limit)
    if not isinstance(cleaned, dict):
        return _unreadable(text, limit)
    return text if cleaned == value else written


def _unreadable(text: str, limit: int) -> str:
    return arguments_excerpt(json.dumps({"unreadable": text}, ensure_ascii=False), limit)


def _cleaned(value: Any, depth: int) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict | list) and not depth:
        raise ValueError("nested too deeply")
    if isinstance(value, dict):
        return {clean(key): _cleaned(item, depth - 1) for key, item in value.items()}
    return [_cleaned(item, depth - 1) for item in value] if isinstance(value, list) else value


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON")
