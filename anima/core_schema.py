"""The core schema of YAML 1.2 (section 10.3.2): what a plain scalar means."""

import re

_NULL = re.compile(r"~|null|Null|NULL|")
_BOOL = re.compile(r"true|True|TRUE|false|False|FALSE")
_INT = re.compile(r"[-+]?[0-9]+")
_BASED = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_SPECIAL = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_TOO_BIG = 2**64
"""Stands for any integer that is too long to be worth parsing; refused later."""


def resolve(text: str) -> bool | int | float | str | None:
    """Return the value of a plain scalar; what is nothing else is text."""
    if _NULL.fullmatch(text):
        return None
    if _BOOL.fullmatch(text):
        return text.lower() == "true"
    if _INT.fullmatch(text):
        return parse_integer(text)
    if _BASED.fullmatch(text):
        return int(text, 0) if len(text) <= 24 else _TOO_BIG
    if _FLOAT.fullmatch(text):
        return float(text)
    if _SPECIAL.fullmatch(text):
        return float(text.replace(".", "", 1))
    return text


def parse_integer(text: str) -> int:
    """Parse decimal digits, without the time that a million of them would take."""
    return int(text) if len(text) <= 20 else _TOO_BIG
