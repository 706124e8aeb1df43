"""Faults in an object, each with the path to the field and what to do."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from functools import reduce
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

_NAME = re.compile(r"[A-Za-z0-9_./-]{1,63}")


@dataclass(frozen=True, slots=True)
class Problem:
    """One fault: where, what, and the remedy.  Never the offending value."""

    path: str
    message: str
    remedy: str = ""

    def __str__(self) -> str:
        where = f"{self.path}: " if self.path else ""
        return f"{where}{self.message}" + (f" ({self.remedy})" if self.remedy else "")


def problems_of(
    error: ValidationError, model: type[BaseModel] | None = None, limit: int | None = None
) -> list[Problem]:
    """List every fault of a pydantic error, without echoing any input.

    Args:
        error: what pydantic raised.
        model: the model that refused, used to suggest near names of fields.
        limit: how many to list at most; `error.error_count()` tells how many there are.
    """
    return [_problem(detail, model) for detail in error.errors(include_input=False, include_url=False)[:limit]]


def summary(problems: Iterable[Problem]) -> str:
    """Join problems into one line for a failure message."""
    return "; ".join(str(problem) for problem in problems)


def _problem(detail: Any, model: type[BaseModel] | None) -> Problem:
    path = _path(detail["loc"])
    match detail["type"]:
        case "extra_forbidden":
            return Problem(path, "unknown field", _suggestion(detail["loc"], model))
        case "missing":
            return Problem(path, "required field is missing", "add it")
        case "value_error":
            # `ctx.error` is ours; its second argument, if any, is the remedy.
            message, *remedy = detail["ctx"]["error"].args
            return Problem(path, message, *remedy[:1])
        case "model_type" | "model_attributes_type" | "dict_type":
            return Problem(path, "must be a map of fields")
        case "enum" | "literal_error":
            return Problem(path, f"must be one of {detail['ctx']['expected']}")
        case _:
            return Problem(path, _lower(detail["msg"]))


def child_path(path: str, part: str | int) -> str:
    """Return the path of a field or element below `path`.

    What does not look like a name is not repeated: an indentation gone wrong makes
    a key of a line of somebody's text.
    """
    if isinstance(part, int):
        return f"{path}[{part}]"
    name = part if _NAME.fullmatch(part) else "<not a name>"
    return f"{path}.{name}" if path else name


def _path(loc: tuple[int | str, ...]) -> str:
    return reduce(child_path, loc, "")


def _suggestion(loc: tuple[int | str, ...], model: type[BaseModel] | None) -> str:
    known = _field_names(model, loc[:-1])
    near = get_close_matches(str(loc[-1]), known, n=1)
    if near:
        return f"did you mean {near[0]}?"
    return f"known here: {', '.join(sorted(known))}" if known else "remove it"


def _field_names(model: type[BaseModel] | None, parents: tuple[int | str, ...]) -> list[str]:
    annotation: Any = model
    for part in parents:
        annotation = _inside(_bare(annotation), part)
    found = _fields(_bare(annotation))
    return [field.alias or name for name, field in found.items()]


def _inside(annotation: Any, part: int | str) -> Any:
    """Step from a type into one of its fields, elements or values."""
    for name, field in _fields(annotation).items():
        if part in (name, field.alias):
            return field.annotation
    return get_args(annotation)[-1] if get_origin(annotation) in (list, dict) else None


def _bare(annotation: Any) -> Any:
    """Take `Annotated` and `| None` away from a type."""
    while get_origin(annotation) in (Annotated, Union, UnionType):
        annotation = next(arg for arg in get_args(annotation) if arg is not NoneType)
    return annotation


def _fields(annotation: Any) -> dict[str, FieldInfo]:
    is_model = isinstance(annotation, type) and issubclass(annotation, BaseModel)
    return annotation.model_fields if is_model else {}


def _lower(message: str) -> str:
    return message[:1].lower() + message[1:]
