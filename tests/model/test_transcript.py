"""What a model is given of a Session: within a budget, and such that every provider accepts it."""

import json
import re
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from anima.model.agent import ModelSettings
from anima.model.digests import digest_bytes
from anima.model.reasons import Reason
from anima.model.session import MAX_CONTENT_BYTES, Message, Role, SessionRecord, ToolCall
from anima.model.transcript import (
    DEFAULT_BUDGET,
    LOCAL_BUDGET,
    MAX_BUDGET,
    MIN_BUDGET,
    Tail,
    Transcript,
    budget_of,
    storable,
)
from anima.model.turns import EMPTY_RESULT, MESSAGE_BYTES, NO_RESULT

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
NOTE = re.compile(r"\[Messages left out of this conversation: (\d+)\]\n\n")

IDS = st.sampled_from(["call_1", "call_2", "ö", "x" * 200, "a b"])
NAMES = st.sampled_from(["search", "files/write", "näme" * 60])
WORDS = st.text(max_size=40) | st.text(st.characters(codec="utf-8"), max_size=400) | st.sampled_from(["", " \n", "\0"])
LONG = st.builds(lambda piece, times: piece * times, st.sampled_from(["a", "ä", "🎭 "]), st.integers(1, 3000))
CALLS = st.builds(ToolCall, id=IDS, name=NAMES, arguments=WORDS | LONG)
MESSAGES = st.one_of(
    st.builds(Message, role=st.just(Role.USER), content=WORDS | LONG),
    st.builds(Message, role=st.just(Role.ASSISTANT), content=WORDS | LONG, tool_calls=st.lists(CALLS, max_size=3)),
    st.builds(Message, role=st.just(Role.TOOL), content=WORDS | LONG, tool_call_id=IDS),
)
FAILURES = st.builds(Message, role=st.just(Role.ASSISTANT), content=st.just("it failed"))
SESSIONS = st.lists(MESSAGES | FAILURES, max_size=30)
BUDGETS = st.integers(MIN_BUDGET, 20_000)


def records(messages: Iterable[Message]) -> list[SessionRecord]:
    return [
        SessionRecord(
            **dict(storable(message)),
            sequence=number,
            created_at=NOW,
            reason=Reason.PROVIDER_FAILED if message.content == "it failed" else None,
        )
        for number, message in enumerate(messages, 1)
    ]


def compose(given: Sequence[SessionRecord], budget: int = DEFAULT_BUDGET, total: int | None = None) -> Transcript:
    tail = Tail(budget)
    for record in reversed(given):
        tail.add(record)
    return tail.transcript(len(given) if total is None else total)


def said(role: str, content: str = "", *calls: ToolCall, answers: str | None = None) -> Message:
    return Message(role=Role(role), content=content, tool_calls=list(calls), tool_call_id=answers)


def call(name: str, number: str = "1", arguments: str = "{}") -> ToolCall:
    return ToolCall(id=number, name=name, arguments=arguments)


def pairs(transcript: Transcript) -> list[tuple[str, str]]:
    return [(message.role.value, message.content) for message in transcript.messages]


def counted(transcript: Transcript) -> int:
    """Content, names and arguments, and so much for each message and call."""
    calls = [call for message in transcript.messages for call in message.tool_calls]
    texts = [message.content for message in transcript.messages]
    texts += [text for call in calls for text in (call.name, call.arguments)]
    return sum(len(text.encode()) for text in texts) + MESSAGE_BYTES * (len(transcript.messages) + len(calls))


def assert_acceptable(transcript: Transcript) -> None:
    """All that OpenAI, Anthropic and those that speak like them check of a history."""
    open_calls: list[str] = []
    seen: set[str] = set()
    for message in transcript.messages:
        if message.role is Role.TOOL:
            assert message.content.strip()
            assert message.tool_call_id in open_calls, "a result answers a call of the message before"
            open_calls.remove(message.tool_call_id or "")
            continue
        assert not open_calls, "all calls are answered before anything else is said"
        assert message.content.strip() or message.tool_calls
        assert message.role is Role.ASSISTANT or not message.tool_calls
        open_calls = [call.id for call in message.tool_calls]
        assert not seen & {*open_calls}
        assert len(open_calls) == len({*open_calls})
        seen |= {*open_calls}
        for asked in message.tool_calls:
            assert re.fullmatch(r"[a-zA-Z0-9_-]{1,40}", asked.id)
            assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", asked.name)
            assert isinstance(json.loads(asked.arguments), dict)
    assert not open_calls
    assert not transcript.messages or transcript.messages[0].role is Role.USER


