"""The offline provider: deterministic, honest about itself, deaf to system text."""

import io
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anima.model.wire import JobVariable
from tests.doubles.attempt_gateway import AttemptGatewayDouble
from workers.ai.attempt import ExitCode, run_attempt
from workers.ai.environment import take_environment
from workers.ai.log import job_log
from workers.ai.rehearsal import rehearse


def test_it_says_plainly_that_no_model_was_asked() -> None:
    answer = "".join(rehearse("What is the tide?\nSecond line"))
    assert answer.startswith("This is a rehearsal: no model was asked.")
    assert '"What is the tide?"' in answer


@given(st.text())
def test_the_same_prompt_gives_the_same_short_answer(prompt: str) -> None:
    assert "".join(rehearse(prompt)) == "".join(rehearse(prompt))
    assert len("".join(rehearse(prompt))) < 700


async def test_an_attempt_streams_it_and_never_echoes_system_text() -> None:
    with AttemptGatewayDouble() as gateway:
        environment = gateway.job("You are Quillon.", "Which tide?", provider="rehearsal", model="rehearsal")
        log = io.StringIO()
        assert await run_attempt(take_environment(environment), job_log(log)) == ExitCode.ANSWERED
        assert gateway.report.answer == "".join(rehearse("Which tide?")) == gateway.streamed
        assert gateway.report.usage.requests == 0
        everything = log.getvalue() + gateway.streamed + gateway.report.model_dump_json()
        assert "Quillon" not in everything


async def test_it_still_refuses_a_prompt_that_is_not_the_bound_one() -> None:
    with AttemptGatewayDouble() as gateway:
        environment = gateway.job("role", "Which tide?", provider="rehearsal", model="rehearsal")
        environment[JobVariable.SYSTEM_PROMPT] = "another role"
        outcome = await run_attempt(take_environment(environment), job_log(io.StringIO()))
        assert outcome == ExitCode.REFUSED_TO_START


async def test_it_needs_no_model_library(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] in ("pydantic_ai", "openai", "anthropic")]:
        monkeypatch.delitem(sys.modules, name)
    with AttemptGatewayDouble() as gateway:
        environment = gateway.job("role", "Which tide?", provider="rehearsal", model="rehearsal")
        assert await run_attempt(take_environment(environment), job_log(io.StringIO())) == ExitCode.ANSWERED
    assert not {"pydantic_ai", "openai", "anthropic"} & {name.split(".")[0] for name in sys.modules}
