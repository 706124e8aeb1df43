"""The worker's own log: JSON lines with ids, digests and numbers, nothing else."""

import logging
import sys
import traceback
import warnings
from pathlib import Path
from typing import Any, Protocol, TextIO

import structlog


class Log(Protocol):
    """Writes one line an event; values are ids, digests and numbers."""

    def info(self, event: str, **values: Any) -> Any: ...

    def error(self, event: str, **values: Any) -> Any: ...


def job_log(stream: TextIO | None = None, **bound: Any) -> Log:
    """Return a log to `stream`, or to standard error, with `bound` in every line."""
    log: Log = structlog.wrap_logger(
        structlog.PrintLogger(stream or sys.stderr),
        processors=[
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.processors.add_log_level,
            structlog.processors.JSONRenderer(),
        ],
        **bound,
    )
    return log


def silence_libraries() -> None:
    """Keep the words of libraries out of the log: they may quote a prompt or a key."""
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")


def origin(error: BaseException) -> str:
    """Say where an unexpected error comes from, without its message."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}{where}"