@given(SESSIONS, BUDGETS)
def test_any_session_is_acceptable_and_within_the_budget(messages: list[Message], budget: int) -> None:
    transcript = compose(records(messages), budget)
    assert_acceptable(transcript)
    assert counted(transcript) <= budget
    assert Transcript.model_validate_json(json.dumps(transcript.to_json())) == transcript


@given(SESSIONS, BUDGETS)
def test_the_newest_user_message_is_always_there(messages: list[Message], budget: int) -> None:
    given = records(messages)
    transcript = compose(given, budget)
    newest = [record for record in given if record.role is Role.USER and record.content.strip()]
    kept = [message for message in transcript.messages if message.role is Role.USER]
    assert bool(kept) == bool(newest)
    if kept:
        content = NOTE.sub("", kept[-1].content, count=len(kept) == 1)
        whole = newest[-1].content
        assert content == whole or digest_bytes(whole.encode()) in content


@given(SESSIONS, BUDGETS)
def test_the_order_is_kept_and_nothing_is_missing_in_between(messages: list[Message], budget: int) -> None:
    given = records(messages)
    transcript = compose(given, budget)
    words = [record.content for record in given if record.role is Role.USER and record.content.strip()]
    kept = [message.content for message in transcript.messages if message.role is Role.USER]
    # The first one bears the note, and alone it may be shortened.
    assert kept[1:] == words[len(words) - len(kept) :][1:]


@given(SESSIONS, BUDGETS)
def test_what_is_left_out_is_counted_and_said(messages: list[Message], budget: int) -> None:
    transcript = compose(records(messages), budget)
    notes = [NOTE.match(message.content) for message in transcript.messages]
    if transcript.messages and transcript.left_out_messages:
        assert notes[0]
        assert int(notes[0][1]) == transcript.left_out_messages
    else:
        assert not any(notes)


@given(SESSIONS, BUDGETS, st.integers(0, 10**6))
def test_the_digest_depends_on_the_records_and_the_budget_only(
    messages: list[Message], budget: int, older: int
) -> None:
    """Reading further back than to where it is full changes nothing."""
    given = records(messages)
    tail = Tail(budget)
    for record in reversed(given):
        if tail.full:
            break
        tail.add(record)
    total = len(given) + older
    assert tail.transcript(total).digest == compose(given, budget, total).digest


def test_a_small_session_is_given_whole() -> None:
    given = records([said("user", "Ahoy"), said("assistant", " Ahoy\r\n"), said("user", "Which tide?")])
    transcript = compose(given)
    assert pairs(transcript) == [("user", "Ahoy"), ("assistant", " Ahoy\r\n"), ("user", "Which tide?")]
    assert transcript.left_out_messages == 0


def test_an_empty_session_gives_nothing() -> None:
    assert compose([]) == Transcript(messages=[])


def test_of_a_failed_turn_only_the_user_message_is_given() -> None:
    given = records([said("user", "One"), said("assistant", "it failed"), said("user", "Two"), said("assistant", "2")])
    transcript = compose(given)
    assert pairs(transcript) == [("user", "One"), ("user", "Two"), ("assistant", "2")]
    assert transcript.left_out_messages == 0


def test_a_crash_between_a_call_and_its_result_gives_the_call_a_result() -> None:
    given = records([said("user", "Look"), said("assistant", "", call("search")), said("user", "And?")])
    transcript = compose(given)
    assert pairs(transcript) == [("user", "Look"), ("assistant", ""), ("tool", NO_RESULT), ("user", "And?")]
    assert_acceptable(transcript)


