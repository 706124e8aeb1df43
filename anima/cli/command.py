"""What every command has in common: options, the event loop, and error reports."""

import functools
import inspect
from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, Any, ParamSpec

import typer

P = ParamSpec("P")


class Output(StrEnum):
    """The form of what a command prints."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


def label(value: str | None) -> str | None:
    """Check an argument that names an object, before anything is asked for it."""
    from anima.model.names import check_label

    if value is not None:
        try:
            check_label(value)
        except ValueError as error:
            raise typer.BadParameter(f"{error.args[0]}; {error.args[1]}") from None
    return value


def duration(value: str | None) -> str | None:
    """Check an argument that is a span of time."""
    from anima.model.units import parse_duration

    if value is not None:
        try:
            parse_duration(value)
        except ValueError as error:
            raise typer.BadParameter(f"{error.args[0]}; {error.args[1]}") from None
    return value


Namespace = Annotated[str, typer.Option("--namespace", "-n", callback=label, help="The namespace.")]
OutputForm = Annotated[Output, typer.Option("--output", "-o", help="How to print it; errors follow json, too.")]
TaskName = Annotated[str, typer.Argument(metavar="TASK", callback=label, help="The Task's name.")]
WaitTime = Annotated[
    str | None,
    typer.Option("--timeout", callback=duration, help="Stop waiting after so long, e.g. 5m; the Task goes on."),
]

DEFAULT_NAMESPACE = "default"


def command(function: Callable[P, Any]) -> Callable[P, None]:
    """Make a command of a function: await it if need be, and report its errors.

    A bug keeps its traceback; everything foreseen is reported in one or two lines.
    """

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            running = function(*args, **kwargs)
            if inspect.iscoroutine(running):
                import asyncio

                asyncio.run(running)
        except KeyboardInterrupt:
            raise typer.Exit(130) from None
        except (typer.Exit, typer.Abort, typer.BadParameter, BrokenPipeError):
            raise
        except Exception as error:
            from anima.cli.failures import report

            raise typer.Exit(report(error, as_json=kwargs.get("output") is Output.JSON)) from None

    return run
