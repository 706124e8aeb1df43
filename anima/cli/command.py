"""What every command has in common: the event loop, and error reports."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, ParamSpec

import typer

from anima.cli.options import Output

P = ParamSpec("P")


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
        except _interrupted():
            raise typer.Exit(130) from None
        except (typer.Exit, typer.Abort, typer.BadParameter, BrokenPipeError):
            raise
        except Exception as error:
            from anima.cli.failures import report

            raise typer.Exit(report(error, as_json=kwargs.get("output") is Output.JSON)) from None

    return run


def _interrupted() -> tuple[type[BaseException], ...]:
    # Ctrl-C before a coroutine has begun can leave asyncio's runner as the cancellation that it made of it.
    import asyncio

    return KeyboardInterrupt, asyncio.CancelledError
