"""A soul: which text is one, its digest, and how it stays out of sight."""

import copy
import hashlib
import json
import logging
import pickle
import pprint
import shutil
import subprocess
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.console import Console
from rich.pretty import pretty_repr
from rich.traceback import Traceback

from anima.model.agent import AgentSpec, SoulSource
from anima.model.composition import compose
from anima.model.digests import digest_bytes
from anima.model.errors import Refusal
from anima.model.persona import (
    MAX_SOUL_BYTES,
    PersonaText,
    SensitiveText,
    check_expected,
    persona_from_bytes,
    persona_from_text,
)
from anima.model.reasons import Reason
from anima.model.resources import ConfigMap

MARKER = "You are Vesper, a heron who never hurries."
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))


def refusal_of(source: str | bytes) -> Refusal:
    parse: Callable[[Any, str], PersonaText] = persona_from_bytes if isinstance(source, bytes) else persona_from_text
    with pytest.raises(Refusal) as caught:
        parse(source, "the soul")
    return caught.value


@pytest.mark.parametrize("filler", ["x", "é", "€", "🦊"])
def test_a_soul_of_8192_bytes_passes_and_one_byte_more_is_refused(filler: str):
    count, rest = divmod(8192, len(filler.encode()))
    text = filler * count + "x" * rest
    assert len(persona_from_text(text, "the soul").encode()) == 8192 == MAX_SOUL_BYTES
    refusal = refusal_of(text + "x")
    assert refusal.reason is Reason.SOUL_TOO_LARGE
    assert "8193 bytes" in refusal.message
    assert "8192" in refusal.message


@pytest.mark.parametrize(("ascii_bytes", "fits"), [(8189, True), (8190, False), (8191, False), (8192, False)])
def test_a_character_that_straddles_the_limit_is_refused_and_never_cut(ascii_bytes: int, fits: bool):
    text = "x" * ascii_bytes + "€"
    if fits:
        assert persona_from_bytes(text.encode(), "the soul").reveal() == text
    else:
        assert refusal_of(text.encode()).reason is Reason.SOUL_TOO_LARGE


@pytest.mark.parametrize("blank", ["", " ", "\n", " \r\n\t\v\f", "\u00a0\u2003\u3000", "\ufeff", "\ufeff \r\n"])
def test_a_blank_soul_is_refused(blank: str):
    for source in (blank, blank.encode()):
        refusal = refusal_of(source)
        assert refusal.reason is Reason.SOUL_SOURCE_INVALID
        assert "blank" in refusal.message


@pytest.mark.parametrize("text", ["\0", "\0x", "a\0b", "a\0"])
def test_a_nul_byte_is_refused(text: str):
    for source in (text, text.encode()):
        refusal = refusal_of(source)
        assert refusal.reason is Reason.SOUL_SOURCE_INVALID
        assert "NUL" in refusal.message


@pytest.mark.parametrize(
    ("data", "offset"),
    [
        (b"\xff", 0),
        (b"abc\x80", 3),
        ("é".encode() + b"\xc3", 2),
        ("Grüße".encode("latin-1"), 2),
        (b"ab\xed\xa0\x80", 2),
        (b"\xc0\xaf", 0),
    ],
)
def test_bytes_that_are_not_utf8_are_refused_with_their_offset(data: bytes, offset: int):
    refusal = refusal_of(data)
    assert refusal.reason is Reason.SOUL_SOURCE_INVALID
    assert f"byte {offset}" in refusal.message


@pytest.mark.parametrize("text", ["\ud800", "a\udfffb", "\udc80" * 10_000])
def test_a_lone_surrogate_is_refused(text: str):
    refusal = refusal_of(text)
    assert refusal.reason is Reason.SOUL_SOURCE_INVALID
    assert "lone surrogate" in refusal.message


@given(texts)
@example("\ufeffYou are.")
@example("a\r\nb\rc\n")
@example("\n\n  leading and trailing \n\n")
@example("no last newline")
@example("e\u0301 is not \u00e9")
def test_a_soul_keeps_its_bytes_and_has_the_digest_of_its_file(body: str):
    text = body + "."
    data = text.encode()
    persona = persona_from_bytes(data, "the soul")
    assert persona.encode() == data
    assert persona.reveal() == text
    assert persona.digest == "sha256:" + hashlib.sha256(data).hexdigest()
    assert persona_from_text(text, "the soul") == persona


@pytest.mark.skipif(shutil.which("sha256sum") is None, reason="needs sha256sum")
@pytest.mark.parametrize("text", [MARKER, MARKER + "\n", "\ufeff" + MARKER + "\r\n"])
def test_sha256sum_of_the_file_gives_the_digest(tmp_path: Path, text: str):
    file = tmp_path / "SOUL.md"
    file.write_bytes(text.encode())
    printed = subprocess.run(["sha256sum", str(file)], capture_output=True, text=True, check=True).stdout
    assert persona_from_bytes(file.read_bytes(), "the soul").digest == f"sha256:{printed.split()[0]}"


def test_the_last_newline_counts():
    assert PersonaText("a").digest != PersonaText("a\n").digest


def test_text_of_another_digest_is_refused_with_both():
    persona = PersonaText(MARKER)
    check_expected(persona, None, "the soul")
    check_expected(persona, persona.digest, "the soul")
    wrong = digest_bytes(b"other")
    with pytest.raises(Refusal) as caught:
        check_expected(persona, wrong, "the soul")
    assert caught.value.reason is Reason.SOUL_DIGEST_MISMATCH
    assert persona.digest in caught.value.message
    assert wrong in caught.value.message


