"""Errors as a person or a script meets them, on standard error."""

import json
import sys
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.text import Text

from anima.cli.output import printable
from anima.exits import Exit, exit_of
from anima.manifests import LocatedProblem
from anima.model.errors import AnimaError, Refusal
from anima.model.reasons import Reason


def report(error: Exception, *, as_json: bool) -> Exit:
    """Print a foreseen error and return the exit status; raise any other again.

    Args:
        error: what a command raised.
        as_json: print JSON in the shape that the gateway's errors have.
    """
    if isinstance(error, AnimaError):
        show(_body(error), _lines(error), as_json=as_json)
        conflict = isinstance(error, Refusal) and error.reason is Reason.TASK_CONFLICT
        return Exit.CONFLICT if conflict else exit_of(error)
    if isinstance(error, OSError) and error.filename is not None:
        message = f"{error.filename}: {error.strerror}"
        show({"reason": type(error).__name__, "message": message}, [message], as_json=as_json)
        return Exit.INVALID
    raise error


def show(body: dict[str, Any], lines: list[str], *, as_json: bool) -> None:
    """Print one error: `body` as JSON, or `lines` for a person."""
    if as_json:
        sys.stderr.write(json.dumps({"error": body}, ensure_ascii=False) + "\n")
        return
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    for line in lines:
        console.print(Text("error: ", style="bold red").append(printable(line), style="not bold default"))


def _body(error: AnimaError) -> dict[str, Any]:
    if not isinstance(error, Refusal):
        return {"reason": type(error).__name__, "message": str(error)}
    problems = [asdict(problem) for problem in error.problems]
    return {
        "reason": error.reason.value,
        "message": error.message,
        "remedy": error.reason.remedy,
        "problems": problems,
    }


def _lines(error: AnimaError) -> list[str]:
    if not isinstance(error, Refusal):
        return [str(error)]
    if error.problems and all(isinstance(problem, LocatedProblem) for problem in error.problems):
        return [str(problem) for problem in error.problems]
    if error.problems:
        return [error.message]
    return [f"{error.message}. {error.reason.remedy}"]
