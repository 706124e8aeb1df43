"""The log of a process: JSON lines with ids, digests and numbers."""

import logging

import structlog
from structlog.types import EventDict, WrappedLogger


def configure_logs(level: int = logging.INFO) -> None:
    """Send every log record to standard error as one line of JSON."""
    shared: list[structlog.types.Processor] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso"),
        _only_the_type,
    ]
    handler = logging.StreamHandler()
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.JSONRenderer(),
            ],
        )
    )
    logging.basicConfig(level=level, handlers=[handler], force=True)


def _only_the_type(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    # The message of a foreign exception may quote a soul or a Secret.
    exception = event.pop("exc_info", None)
    error = exception[1] if isinstance(exception, tuple) else exception
    if isinstance(error, BaseException):
        event["exception"] = type(error).__name__
    return event
