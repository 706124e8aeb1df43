"""Durations and quantities, written as Kubernetes writes them.

Both compare and serialise by value, so ``12m`` and ``12m0s`` are one duration
and have one digest.
"""

import re
from datetime import timedelta
from decimal import Decimal
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema

_UNITS = {
    "h": Decimal(3600),
    "m": Decimal(60),
    "s": Decimal(1),
    "ms": Decimal("0.001"),
}
_PART = r"([0-9]+(?:\.[0-9]+)?)(ms|h|m|s)"
_DURATION = re.compile(f"(?:{_PART})+")
_MAX_DURATION = timedelta(days=3650)


def parse_duration(text: Any) -> timedelta:
    """Parse ``1h30m``, ``12m0s`` or ``250ms``; refuse bare numbers.

    Raises:
        ValueError: with the fault and the remedy as its two arguments.
    """
    if isinstance(text, timedelta):
        return _bounded(text)
    if not isinstance(text, str) or len(text) > 32 or not _DURATION.fullmatch(text):
        raise ValueError("must be a duration with units", 'write "90s", "12m" or "1h30m"')
    seconds = sum((Decimal(n) * _UNITS[unit] for n, unit in re.findall(_PART, text)), Decimal(0))
    if seconds > Decimal(_MAX_DURATION.total_seconds()):
        raise ValueError("must be at most ten years", "write a shorter duration")
    return timedelta(microseconds=int(seconds * 1_000_000))


def _bounded(value: timedelta) -> timedelta:
    if not timedelta(0) <= value <= _MAX_DURATION:
        raise ValueError("must be from zero to ten years", "choose another duration")
    return value


def format_duration(value: timedelta) -> str:
    """Write a duration in its one normal form: ``1h30m0s``, ``12m0s``, ``0.25s``."""
    micros = value // timedelta(microseconds=1)
    minutes, micros = divmod(micros, 60_000_000)
    hours, minutes = divmod(minutes, 60)
    seconds = f"{Decimal(micros) / 1_000_000:f}"
    head = f"{hours}h{minutes}m" if hours else f"{minutes}m" if minutes else ""
    return f"{head}{seconds}s"


def _positive(value: timedelta) -> timedelta:
    if value <= timedelta(0):
        raise ValueError("must be longer than zero", "leave the field out for no limit")
    return value


Duration = Annotated[
    timedelta,
    BeforeValidator(parse_duration),
    PlainSerializer(format_duration, return_type=str),
    WithJsonSchema({"type": "string", "pattern": r"^([0-9]+(\.[0-9]+)?(ms|h|m|s))+$", "maxLength": 32}),
]
"""A span of time of zero or more."""

PositiveDuration = Annotated[
    timedelta,
    BeforeValidator(lambda value: _positive(parse_duration(value))),
    PlainSerializer(format_duration, return_type=str),
    WithJsonSchema({"type": "string", "pattern": r"^([0-9]+(\.[0-9]+)?(ms|h|m|s))+$", "maxLength": 32}),
]
"""A span of time longer than zero."""

_SUFFIXES = {
    "m": Decimal("0.001"),
    "": Decimal(1),
    "k": Decimal(10) ** 3,
    "M": Decimal(10) ** 6,
    "G": Decimal(10) ** 9,
    "T": Decimal(10) ** 12,
    "Ki": Decimal(2) ** 10,
    "Mi": Decimal(2) ** 20,
    "Gi": Decimal(2) ** 30,
    "Ti": Decimal(2) ** 40,
}
_QUANTITY = re.compile(r"([0-9]+(?:\.[0-9]+)?)(m|k|M|G|T|Ki|Mi|Gi|Ti)?")
_MAX_QUANTITY = Decimal(2**53 - 1)
_FINEST = Decimal("1e-9")


def parse_quantity(value: Any) -> Decimal:
    """Parse ``500m``, ``2``, ``1.5Gi``; cpu in cores, memory in bytes.

    Raises:
        ValueError: with the fault and the remedy as its two arguments.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        value = Decimal(value)
    if isinstance(value, Decimal):
        return _representable(value)
    match = _QUANTITY.fullmatch(value) if isinstance(value, str) and len(value) <= 32 else None
    if not match:
        raise ValueError("must be a quantity", 'write "500m", "2" or "1.5Gi"')
    return _representable(Decimal(match[1]) * _SUFFIXES[match[2] or ""])


def _representable(amount: Decimal) -> Decimal:
    if not amount.is_finite() or amount < 0:
        raise ValueError("must be a quantity of zero or more", 'write "500m", "2" or "1.5Gi"')
    if amount > _MAX_QUANTITY:
        raise ValueError("must be at most 2^53-1", "write a smaller quantity")
    if amount != amount.quantize(_FINEST):
        raise ValueError("must have at most nine decimal places", "write a rounder quantity")
    return amount


def format_quantity(value: Decimal) -> str:
    """Write a quantity in its one normal form, without suffix or exponent."""
    whole = value == value.to_integral_value()
    return f"{value.quantize(Decimal(1)) if whole else value.normalize():f}"


Quantity = Annotated[
    Decimal,
    BeforeValidator(parse_quantity),
    PlainSerializer(format_quantity, return_type=str),
    WithJsonSchema({"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)?(m|k|M|G|T|Ki|Mi|Gi|Ti)?$", "maxLength": 32}),
]
"""An amount of a resource of zero or more."""
