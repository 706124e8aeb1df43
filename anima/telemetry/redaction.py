"""What of a value may be written into a log.

Names of secrets are refused, objects show their type only, and an exception shows
where it was raised; its message only if Anima wrote it.
"""

import math
import re
import traceback
from collections.abc import Mapping, Set
from datetime import date, timedelta
from pathlib import Path, PurePath
from typing import Any
from uuid import UUID

from anima.model.errors import AnimaError, Refusal
from anima.model.persona import SensitiveText

WITHHELD = "<withheld>"

_SECRET_WORDS = frozenset({
    "answer", "apikey", "authorization", "content", "cookie", "credential", "key", "password", "persona", "prompt",
    "secret", "soul", "text", "token",
})  # fmt: skip
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_DEEPEST = 6
_MOST_FRAMES = 30


def shown(value: object, depth: int = 0) -> Any:
    """Return what JSON can hold and a log may: plain values as they are, objects by their type."""
    match value:
        case None | bool() | int():
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case str() | SensitiveText() | PurePath() | UUID() | date() | timedelta():
            return str(value)
        case BaseException():
            return str(value) if isinstance(value, AnimaError) else type(value).__name__
        case Mapping() if depth < _DEEPEST:
            return fields(value, depth + 1)
        case list() | tuple() | Set() if depth < _DEEPEST:
            return [shown(item, depth + 1) for item in value]
        case _:
            return f"<{type(value).__name__}>"


def fields(values: Mapping[Any, object], depth: int = 0) -> dict[str, Any]:
    """Return named values; a number or a digest may have any name, other values no secret's."""
    return {
        str(name): WITHHELD if _secret(str(name)) and not _harmless(value) else shown(value, depth)
        for name, value in values.items()
    }


def filled(template: object, arguments: object) -> str:
    """Fill a logging template; what does not fit it is left out."""
    text = str(shown(template))
    if not arguments:
        return text
    try:
        if isinstance(arguments, Mapping):
            return text % fields(arguments)
        given = arguments if isinstance(arguments, tuple) else (arguments,)
        return text % tuple(shown(argument) for argument in given)
    except (TypeError, ValueError, KeyError):
        return text


def described(error: BaseException, depth: int = 0) -> dict[str, Any]:
    """Return an exception's type, the frames of its stack and its causes, without variables.

    Its message is included if it is Anima's own, which never holds persona text.
    """
    facts: dict[str, Any] = {"type": _name(type(error)), "stack": _frames(error)}
    if isinstance(error, AnimaError):
        facts["message"] = str(error)
    if isinstance(error, Refusal):
        facts["reason"] = str(error.reason)
    if depth < _DEEPEST:
        cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
        if cause is not None:
            facts["cause"] = described(cause, depth + 1)
        if isinstance(error, BaseExceptionGroup):
            facts["errors"] = [described(one, depth + 1) for one in error.exceptions]
    return facts


def _secret(name: str) -> bool:
    return any(word.lower().removesuffix("s") in _SECRET_WORDS for word in _WORD.findall(name))


def _harmless(value: object) -> bool:
    return value is None or isinstance(value, int | float) or bool(_DIGEST.fullmatch(str(shown(value))))


def _name(kind: type[BaseException]) -> str:
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _frames(error: BaseException) -> list[str]:
    frames = list(traceback.walk_tb(error.__traceback__))[-_MOST_FRAMES:]
    return [
        f"{'/'.join(Path(frame.f_code.co_filename).parts[-3:])}:{line}:{frame.f_code.co_name}" for frame, line in frames
    ]
