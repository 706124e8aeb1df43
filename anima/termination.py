"""Leaving a program."""

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn


def leave(program: Callable[[], int | None]) -> NoReturn:
    """Run a program and leave with its exit status, without taking the interpreter down.

    The threads of Temporal's core outlive the event loop, and one that comes back while
    the interpreter is being taken down aborts the process: a command that had succeeded
    would exit with 134 now and then.
    """
    try:
        code = program()
    except SystemExit as end:
        code = _status(end)
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code or 0)


def _status(end: SystemExit) -> int | None:
    if end.code is None or isinstance(end.code, int):
        return end.code
    sys.stderr.write(f"{end.code}\n")
    return 1
