"""Where traces and metrics go: OpenTelemetry's own environment variables."""

from collections.abc import Mapping
from typing import Literal
from urllib.parse import urlsplit

from anima.model.errors import Refusal
from anima.model.reasons import Reason

Signal = Literal["traces", "metrics"]

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
_PROTOCOL = "http/protobuf"
DEFAULT_TIMEOUT = 3.0
"""Seconds for one export.  A process that ends waits so long for a dead collector."""


def endpoint(environ: Mapping[str, str], signal: Signal) -> str | None:
    """Return the address that a signal is sent to, or none if it is switched off.

    Args:
        environ: the variables of the OpenTelemetry specification.
        signal: `traces` or `metrics`.

    Raises:
        Refusal: `SettingInvalid` for no HTTP address, or for a protocol that is not spoken.
    """
    variable, address = _named(environ, signal)
    if not address or _switched_off(environ, signal):
        return None
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        # It may hold a password, so it is not repeated.
        raise Refusal(Reason.SETTING_INVALID, f"{variable} is no address such as http://127.0.0.1:4318")
    if (protocol := setting(environ, signal, "PROTOCOL") or _PROTOCOL) != _PROTOCOL:
        raise Refusal(
            Reason.SETTING_INVALID, f"the OTLP protocol for {signal} is {protocol!r}, Anima speaks {_PROTOCOL}"
        )
    return address


def setting(environ: Mapping[str, str], signal: Signal, name: str) -> str | None:
    """Return ``OTEL_EXPORTER_OTLP_<NAME>``, or the signal's own variable, which counts first."""
    own = environ.get(f"OTEL_EXPORTER_OTLP_{signal.upper()}_{name}")
    return own or environ.get(f"OTEL_EXPORTER_OTLP_{name}") or None


def timeout(environ: Mapping[str, str], signal: Signal) -> float | None:
    """Return the seconds for one export; none if a variable says it, which the exporter reads itself."""
    return None if setting(environ, signal, "TIMEOUT") else DEFAULT_TIMEOUT


def _named(environ: Mapping[str, str], signal: Signal) -> tuple[str, str | None]:
    own = f"OTEL_EXPORTER_OTLP_{signal.upper()}_ENDPOINT"
    if environ.get(own):
        return own, environ[own]
    base = environ.get(ENDPOINT)
    return ENDPOINT, f"{base.removesuffix('/')}/v1/{signal}" if base else None


def _switched_off(environ: Mapping[str, str], signal: Signal) -> bool:
    disabled = environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    return disabled or environ.get(f"OTEL_{signal.upper()}_EXPORTER", "").strip().lower() == "none"
