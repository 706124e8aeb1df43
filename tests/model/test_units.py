"""Durations and quantities: one value, one normal form, and what is refused."""

import re
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from typing import Any, TypeVar

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from anima.model.units import (
    Duration,
    PositiveDuration,
    Quantity,
    format_duration,
    format_quantity,
    parse_duration,
    parse_quantity,
)

TEN_YEARS = timedelta(days=3650)
LARGEST = Decimal(2**53 - 1)
durations: TypeAdapter[timedelta] = TypeAdapter(Duration)
positive_durations: TypeAdapter[timedelta] = TypeAdapter(PositiveDuration)
quantities: TypeAdapter[Decimal] = TypeAdapter(Quantity)
Value = TypeVar("Value")


def parsed_unless(parse: Callable[[str], Value], text: str, *faults: str) -> Value | None:
    try:
        return parse(text)
    except ValueError as error:
        if error.args[0] not in faults:
            raise
    return None


@pytest.mark.parametrize(
    ("text", "seconds", "normal"),
    [
        ("12m", 720, "12m0s"),
        ("12m0s", 720, "12m0s"),
        ("720s", 720, "12m0s"),
        ("0s", 0, "0s"),
        ("0h0m", 0, "0s"),
        ("250ms", 0.25, "0.25s"),
        ("1h30m", 5400, "1h30m0s"),
        ("1.5h", 5400, "1h30m0s"),
        ("1s1m1h", 3661, "1h1m1s"),
        ("90m", 5400, "1h30m0s"),
        ("0.000001s", 0.000001, "0.000001s"),
        ("87600h", 87600 * 3600, "87600h0m0s"),
    ],
)
def test_a_duration_has_one_normal_form(text: str, seconds: float, normal: str):
    value = parse_duration(text)
    assert value == timedelta(seconds=seconds)
    assert format_duration(value) == normal


@given(st.timedeltas(timedelta(0), TEN_YEARS))
@example(TEN_YEARS)
@example(TEN_YEARS - timedelta(microseconds=1))
def test_every_duration_survives_its_normal_form(value: timedelta):
    text = format_duration(value)
    assert parse_duration(text) == value
    assert format_duration(parse_duration(text)) == text
    assert durations.validate_json(durations.dump_json(value)) == value


@given(st.from_regex(re.compile(durations.json_schema()["pattern"], re.ASCII), fullmatch=True))
def test_what_the_schema_allows_is_a_duration_unless_it_is_too_long(text: str):
    assume(len(text) <= 32)
    value = parsed_unless(parse_duration, text, "must be at most ten years")
    assert value is None or parse_duration(format_duration(value)) == value


@pytest.mark.parametrize(
    "source",
    [
        5,
        5.0,
        0,
        True,
        None,
        [],
        b"5s",
        "",
        "5",
        "0",
        "-5s",
        "+5s",
        "5 s",
        " 5s",
        "5s\n",
        "5S",
        "1d",
        "1h30",
        "1e3s",
        ".5s",
        "5.s",
        "1_0s",
        "P1D",
        "inf",
        "nans",
        "\uff11\uff12m",
        "\u0661\u0662m",
        "1µs",
        "9" * 31 + "h",
        "9" * 5000 + "h",
        "0" * 32 + "s",
        "87600h0m0.000001s",
        timedelta(microseconds=-1),
        TEN_YEARS + timedelta(microseconds=1),
        timedelta.max,
    ],
)
def test_anything_else_is_no_duration(source: Any):
    with pytest.raises(ValueError, match=r".+") as caught:
        parse_duration(source)
    fault, remedy = caught.value.args
    assert fault.startswith("must be")
    assert remedy


@pytest.mark.parametrize("zero", ["0s", "0h0m0s", "0.0ms", "0.0001ms", timedelta(0)])
def test_a_limit_of_no_time_is_refused(zero: Any):
    assert durations.validate_python(zero) == timedelta(0)
    with pytest.raises(ValidationError, match="longer than zero"):
        positive_durations.validate_python(zero)


@pytest.mark.parametrize(
    ("source", "value", "normal"),
    [
        ("1Gi", 1024**3, "1073741824"),
        ("1073741824", 1024**3, "1073741824"),
        (1073741824, 1024**3, "1073741824"),
        ("1.5Gi", 3 * 1024**3 // 2, "1610612736"),
        ("1Ki", 1024, "1024"),
        ("1Mi", 1024**2, "1048576"),
        ("1Ti", 1024**4, "1099511627776"),
        ("2k", 2000, "2000"),
        ("2M", 2 * 10**6, "2000000"),
        ("2G", 2 * 10**9, "2000000000"),
        ("2T", 2 * 10**12, "2000000000000"),
        ("500m", Decimal("0.5"), "0.5"),
        ("0.500", Decimal("0.5"), "0.5"),
        ("1000m", 1, "1"),
        ("0", 0, "0"),
        ("0.000000001", Decimal("1e-9"), "0.000000001"),
        ("9007199254740991", LARGEST, "9007199254740991"),
        (Decimal("1E+3"), 1000, "1000"),
    ],
)
def test_a_quantity_has_one_normal_form(source: Any, value: Any, normal: str):
    parsed = parse_quantity(source)
    assert parsed == value
    assert format_quantity(parsed) == normal


@given(st.decimals(0, LARGEST, places=9))
@example(LARGEST)
@example(LARGEST - Decimal("1e-9"))
def test_every_quantity_survives_its_normal_form(value: Decimal):
    text = format_quantity(parse_quantity(value))
    assert parse_quantity(text) == value
    assert format_quantity(parse_quantity(text)) == text
    assert quantities.validate_json(quantities.dump_json(value)) == value


@given(st.from_regex(re.compile(quantities.json_schema()["pattern"], re.ASCII), fullmatch=True))
@example("0.1234567890123456789012345678m")
def test_what_the_schema_allows_is_a_quantity_unless_it_is_too_long(text: str):
    assume(len(text) <= 32)
    faults = ("must be at most 2^53-1", "must have at most nine decimal places")
    value = parsed_unless(parse_quantity, text, *faults)
    assert value is None or parse_quantity(format_quantity(value)) == value


@pytest.mark.parametrize(
    "source",
    [
        -1,
        0.5,
        1.0,
        True,
        None,
        [],
        b"1",
        "",
        "-1",
        "+1",
        "1 Gi",
        "1gi",
        "1Gb",
        "1K",
        "1e3",
        "1E3",
        ".5",
        "5.",
        "1_000",
        "1,5",
        "1\n",
        "0x10",
        "inf",
        "NaN",
        "\uff11\uff12",
        "9007199254740992",
        "8192Ti",
        2**53,
        pytest.param(10**5000, id="10**5000"),
        "9" * 5000,
        "0" * 33,
        "0.1m1",
        "0.0000000001",
        "0.1234567890123456789012345678m",
        Decimal(-1),
        Decimal("NaN"),
        Decimal("sNaN"),
        Decimal("Infinity"),
        Decimal("1e-10"),
        Decimal("1e1000"),
    ],
)
def test_anything_else_is_no_quantity(source: Any):
    with pytest.raises(ValueError, match=r".+") as caught:
        parse_quantity(source)
    fault, remedy = caught.value.args
    assert fault.startswith("must")
    assert remedy


def test_the_fault_does_not_quote_the_value():
    for parse in (parse_duration, parse_quantity):
        with pytest.raises(ValueError, match=r".+") as caught:
            parse("Vesper")
        assert "Vesper" not in repr(caught.value)
