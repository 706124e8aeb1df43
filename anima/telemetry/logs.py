"""The log of a process: JSON lines with ids, digests, numbers and reasons.

Anima's own loggers, structlog's and every library's end in the same form.  What a
library says is cut to its first line: the rest may quote what it was given.
"""

import json
import logging
import sys
import threading
import warnings
from datetime import UTC, datetime
from typing import Any, TextIO

import structlog
from opentelemetry import trace
from structlog.stdlib import ExtraAdder, ProcessorFormatter
from structlog.types import EventDict, Processor, WrappedLogger

from anima.telemetry.redaction import described, fields, filled

_OURS = frozenset({"anima", "activities", "workers", "workflows"})
_LONGEST_FOREIGN = 500
# At INFO these repeat statements, addresses and headers.
_TALKATIVE = ("sqlalchemy", "alembic", "httpx2", "httpcore2")

_own_extra = ExtraAdder()
_foreign_extra = ExtraAdder(allow=["temporal_activity", "temporal_workflow"])


def configure_logs(service: str, level: int = logging.INFO) -> None:
    """Send every log record, warning and uncaught exception to standard error, one JSON object a line.

    Args:
        service: the name of the process, in every line.
        level: the lowest that is written.
    """
    handler = logging.StreamHandler()
    handler.setFormatter(
        ProcessorFormatter(
            foreign_pre_chain=[_extra],
            processors=[_line(service)],
            pass_foreign_args=True,
            use_get_message=False,
        )
    )
    logging.basicConfig(level=level, handlers=[handler], force=True)
    # A record that cannot be written is dropped; logging would print its arguments.
    logging.raiseExceptions = False
    for name in _TALKATIVE:
        logging.getLogger(name).setLevel(max(level, logging.WARNING))
    structlog.configure(
        processors=[structlog.contextvars.merge_contextvars, ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
    )
    _catch_the_uncaught()


def _extra(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    return (_own_extra if _ours(event["_record"]) else _foreign_extra)(logger, method, event)


def _line(service: str) -> Processor:
    """Return the last processor: it turns an event into its line."""

    def line(_logger: WrappedLogger, _method: str, event: EventDict) -> str:
        record: logging.LogRecord = event.pop("_record")
        error = _error(event.pop("exc_info", None))
        head = {
            "timestamp": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname.lower(),
            "service": service,
            "logger": record.name,
            "event": _text(record, event),
            **_span(),
        }
        tail = {"exception": described(error)} if error else {}
        return json.dumps(head | fields(event) | head | tail)

    return line


def _text(record: logging.LogRecord, event: EventDict) -> str:
    from_structlog = event.pop("_from_structlog")
    event.pop("stack_info", None)
    # What stands there now was made into text with everything it was given.
    template = event.pop("event", "")
    text = filled(template if from_structlog else record.msg, event.pop("positional_args", ()))
    return text if from_structlog or _ours(record) else text.partition("\n")[0][:_LONGEST_FOREIGN]


def _ours(record: logging.LogRecord) -> bool:
    return record.name.partition(".")[0] in _OURS


def _error(given: Any) -> BaseException | None:
    if given is True:
        given = sys.exc_info()
    error = given[1] if isinstance(given, tuple) else given
    return error if isinstance(error, BaseException) else None


def _span() -> dict[str, str]:
    context = trace.get_current_span().get_span_context()
    if not context.is_valid:
        return {}
    return {"trace_id": trace.format_trace_id(context.trace_id), "span_id": trace.format_span_id(context.span_id)}


def _catch_the_uncaught() -> None:
    # Python prints these itself, with their messages.
    log = logging.getLogger("anima.uncaught")

    def uncaught(kind: type[BaseException], error: BaseException, _traceback: object) -> None:
        if not issubclass(kind, KeyboardInterrupt):
            log.critical("uncaught exception", exc_info=error)

    def warned(
        message: Warning | str,  # noqa: ARG001 (a validation library's quotes values)
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,  # noqa: ARG001
        line: str | None = None,  # noqa: ARG001
    ) -> None:
        log.warning("%s at %s:%d", category.__name__, filename, lineno)

    sys.excepthook = uncaught
    sys.unraisablehook = lambda raised: log.error("exception ignored in a finalizer", exc_info=raised.exc_value)
    threading.excepthook = lambda raised: log.error("uncaught exception in a thread", exc_info=raised.exc_value)
    warnings.showwarning = warned