def test_of_parallel_calls_those_without_a_result_get_one_in_their_place() -> None:
    calls = [call("first", "1"), call("second", "2"), call("third", "3")]
    given = records(
        [
            said("user", "Look"),
            said("assistant", "I do", *calls),
            said("tool", "three", answers="3"),
            said("tool", "one", answers="1"),
        ]
    )
    asked = compose(given).messages[1]
    assert [(asked.tool_calls[place].name, asked.tool_calls[place].id) for place in range(3)] == [
        ("first", "call_2_0"),
        ("second", "call_2_1"),
        ("third", "call_2_2"),
    ]
    assert pairs(compose(given))[2:] == [("tool", "one"), ("tool", NO_RESULT), ("tool", "three")]


def test_ids_that_repeat_are_made_unique_and_keep_their_results() -> None:
    given = records(
        [
            said("user", "Look"),
            said("assistant", "", call("search", "same"), call("read", "same")),
            said("tool", "found", answers="same"),
            said("tool", "read it", answers="same"),
            said("assistant", "", call("search", "same")),
            said("tool", "found again", answers="same"),
        ]
    )
    transcript = compose(given)
    assert [content for role, content in pairs(transcript) if role == "tool"] == ["found", "read it", "found again"]
    assert_acceptable(transcript)


@pytest.mark.parametrize(
    "stray",
    [
        [said("tool", "result", answers="1")],
        [said("assistant", "Hm", call("search")), said("assistant", "so"), said("tool", "too late", answers="1")],
        [said("assistant", "Hm", call("search")), said("tool", "of another", answers="2")],
        [said("assistant", "Hm", call("search")), said("user", "stop"), said("tool", "too late", answers="1")],
    ],
)
def test_a_result_without_its_call_right_before_is_left_away(stray: list[Message]) -> None:
    transcript = compose(records([said("user", "Look"), *stray]))
    assert {content for role, content in pairs(transcript) if role == "tool"} <= {NO_RESULT}
    assert_acceptable(transcript)


def test_messages_without_a_word_are_left_away_and_an_empty_result_is_named() -> None:
    given = records(
        [
            said("user", "Look"),
            said("user", " \n"),
            said("assistant", "\t"),
            said("assistant", " ", call("search")),
            said("tool", "", answers="1"),
        ]
    )
    assert pairs(compose(given)) == [("user", "Look"), ("assistant", ""), ("tool", EMPTY_RESULT)]


def test_what_comes_before_the_first_user_message_is_left_out() -> None:
    given = records([said("assistant", "Welcome aboard"), said("user", "Ahoy")])
    transcript = compose(given)
    assert pairs(transcript) == [("user", "[Messages left out of this conversation: 1]\n\nAhoy")]
    assert transcript.left_out_messages == 1


def test_a_session_without_a_user_message_gives_nothing_and_counts_it() -> None:
    assert compose(records([said("assistant", "Welcome aboard")])) == Transcript(messages=[], left_out_messages=1)


def turn(number: int, size: int = 300) -> list[Message]:
    return [said("user", f"question {number} " + "?" * size), said("assistant", f"answer {number} " + "!" * size)]


def test_whole_turns_are_left_out_from_the_oldest_on() -> None:
    given = records([message for number in range(10) for message in turn(number)])
    transcript = compose(given, 2048)
    assert [content.split("question ")[-1][:8] for _, content in pairs(transcript)] == [
        "8 ??????",
        "answer 8",
        "9 ??????",
        "answer 9",
    ]
    assert transcript.left_out_messages == 16
    assert transcript.messages[0].content.startswith("[Messages left out of this conversation: 16]\n\nquestion 8")


def test_a_turn_that_does_not_fit_leaves_out_all_before_it_too() -> None:
    given = records([*turn(0, 10), *turn(1, 5000), *turn(2, 10)])
    assert compose(given, 2048).left_out_messages == 4


def test_what_was_never_read_counts_as_left_out() -> None:
    given = records(turn(7))
    assert compose(given, total=100_002).left_out_messages == 100_000


