"""What is stored of a message, whatever a tool has put in it."""

import json
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from anima.model.digests import digest_bytes
from anima.model.excerpt import arguments_excerpt, clean, excerpt
from anima.model.session import MAX_CONTENT_BYTES, Message, Role, ToolCall
from anima.model.transcript import storable

ANY_CHARACTER = st.characters(exclude_categories=())
ANY_TEXT = st.text(ANY_CHARACTER)
ANY_NAME = st.text(ANY_CHARACTER, min_size=1, max_size=256)
JSON_TEXT = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | ANY_TEXT,
    lambda inner: st.lists(inner) | st.dictionaries(ANY_TEXT, inner),
).map(json.dumps)
CALLS = st.builds(ToolCall.model_construct, id=ANY_NAME, name=ANY_NAME, arguments=ANY_TEXT | JSON_TEXT)
MESSAGES = st.builds(
    Message.model_construct,
    role=st.sampled_from(Role),
    content=ANY_TEXT,
    tool_calls=st.lists(CALLS, max_size=3),
    tool_call_id=st.none() | ANY_NAME,
)


@given(MESSAGES)
@example(Message.model_construct(role=Role.TOOL, content="\ud800\0" * 700_000, tool_calls=[], tool_call_id="\udfff"))
def test_whatever_a_message_holds_it_is_stored_as_valid_unicode_and_read_back_the_same(message: Message) -> None:
    stored = storable(message)
    written = stored.model_dump_json(by_alias=True).encode()
    assert Message.model_validate_json(written) == stored
    assert b"\0" not in written
    assert "\0" not in stored.content
    assert len(stored.content.encode()) <= MAX_CONTENT_BYTES
    assert storable(stored) == stored


@given(st.text(st.characters(exclude_characters="\0", codec="utf-8")))
def test_what_is_fit_already_is_stored_byte_for_byte(text: str) -> None:
    assert storable(Message(role=Role.USER, content=text)).content == text


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ("a\0b", "a\ufffdb"),
        ("\ud800", "\ufffd"),
        ("a\udfff\ud800b", "a\ufffd\ufffdb"),
        ("\ud83d\ude00", "\U0001f600"),
        ("\ud83d\ud83d\ude00", "\ufffd\U0001f600"),
        ("\ufeffa", "\ufeffa"),
    ],
)
def test_what_no_database_takes_is_replaced_and_halves_are_joined(text: str, stored: str) -> None:
    assert clean(text) == stored


@given(st.text(st.characters(codec="utf-8"), max_size=2000), st.integers(0, 3000))
def test_an_excerpt_keeps_both_ends_and_says_what_is_missing(text: str, limit: int) -> None:
    shortened = excerpt(text, limit)
    data = text.encode()
    if len(data) <= limit:
        assert shortened == text
        return
    found = re.search(
        rf"\n\[(\d+) of {len(data)} bytes are left out here; the whole has the digest {digest_bytes(data)}\]\n",
        shortened,
    )
    assert found
    head, tail = shortened[: found.start()], shortened[found.end() :]
    assert (text.startswith(head), text.endswith(tail)) == (True, True)
    assert len(head.encode()) + len(tail.encode()) + int(found[1]) == len(data)
    assert len(shortened.encode()) <= max(limit, len(found[0]))


@pytest.mark.parametrize("piece", ["a", "ä", "漢", "🎭"])
def test_five_megabytes_are_stored_as_nearly_all_that_is_allowed(piece: str) -> None:
    whole = piece * (5_000_000 // len(piece.encode()))
    stored = storable(Message(role=Role.TOOL, content=whole, tool_call_id="call")).content
    assert MAX_CONTENT_BYTES - 16 < len(stored.encode()) <= MAX_CONTENT_BYTES
    assert (stored[0], stored[-1]) == (piece, piece)
    assert digest_bytes(whole.encode()) in stored


@pytest.mark.parametrize("size", [MAX_CONTENT_BYTES, MAX_CONTENT_BYTES + 1])
def test_the_limit_is_exact(size: int) -> None:
    stored = storable(Message(role=Role.TOOL, content="x" * size, tool_call_id="call")).content
    assert ("left out" in stored) == (size > MAX_CONTENT_BYTES)


@given(ANY_TEXT | JSON_TEXT, st.integers(0, 5000))
def test_arguments_are_always_an_object_that_strict_readers_take(arguments: str, limit: int) -> None:
    stored = arguments_excerpt(arguments, limit)
    value = json.loads(stored, parse_constant=lambda constant: pytest.fail(constant))
    assert isinstance(value, dict)
    json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    assert arguments_excerpt(stored, limit) == stored


@pytest.mark.parametrize(
    ("arguments", "stored"),
    [
        ('{"a" : 9007199254740993}', '{"a" : 9007199254740993}'),
        ("", "{}"),
        (r'{"a\u0000": "\ud800"}', '{"a\ufffd": "\ufffd"}'),
        ("[1]", '{"unreadable": "[1]"}'),
        ('{"a": 1', r'{"unreadable": "{\"a\": 1"}'),
        ('{"a": NaN}', r'{"unreadable": "{\"a\": NaN}"}'),
        ('{"a": 1e999}', r'{"unreadable": "{\"a\": 1e999}"}'),
        ('{"a":' * 80 + "1" + "}" * 80, json.dumps({"unreadable": '{"a":' * 80 + "1" + "}" * 80})),
    ],
)
def test_good_arguments_stay_and_bad_ones_are_kept_as_text(arguments: str, stored: str) -> None:
    assert arguments_excerpt(arguments, 10_000) == stored


def test_long_arguments_are_replaced_by_their_size_and_digest() -> None:
    arguments = json.dumps({"file": "x" * 5_000_000})
    calls = [ToolCall(id=f"call-{number}", name="write", arguments=arguments) for number in range(3)]
    stored = storable(Message(role=Role.ASSISTANT, tool_calls=calls)).tool_calls
    expected = {"leftOutBytes": len(arguments), "digest": digest_bytes(arguments.encode())}
    assert [json.loads(call.arguments) for call in stored] == [expected] * 3


def test_the_arguments_of_many_calls_are_bounded_together() -> None:
    arguments = json.dumps({"file": "x" * (MAX_CONTENT_BYTES // 2)})
    calls = [ToolCall(id=f"call-{number}", name="write", arguments=arguments) for number in range(8)]
    stored = storable(Message(role=Role.ASSISTANT, tool_calls=calls)).tool_calls
    assert sum(len(call.arguments) for call in stored) <= MAX_CONTENT_BYTES
