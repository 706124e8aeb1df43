"""The options and arguments that commands share."""

from collections.abc import Callable
from enum import StrEnum
from typing import Annotated

import typer


class Output(StrEnum):
    """The form of what a command prints."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


def label(value: str | None) -> str | None:
    """Check an argument that names an object, before anything is asked for it."""
    from anima.model.names import check_label

    return _checked(check_label, value)


def duration(value: str | None) -> str | None:
    """Check an argument that is a span of time."""
    from anima.model.units import parse_duration

    return _checked(parse_duration, value)


def _checked(check: Callable[[str], object], value: str | None) -> str | None:
    if value is not None:
        try:
            check(value)
        except ValueError as error:
            raise typer.BadParameter(f"{error.args[0]}; {error.args[1]}") from None
    return value


Namespace = Annotated[str, typer.Option("--namespace", "-n", callback=label, help="The namespace.")]
AllNamespaces = Annotated[bool, typer.Option("--all-namespaces", "-A", help="Whatever their namespace.")]
OutputForm = Annotated[Output, typer.Option("--output", "-o", help="How to print it; errors follow json, too.")]
TaskName = Annotated[str, typer.Argument(metavar="TASK", callback=label, help="The Task's name.")]
WaitTime = Annotated[
    str | None,
    typer.Option("--timeout", callback=duration, help="Stop waiting after so long, e.g. 5m; the Task goes on."),
]

DEFAULT_NAMESPACE = "default"
