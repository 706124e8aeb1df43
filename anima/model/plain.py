"""What every JSON reader keeps exactly: the rules for plain data."""

import json
import math
from collections.abc import Iterator
from typing import Any

from anima.model.base import MAX_INT
from anima.model.problems import Problem, child_path

MAX_DEPTH = 64
_HUGE = 2**64
"""Stands for any integer that is too long to be worth parsing; refused later."""


def parse_json(data: bytes, first_line: int = 1) -> Any:
    """Read one JSON value, as strictly as a YAML file is read.

    Args:
        data: the value, as UTF-8.
        first_line: the number of the line that it begins in.

    Raises:
        ValueError: what is wrong with the data, as the end of a sentence; it quotes none.
    """
    try:
        return json.loads(data.decode("utf-8-sig"), object_pairs_hook=_object, parse_int=parse_integer)
    except UnicodeDecodeError as error:
        fault = f"is not UTF-8 at byte {error.start}"
    except json.JSONDecodeError as error:
        fault = f"is not JSON at line {error.lineno + first_line - 1}, column {error.colno}: {error.msg}"
    except RecursionError:
        fault = f"is nested deeper than {MAX_DEPTH} levels"
    raise ValueError(fault)


def parse_integer(text: str) -> int:
    """Parse decimal digits, without the time that a million of them would take."""
    return int(text) if len(text) <= 20 else _HUGE


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("has an object with the same field twice; keep one of them")
    return found


def plain_problems(data: Any) -> Iterator[Problem]:
    """Find what no JSON reader keeps exactly: depth, keys, numbers, surrogates."""
    yield from _plain(data, "", 1)


def _plain(value: Any, path: str, depth: int) -> Iterator[Problem]:
    if not isinstance(value, dict | list):
        fault = _fault(value)
        if fault is not None:
            yield Problem(path, *fault)
    elif depth > MAX_DEPTH:
        yield Problem(path, f"is nested deeper than {MAX_DEPTH} levels", "flatten it")
    else:
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _item(key, item, path, depth, is_key=isinstance(value, dict))


def _item(key: Any, item: Any, path: str, depth: int, *, is_key: bool) -> Iterator[Problem]:
    fault = _key_fault(key) if is_key else None
    # Paths are made for faults and for what is below only: this runs over megabytes.
    if fault is None and not isinstance(item, dict | list):
        fault = _fault(item)
        if fault is None:
            return
    where = child_path(path, key if type(key) is int else str(key))
    if fault is not None:
        yield Problem(where, *fault)
    else:
        yield from _plain(item, where, depth + 1)


def _key_fault(key: Any) -> tuple[str, str] | None:
    if not isinstance(key, str):
        return "is a key that is not text", "put the key in quotes"
    return _fault(key)


def _fault(value: Any) -> tuple[str, str] | None:
    """Return what is wrong with a scalar, and the remedy."""
    match value:
        case None | bool():
            return None
        case str():
            return _SURROGATE if _has_surrogate(value) else None
        case int():
            return _TOO_BIG if abs(value) > MAX_INT else None
        case float():
            return None if math.isfinite(value) else _NOT_FINITE
        case _:
            return f"is a {type(value).__name__}, which JSON cannot hold", "write text, a number or a map"


_SURROGATE = ("is not valid Unicode: it has a lone surrogate", "write the text as UTF-8")
_TOO_BIG = ("is an integer beyond 2^53-1, which not every JSON reader keeps", "put it in quotes")
_NOT_FINITE = ("is not a finite number", "write a number, or leave the field out")


def _has_surrogate(text: str) -> bool:
    if text.isascii():
        return False
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False
