"""What Anima itself writes on a span."""

from typing import Any

from opentelemetry.trace import Span, StatusCode

from anima.model.errors import Refusal

PREFIX = "anima."
"""Of every attribute that Anima sets itself."""


def mark_failed(span: Span, error: BaseException, reason: str | None = None) -> None:
    """Set a span's status and the type of its error; never the message.

    Args:
        span: that fails.
        error: a `Refusal` brings its own reason.
        reason: of another error.
    """
    found: Any = error.reason if isinstance(error, Refusal) else reason
    span.set_attribute("error.type", type(error).__qualname__)
    if found:
        span.set_attribute(PREFIX + "reason", str(found))
    span.set_status(StatusCode.ERROR)
