"""Tasks: the rules of a spec, the delay between attempts, and an attempt's key."""

import math
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import ValidationError

from anima.model.attempts import AttemptKey
from anima.model.base import MAX_INT
from anima.model.problems import Problem, problems_of
from anima.model.task import MAX_SPEC_BYTES, Phase, RetryPolicy, TaskSpec

PLAIN: dict[str, Any] = {"type": "ai", "agentRef": {"name": "heron"}}


def spec(**fields: Any) -> TaskSpec:
    return TaskSpec.model_validate(PLAIN | fields)


def problem(**fields: Any) -> Problem:
    with pytest.raises(ValidationError) as caught:
        spec(**fields)
    (found,) = problems_of(caught.value, TaskSpec)
    return found


@pytest.mark.parametrize(
    ("fields", "prompt"),
    [
        ({"prompt": "a"}, "a"),
        ({"ai": {"prompt": "b"}}, "b"),
        ({"prompt": "a", "ai": {"prompt": "b"}}, "b"),
        ({"prompt": " \ufeffa\r\n\0"}, " \ufeffa\r\n\0"),
        ({"prompt": "a", "type": "agent"}, "a"),
        ({"prompt": "x" * MAX_SPEC_BYTES}, "x" * MAX_SPEC_BYTES),
    ],
)
def test_the_prompt_of_the_ai_settings_wins_and_none_is_altered(fields: dict[str, Any], prompt: str):
    assert spec(**fields).user_prompt == prompt


@pytest.mark.parametrize(
    ("fields", "path", "said"),
    [
        ({}, "", "has no prompt"),
        ({"prompt": " \n"}, "", "has no prompt"),
        ({"prompt": "a", "ai": {"prompt": " "}}, "", "has no prompt"),
        ({"prompt": ""}, "prompt", "at least 1"),
        ({"prompt": "x" * (MAX_SPEC_BYTES + 1)}, "prompt", "at most"),
        ({"prompt": "a", "type": "agent", "ai": {"model": "small"}}, "", "takes no ai settings"),
        ({"prompt": "a", "timeout": "0s"}, "timeout", "longer than zero"),
        ({"prompt": "a", "deadline": "0s"}, "deadline", "longer than zero"),
        ({"prompt": "a", "env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]}, "env", "gives A twice"),
        ({"prompt": "a", "priority": 0}, "priority", "greater than or equal to 1"),
        ({"prompt": "a", "priority": 6}, "priority", "less than or equal to 5"),
        ({"prompt": "a", "priority": True}, "priority", "integer"),
        ({"prompt": "a", "suspend": "true"}, "suspend", "boolean"),
        ({"prompt": "a", "suspend": 1}, "suspend", "boolean"),
        ({"prompt": "a", "env": [{"name": "A", "value": ""}] * 129}, "env", "at most 128"),
        ({"prompt": "a", "retryPolicy": {"maxRetries": 1001}}, "retryPolicy.maxRetries", "1000"),
        ({"prompt": "a", "retryPolicy": {"backoffMultiplier": 0.9}}, "retryPolicy.backoffMultiplier", "1"),
        ({"prompt": "a", "retryPolicy": {"backoffMultiplier": 101}}, "retryPolicy.backoffMultiplier", "100"),
        ({"prompt": "a", "retryPolicy": {"backoffMultiplier": "2"}}, "retryPolicy.backoffMultiplier", "number"),
        ({"prompt": "a", "retryPolicy": {"backoffMultiplier": True}}, "retryPolicy.backoffMultiplier", "number"),
        ({"prompt": "a", "retryPolicy": {"backoffMultiplier": math.nan}}, "retryPolicy.backoffMultiplier", "100"),
        ({"prompt": "a", "retryPolicy": {"initialDelay": 10}}, "retryPolicy.initialDelay", "with units"),
    ],
)
def test_a_spec_that_cannot_be_run_is_refused_at_its_field(fields: dict[str, Any], path: str, said: str):
    found = problem(**fields)
    assert found.path == path
    assert said in found.message


@pytest.mark.parametrize("phase", Phase)
def test_three_phases_are_final(phase: Phase):
    assert phase.final == (phase in {"Succeeded", "Failed", "Cancelled"})


def seconds(policy: RetryPolicy, *attempts: int) -> list[float]:
    return [policy.delay_after(attempt).total_seconds() for attempt in attempts]


def test_the_delay_doubles_up_to_five_minutes_unless_told_otherwise():
    assert seconds(RetryPolicy(), 1, 2, 3, 4, 5, 6, 7, 1001) == [10, 20, 40, 80, 160, 300, 300, 300]


@pytest.mark.parametrize("multiplier", [1.1, 1.3, 1.5, 1.7, 3.3])
def test_a_broken_multiplier_gives_delays_to_the_microsecond(multiplier: float):
    policy = RetryPolicy(backoff_multiplier=multiplier, initial_delay=timedelta(seconds=10))
    assert seconds(policy, 1, 2) == [10, 10 * multiplier]


def test_a_small_multiplier_reaches_the_cap_in_the_end():
    policy = RetryPolicy(initial_delay=timedelta(seconds=1), backoff_multiplier=1.01)
    assert seconds(policy, 1001) == [300]
    assert 19 < policy.delay_after(301).total_seconds() < 20


def test_a_cap_below_the_first_delay_holds_from_the_start():
    assert seconds(RetryPolicy(max_delay=timedelta(seconds=3)), 1, 2) == [3, 3]


def test_no_delay_stays_none():
    policy = RetryPolicy(initial_delay=timedelta(0), backoff_multiplier=100)
    assert seconds(policy, 1, 2, 1001) == [0, 0, 0]


spans = st.timedeltas(timedelta(0), timedelta(days=3650))


@given(spans, spans, st.floats(1, 100), st.lists(st.integers(1, 1001), min_size=2))
@example(timedelta(days=3650), timedelta(days=3650), 100.0, [1, 1001])
@example(timedelta(microseconds=1), timedelta(days=3650), 1.0000000000000002, [1, 1001])
def test_the_delay_never_shrinks_and_never_passes_the_cap(
    initial: timedelta, cap: timedelta, multiplier: float, attempts: list[int]
):
    policy = RetryPolicy(initial_delay=initial, max_delay=cap, backoff_multiplier=multiplier)
    delays = [policy.delay_after(attempt) for attempt in sorted(attempts)]
    assert delays == sorted(delays)
    assert all(min(initial, cap) <= delay <= cap for delay in delays)


uids = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=128)


@given(uids, st.integers(0, MAX_INT), st.integers(1, MAX_INT))
@example("a/b/c", 0, 1)
def test_the_key_of_an_attempt_is_read_back_from_its_path(uid: str, iteration: int, attempt: int):
    key = AttemptKey(task_uid=uid, iteration=iteration, attempt=attempt)
    assert AttemptKey.parse(key.path) == key


@pytest.mark.parametrize("path", ["", "u", "u/0", "u/0/0", "u/-1/1", "u/x/1", "u/0/1.0", "/0/1", f"u/0/{2**53}"])
def test_what_is_not_the_path_of_an_attempt_is_refused(path: str):
    with pytest.raises(ValueError, match=r".+"):
        AttemptKey.parse(path)