def test_a_user_message_over_the_budget_loses_its_middle() -> None:
    whole = "begin " + "x" * 100_000 + " end"
    transcript = compose(records([*turn(0), said("user", whole)]), MIN_BUDGET)
    (message,) = transcript.messages
    content = NOTE.sub("", message.content)
    assert (content[:6], content[-4:]) == ("begin ", " end")
    assert f"of {len(whole)} bytes are left out here" in content
    assert MIN_BUDGET - 128 < counted(transcript) <= MIN_BUDGET


def test_of_a_turn_over_the_budget_the_longest_texts_are_shortened_first() -> None:
    given = records(
        [
            said("user", "Read it"),
            said("assistant", "I do", call("read", arguments=json.dumps({"path": "x" * 5000}))),
            said("tool", "r" * MAX_CONTENT_BYTES, answers="1"),
            said("assistant", "It says r"),
        ]
    )
    transcript = compose(given, 4096)
    assert [content for role, content in pairs(transcript) if role != "tool"] == ["Read it", "I do", "It says r"]
    assert "leftOutBytes" in transcript.messages[1].tool_calls[0].arguments
    assert f"of {MAX_CONTENT_BYTES} bytes are left out here" in transcript.messages[2].content
    assert transcript.left_out_messages == 0
    assert_acceptable(transcript)


def test_of_a_turn_of_too_many_steps_the_user_message_and_the_newest_are_kept() -> None:
    steps = [
        message
        for number in range(500)
        for message in (
            said("assistant", f"step {number}", call("look")),
            said("tool", f"seen {number} " + "." * 200, answers="1"),
        )
    ]
    transcript = compose(records([said("user", "Go"), *steps]), 2048)
    assert (
        transcript.messages[0].content
        == f"[Messages left out of this conversation: {transcript.left_out_messages}]\n\nGo"
    )
    assert transcript.messages[-1].content.startswith("seen 499")
    assert transcript.left_out_messages == 1001 - len(transcript.messages)
    assert_acceptable(transcript)


def test_the_budget_is_exact() -> None:
    given = records([said("user", "x" * 1000), said("assistant", "y" * 1000), said("user", "z" * 500)])
    exact = 2500 + 3 * MESSAGE_BYTES + 128
    assert compose(given, exact).left_out_messages == 0
    assert compose(given, exact - 1).left_out_messages == 2


@pytest.mark.parametrize(
    "change",
    [
        lambda transcript: {"messages": transcript.messages[:-1]},
        lambda transcript: {"messages": transcript.messages[::-1]},
        lambda transcript: {"left_out_messages": 1},
    ],
)
def test_another_transcript_has_another_digest(change: Callable[[Transcript], dict[str, object]]) -> None:
    transcript = compose(records([said("user", "Ahoy"), said("assistant", "Ahoy")]))
    assert transcript.model_copy(update=change(transcript)).digest != transcript.digest


def test_the_digest_is_a_contract_with_running_attempts() -> None:
    transcript = compose(records([said("user", "Look"), said("assistant", "", call("search"))]))
    assert transcript.digest == "sha256:97daa3549faf1410c6ea6415b597e6a7ea37c58829e5a6ff367e83cb6601b057"


@pytest.mark.parametrize("size", [MIN_BUDGET, MAX_BUDGET, None])
def test_an_agent_may_name_a_budget_within_the_limits(size: int | None) -> None:
    settings = ModelSettings.model_validate({} if size is None else {"transcriptBytes": size})
    assert settings.transcript_bytes == size


@pytest.mark.parametrize("size", [MIN_BUDGET - 1, MAX_BUDGET + 1, 2048.0, "2048"])
def test_a_budget_beyond_the_limits_is_refused(size: object) -> None:
    with pytest.raises(ValidationError, match="transcriptBytes"):
        ModelSettings.model_validate({"transcriptBytes": size})


def test_the_budget_is_the_agent_s_or_the_provider_s() -> None:
    assert budget_of(5000, "local") == budget_of(5000, "anthropic") == 5000
    assert budget_of(None, "local") == LOCAL_BUDGET
    assert budget_of(None, "openai-compatible") == DEFAULT_BUDGET
    assert MIN_BUDGET < LOCAL_BUDGET < DEFAULT_BUDGET < MAX_BUDGET