REFERENCE = {"name": "reviewer-soul", "key": "SOUL.md"}
DIGEST = digest_bytes(MARKER.encode())


@pytest.mark.parametrize(
    "source",
    [{"inline": MARKER}, {"inline": MARKER, "digest": DIGEST}, {"configMapRef": REFERENCE, "digest": DIGEST}],
)
def test_one_source_is_accepted(source: dict[str, Any]):
    assert SoulSource.model_validate(source).to_json() == source


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ({}, "exactly one source"),
        ({"digest": DIGEST}, "exactly one source"),
        ({"inline": MARKER, "configMapRef": REFERENCE, "digest": DIGEST}, "exactly one source"),
        ({"configMapRef": REFERENCE}, "needs a digest"),
        ({"inline": MARKER, "digest": DIGEST.upper()}, "lowercase"),
        ({"inline": MARKER, "digest": DIGEST.removeprefix("sha256:")}, "sha256:"),
        ({"inline": MARKER, "digest": DIGEST[:-1]}, "64"),
    ],
)
def test_no_source_two_sources_or_a_malformed_digest_are_refused(source: dict[str, Any], said: str):
    with pytest.raises(ValueError, match=said):
        SoulSource.model_validate(source)


def refuses(text: SensitiveText) -> str:
    raise RuntimeError(f"cannot use {text}")


def traceback_with_locals(text: SensitiveText) -> str:
    try:
        refuses(text)
    except RuntimeError as error:
        return "".join(traceback.TracebackException.from_exception(error, capture_locals=True).format())
    raise AssertionError


def rich_traceback_with_locals(text: SensitiveText) -> str:
    console = Console(width=200)
    try:
        refuses(text)
    except RuntimeError:
        with console.capture() as captured:
            console.print(Traceback(show_locals=True))
    return captured.get()


def logged(text: SensitiveText) -> str:
    record = logging.LogRecord("anima", logging.INFO, "file", 1, "soul %s %r", (text, text), None)
    return logging.Formatter("%(message)s %(args)s").format(record)


SHOWN: dict[str, Callable[[SensitiveText], str]] = {
    "str": str,
    "repr": repr,
    "ascii": ascii,
    "f-string": lambda text: f"{text} {text!r} {text!s} {text=}",
    "format": lambda text: "{} {!r}".format(text, text),  # noqa: UP032
    "percent": lambda text: "%s %r" % (text, text),  # noqa: UP031
    "containers": lambda text: f"{[text]} { {'soul': text} } {(text,)}",
    "pprint": pprint.pformat,
    "rich": pretty_repr,
    "logging": logged,
    "traceback": traceback_with_locals,
    "rich traceback": rich_traceback_with_locals,
    "exception": lambda text: repr(ValueError(text)) + str(ValueError(text)),
    "json of the repr": lambda text: json.dumps(repr(text)),
    "json by default=str": lambda text: json.dumps({"soul": text}, default=str),
    "Agent": lambda text: repr(spec := AgentSpec(soul=SoulSource(inline=PersonaText(text.reveal())))) + str(spec),
    "json of an Agent's repr": lambda text: json.dumps(
        repr(AgentSpec(soul=SoulSource(inline=PersonaText(text.reveal()))))
    ),
    "ConfigMap": lambda text: repr(
        ConfigMap.model_validate(
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"SOUL.md": text.reveal()}}
        )
    ),
    "composed prompt": lambda text: repr(compose(text.reveal(), PersonaText(text.reveal()))),
    "deep copy": lambda text: repr(copy.deepcopy({"soul": text})),
}


@pytest.mark.parametrize("way", SHOWN)
@pytest.mark.parametrize("kind", [SensitiveText, PersonaText])
def test_sensitive_text_is_shown_in_no_way_but_reveal(kind: type[SensitiveText], way: str):
    shown = SHOWN[way](kind(MARKER))
    assert shown
    assert "Vesper" not in shown
    assert kind(MARKER).reveal() == MARKER


@pytest.mark.parametrize("use", [len, iter, list, vars, lambda text: f"{text:>80}", lambda text: text + "", json.dumps])
def test_sensitive_text_cannot_be_used_as_if_it_were_text(use: Callable[[Any], Any]):
    with pytest.raises(TypeError) as caught:
        use(PersonaText(MARKER))
    assert "Vesper" not in str(caught.value)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_sensitive_text_is_not_pickled(protocol: int):
    with pytest.raises(TypeError, match="not pickled"):
        pickle.dumps({"soul": PersonaText(MARKER)}, protocol)


def test_a_copy_of_sensitive_text_is_the_same_text():
    text = PersonaText(MARKER)
    assert copy.copy(text) is text
    assert copy.deepcopy(text) is text
    spec = AgentSpec(soul=SoulSource(inline=text))
    assert spec.model_copy(deep=True) == spec


@pytest.mark.parametrize(
    "source", [MARKER + "\ud800", MARKER + "\0", MARKER * 300, MARKER.encode() + b"\xff"], ids=range(4)
)
def test_the_traceback_of_a_refusal_does_not_quote_the_soul(source: str | bytes):
    refusal = refusal_of(source)
    assert "Vesper" not in "".join(traceback.format_exception(refusal))
    assert "Vesper" not in repr(refusal)
    assert refusal.__cause__ is None
