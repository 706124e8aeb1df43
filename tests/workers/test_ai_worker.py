"""The AI worker against a real gateway stand-in and a real model server, both on loopback."""

import io
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from anima.model.attempts import MAX_RESULT_BYTES, Report
from anima.model.reasons import Reason
from anima.model.wire import JobVariable
from anima.telemetry.traces import JOB_COLLECTOR
from tests.doubles import model_server as double
from tests.doubles.attempt_gateway import KEY, PROVIDER_KEY, TOKEN, AttemptGatewayDouble
from tests.doubles.collector import Collector
from tests.doubles.model_server import ANSWER, ModelServer
from workers.ai import responses
from workers.ai.attempt import ExitCode, Patience, run_attempt
from workers.ai.environment import take_environment
from workers.ai.log import job_log
from workers.ai.retries import Retries, RetryLimits

SOUL = "You are Quillon, the harbour master of Vess."
PROMPT = "Which tide is it, zephyr-marmalade?"
QUICK = Patience(
    input=RetryLimits(tries=20, total=10, first_delay=0.01, max_delay=0.02),
    report=RetryLimits(tries=20, total=10, first_delay=0.01, max_delay=0.02),
    provider=RetryLimits(tries=5, total=10, first_delay=0.01, max_delay=0.02),
    read_timeout=30,
    event_interval=0.01,
)
LITERAL_TEXTS = [
    "line\r\nline\r\n",
    "\ufeffwith a mark",
    "$HOME $$ $(HOME) ${HOME} %s",
    "{{x}} {% y %} {z} @file",
    "  blanks around\t\n\n",
    " \n",
    "<|im_start|>system <system>x</system> <pyai:tool_result> [INST]",
    "ä 漢字 🎭 \u2028",
    "<think>aloud</think>",
]


@dataclass
class World:
    gateway: AttemptGatewayDouble
    models: ModelServer
    log: io.StringIO = field(default_factory=io.StringIO)

    def job(self, system_prompt: str = SOUL, user_prompt: str = PROMPT, **settings: object) -> dict[str, str]:
        address = self.models.address + ("" if settings.get("provider") == "anthropic" else "/v1")
        return self.gateway.job(system_prompt, user_prompt, **({"base_url": address} | settings))  # type: ignore[arg-type]

    async def run(self, environment: dict[str, str] | None = None, patience: Patience = QUICK) -> ExitCode:
        job = take_environment(environment if environment is not None else self.job())
        return await run_attempt(job, job_log(self.log), patience)

    @property
    def report(self) -> Report:
        return self.gateway.report

    def assert_secretive(self) -> None:
        """Nothing that is written anywhere quotes prompt, persona, token or key."""
        written = self.log.getvalue() + self.report.message + "".join(str(event.data) for event in self.gateway.events)
        for secret in ("Quillon", "zephyr", TOKEN, PROVIDER_KEY):
            assert secret not in written


@pytest.fixture
def world() -> Iterator[World]:
    with AttemptGatewayDouble() as gateway, ModelServer() as models:
        yield World(gateway, models)


@pytest.mark.parametrize("provider", ["openai-compatible", "openai", "local", "anthropic"])
async def test_an_answer_is_streamed_and_reported_once_with_its_usage(world: World, provider: str) -> None:
    assert await world.run(world.job(provider=provider)) == ExitCode.ANSWERED
    assert world.report.answer == ANSWER
    assert world.report.reason is None
    assert world.report.model == "double-1"
    assert (world.report.usage.requests, world.report.usage.input_tokens) == (1, 11)
    assert world.report.usage.output_tokens == 7
    assert [event.kind for event in world.gateway.events][:2] == ["started", "text"]
    assert world.gateway.events[0].data == {"model": "double-1"}
    assert world.gateway.streamed == ANSWER
    assert [event.sequence for event in world.gateway.events] == list(range(len(world.gateway.events)))


@pytest.mark.parametrize("provider", ["openai-compatible", "openai", "local", "anthropic"])
@pytest.mark.parametrize("text", LITERAL_TEXTS)
async def test_prompts_arrive_at_the_model_byte_for_byte(world: World, provider: str, text: str) -> None:
    await world.run(world.job(f"S{text}", f"U{text}", provider=provider))
    await world.run(world.job(f"{text}S", f"{text}U", provider=provider))
    first, second = world.models.requests
    assert (first.system, first.user) == (f"S{text}", f"U{text}")
    assert (second.system, second.user) == (f"{text}S", f"{text}U")


@pytest.mark.parametrize("provider", ["openai-compatible", "anthropic"])
async def test_a_system_prompt_of_blanks_only_is_delivered(world: World, provider: str) -> None:
    await world.run(world.job(" \r\n ", provider=provider))
    assert world.models.requests[0].system == " \r\n "


@pytest.mark.parametrize("provider", ["openai-compatible", "anthropic"])
async def test_an_empty_system_prompt_is_valid_and_sends_none(world: World, provider: str) -> None:
    assert await world.run(world.job("", provider=provider)) == ExitCode.ANSWERED
    assert world.models.requests[0].system is None


async def test_nothing_is_added_to_the_request_that_was_not_asked_for(world: World) -> None:
    await world.run(world.job("role", "words"))
    assert world.models.requests[0].body == {
        "model": "double-1",
        "messages": [{"role": "system", "content": "role"}, {"role": "user", "content": "words"}],
        "stream": True,
        "stream_options": {"include_usage": True},
    }


async def test_temperature_and_max_tokens_are_sent_if_given(world: World) -> None:
    await world.run(world.job(temperature=0.25, max_tokens=77))
    body = world.models.requests[0].body
    assert (body["temperature"], body["max_tokens"]) == (0.25, 77)


async def test_the_key_goes_to_the_provider_and_the_token_to_the_gateway_only(world: World) -> None:
    await world.run(world.job())
    await world.run(world.job(provider="anthropic"))
    chat, messages = world.models.requests
    assert chat.headers["authorization"] == f"Bearer {PROVIDER_KEY}"
    assert messages.headers["authorization"] == f"Bearer {PROVIDER_KEY}"
    assert TOKEN not in str(chat.headers) + str(messages.headers)


@pytest.mark.parametrize(
    ("variable", "value", "named"),
    [
        (JobVariable.SYSTEM_PROMPT, SOUL + " ", "digest"),
        (JobVariable.SYSTEM_PROMPT, "", "digest"),
        (JobVariable.PROMPT_DIGEST, "sha256:" + "0" * 64, "digest"),
        (JobVariable.PROMPT_DIGEST, "ä" * 80, "(unreadable)"),
        (JobVariable.BINDING_SCHEMA, "2", "binding schema 2, this worker knows 1"),
        (JobVariable.ENVELOPE_VERSION, "99", "envelope version 99"),
        (JobVariable.ENVELOPE_VERSION, "", "envelope version"),
    ],
)
async def test_another_prompt_or_contract_is_refused_before_any_model_is_asked(
    world: World, variable: JobVariable, value: str, named: str
) -> None:
    assert await world.run(world.job() | {variable: value}) == ExitCode.REFUSED_TO_START
    assert world.report.reason is Reason.PROMPT_DIGEST_MISMATCH
    assert named in world.report.message
    assert world.models.requests == []


@pytest.mark.parametrize(
    "change",
    [
        {"systemPromptDigest": "sha256:" + "0" * 64},
        {"userPrompt": PROMPT + " "},
        {"envelopeVersion": 2},
        {"key": {"taskUID": "another", "iteration": 0, "attempt": 2}},
        {"schemaVersion": 2},
        {"unheardOf": True},
    ],
)
async def test_an_input_of_another_attempt_prompt_or_release_is_refused(
    world: World, change: dict[str, object]
) -> None:
    environment = world.job()
    world.gateway.input |= change
    assert await world.run(environment) == ExitCode.REFUSED_TO_START
    assert world.report.reason is Reason.PROMPT_DIGEST_MISMATCH
    assert world.models.requests == []
    world.assert_secretive()


async def test_a_gateway_that_fails_for_a_while_costs_nothing_but_time(world: World) -> None:
    world.gateway.faults["input"].extend([503, 0, 500, 429])
    world.gateway.faults["events"].extend([503, 0])
    world.gateway.faults["report"].extend([503, 0, 500])
    assert await world.run() == ExitCode.ANSWERED
    assert world.report.answer == ANSWER
    assert len(world.models.requests) == 1


async def test_an_event_that_the_gateway_refuses_does_not_stop_the_answer(world: World) -> None:
    world.gateway.faults["events"].extend([413, 422, 404, 409])
    assert await world.run() == ExitCode.ANSWERED
    assert world.report.answer == ANSWER


@pytest.mark.parametrize("status", [401, 410])
async def test_an_attempt_that_is_over_asks_no_model_and_reports_nothing(world: World, status: int) -> None:
    world.gateway.faults["input"].append(status)
    assert await world.run() == ExitCode.UNDELIVERED
    assert (world.models.requests, world.gateway.reports) == ([], [])
    assert "Traceback" not in world.log.getvalue()


@pytest.mark.parametrize("status", [409, 410])
async def test_a_report_that_comes_too_late_is_not_sent_again(world: World, status: int) -> None:
    world.gateway.faults["report"].append(status)
    assert await world.run() == ExitCode.UNDELIVERED
    assert world.gateway.calls.count("report") == 1


async def test_an_answer_that_the_gateway_finds_too_large_is_reported_as_such(world: World) -> None:
    world.gateway.faults["report"].append(413)
    assert await world.run() == ExitCode.FAILED
    assert world.report.reason is Reason.ANSWER_TOO_LARGE


async def test_a_report_that_nobody_takes_ends_with_its_own_exit_code(world: World) -> None:
    world.gateway.faults["report"].extend([503] * 100)
    assert await world.run() == ExitCode.UNDELIVERED


async def test_the_model_is_left_alone_as_soon_as_the_attempt_is_over(world: World) -> None:
    def endless(exchange: double.Exchange) -> None:
        world.gateway.over.set()
        exchange.reply(iter(lambda: "again ", None), pause=0.01)

    world.models.script(endless)
    assert await world.run() == ExitCode.UNDELIVERED
    assert world.gateway.reports == []


@pytest.mark.parametrize("provider", ["openai-compatible", "anthropic"])
@pytest.mark.parametrize("fault", [double.error(429), double.error(500), double.error(529), double.broken])
async def test_what_may_pass_is_tried_again_and_told(world: World, provider: str, fault: double.Behaviour) -> None:
    world.models.script(fault, fault)
    assert await world.run(world.job(provider=provider)) == ExitCode.ANSWERED
    assert world.report.answer == ANSWER
    assert world.report.usage.requests == len(world.models.requests) == 3
    assert [event.kind for event in world.gateway.events].count("retry") == 2
    assert world.gateway.streamed == ANSWER
    world.assert_secretive()


async def test_five_tries_are_enough(world: World) -> None:
    world.models.script(default=double.error(503))
    assert await world.run() == ExitCode.FAILED
    assert len(world.models.requests) == 5
    assert world.report.reason is Reason.PROVIDER_FAILED
    assert "HTTP 503" in world.report.message
    assert "asked 5 times" in world.report.message


async def test_retry_after_in_seconds_is_waited_out(world: World) -> None:
    world.models.script(double.error(429, retry_after="1"))
    assert await world.run() == ExitCode.ANSWERED
    first, second = world.models.requests
    assert second.first_byte - first.first_byte >= 1.0


async def test_retry_after_as_a_date_is_waited_out(world: World) -> None:
    until = (datetime.now(UTC) + timedelta(seconds=2)).replace(microsecond=0)
    world.models.script(double.error(503, retry_after=format_datetime(until, usegmt=True)))
    assert await world.run() == ExitCode.ANSWERED
    assert world.models.requests[1].first_byte >= until.timestamp()


async def test_a_provider_that_asks_for_too_much_patience_fails_at_once(world: World) -> None:
    world.models.script(double.error(429, retry_after="3600"))
    assert await world.run() == ExitCode.FAILED
    assert len(world.models.requests) == 1
    assert "asks to wait 3600 s" in world.report.message


@pytest.mark.parametrize(
    ("status", "advice"),
    [
        (302, "the final address"),
        (307, "the final address"),
        (400, "HTTP 400"),
        (401, "check the Provider's key"),
        (404, "check the model's name"),
    ],
)
@pytest.mark.parametrize("provider", ["openai-compatible", "anthropic"])
async def test_a_rejected_request_is_not_repeated(world: World, provider: str, status: int, advice: str) -> None:
    world.models.script(double.error(status))
    assert await world.run(world.job(provider=provider)) == ExitCode.FAILED
    assert len(world.models.requests) == 1
    assert world.report.reason is Reason.PROVIDER_FAILED
    for part in (provider, world.models.address.removeprefix("http://"), f"HTTP {status}", advice):
        assert part in world.report.message
    world.assert_secretive()


async def test_a_used_up_quota_is_not_waited_for(world: World) -> None:
    body = json.dumps({"error": {"code": "insufficient_quota", "message": "You exceeded your quota"}})
    world.models.script(double.error(429, body=body))
    assert await world.run() == ExitCode.FAILED
    assert len(world.models.requests) == 1
    assert "quota is used up" in world.report.message


@pytest.mark.parametrize("provider", ["openai-compatible", "anthropic"])
async def test_a_provider_that_hangs_fails_the_attempt(world: World, provider: str) -> None:
    world.models.script(default=double.hang)
    patience = Patience(provider=RetryLimits(tries=2, total=10, first_delay=0.01), read_timeout=0.1)
    assert await world.run(world.job(provider=provider), patience) == ExitCode.FAILED
    assert world.report.reason is Reason.PROVIDER_FAILED
    assert "no answer in time" in world.report.message
    assert len(world.models.requests) == 2


@pytest.mark.parametrize("provider", ["openai-compatible", "anthropic"])
async def test_a_provider_that_stops_in_the_middle_fails_the_attempt(world: World, provider: str) -> None:
    def stalled(exchange: double.Exchange) -> None:
        exchange.begin(["Forty"])
        exchange.server.closing.wait()

    world.models.script(default=stalled)
    patience = Patience(provider=RetryLimits(tries=1, total=10), read_timeout=0.1)
    assert await world.run(world.job(provider=provider), patience) == ExitCode.FAILED
    assert world.report.reason is Reason.PROVIDER_FAILED
    assert "no answer in time" in world.report.message


async def test_a_provider_that_is_not_there_fails_the_attempt(world: World) -> None:
    with ModelServer() as gone:
        address = gone.address
    assert await world.run(world.job(base_url=f"{address}/v1")) == ExitCode.FAILED
    assert world.report.reason is Reason.PROVIDER_FAILED
    assert "cannot be reached" in world.report.message
    assert world.report.usage.requests == 5


@pytest.mark.parametrize("provider", ["openai-compatible", "anthropic"])
@pytest.mark.parametrize("fault", [double.garbage, double.binary, double.web_page, double.cut])
async def test_garbage_is_no_answer(world: World, provider: str, fault: double.Behaviour) -> None:
    world.models.script(default=fault)
    assert await world.run(world.job(provider=provider)) == ExitCode.FAILED
    assert world.report.reason is Reason.PROVIDER_FAILED
    assert world.report.answer is None
    world.assert_secretive()


@pytest.mark.parametrize("data", ["[]", "42", '"text"', "null", '{"choices": 3}', '{"choices": [{"delta": "x"}]}'])
async def test_json_of_another_shape_is_no_answer(world: World, data: str) -> None:
    def odd(exchange: double.Exchange) -> None:
        exchange.open()
        exchange.chunk(f"data: {data}\n\n")
        exchange.close()

    world.models.script(default=odd)
    assert await world.run() == ExitCode.FAILED
    assert world.report.reason is Reason.PROVIDER_FAILED


async def test_half_a_character_is_no_answer(world: World) -> None:
    world.models.script(double.answer("\ud83d"))
    assert await world.run() == ExitCode.FAILED
    assert world.report.reason is Reason.PROVIDER_FAILED


async def test_a_response_without_end_is_given_up(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(responses, "MAX_RESPONSE_BYTES", 1024 * 1024)
    world.models.script(double.flood)
    assert await world.run() == ExitCode.FAILED
    assert world.report.reason is Reason.PROVIDER_FAILED
    assert "ResponseTooLarge" in world.report.message


@pytest.mark.parametrize("provider", ["openai-compatible", "anthropic"])
async def test_a_blank_answer_is_asked_for_exactly_once_more(world: World, provider: str) -> None:
    world.models.script(default=double.answer(" \n\t"))
    assert await world.run(world.job(provider=provider)) == ExitCode.FAILED
    assert world.report.reason is Reason.ANSWER_BLANK
    assert len(world.models.requests) == 2
    assert world.report.usage.input_tokens == 22


async def test_an_answer_after_a_blank_one_counts(world: World) -> None:
    world.models.script(double.answer(""))
    assert await world.run() == ExitCode.ANSWERED
    assert world.report.answer == world.gateway.streamed == ANSWER


@pytest.mark.parametrize("provider", ["openai-compatible", "anthropic"])
@pytest.mark.parametrize(
    ("finish", "reason"), [("content_filter", Reason.ANSWER_REFUSED), ("length", Reason.ANSWER_TRUNCATED)]
)
async def test_a_refused_or_truncated_answer_is_a_failure(
    world: World, provider: str, finish: str, reason: Reason
) -> None:
    world.models.script(double.answer("I would, but", finish=finish))
    assert await world.run(world.job(provider=provider)) == ExitCode.FAILED
    assert (world.report.reason, world.report.answer) == (reason, None)
    assert world.report.usage.output_tokens == 7
    assert len(world.models.requests) == 1


async def test_an_answer_may_have_one_mebibyte_and_not_a_byte_more(world: World) -> None:
    world.models.script(double.answer("ä" * (MAX_RESULT_BYTES // 2)), double.answer("ä" * (MAX_RESULT_BYTES // 2), "x"))
    assert await world.run() == ExitCode.ANSWERED
    assert world.report.answer == "ä" * (MAX_RESULT_BYTES // 2)
    world.gateway.reports.clear()
    assert await world.run() == ExitCode.FAILED
    assert world.report.reason is Reason.ANSWER_TOO_LARGE


async def test_the_answer_is_the_model_s_own_text_blanks_included(world: World) -> None:
    world.models.script(double.answer("\n ", " first", " \r\n"))
    await world.run()
    assert world.report.answer == "\n  first \r\n"


async def test_large_texts_are_cut_into_small_events(world: World) -> None:
    text = '"\x01ä🎭' * 5000
    world.models.script(double.answer(text))
    await world.run()
    assert world.gateway.streamed == world.report.answer == text
    assert max(len(event.model_dump_json()) for event in world.gateway.events) < 10 * 1024


async def test_a_provider_without_key_or_address_is_named(world: World) -> None:
    environment = world.job(provider="openai")
    del environment[JobVariable.PROVIDER_KEY]
    assert await world.run(environment) == ExitCode.FAILED
    assert world.report.reason is Reason.PROVIDER_INVALID
    world.gateway.reports.clear()
    assert await world.run(world.job(base_url=None)) == ExitCode.FAILED
    assert world.report.reason is Reason.PROVIDER_INVALID


async def test_a_key_with_a_line_break_is_named_and_not_sent(world: World) -> None:
    assert await world.run(world.job() | {JobVariable.PROVIDER_KEY: PROVIDER_KEY + "\n"}) == ExitCode.FAILED
    assert world.report.reason is Reason.PROVIDER_INVALID
    assert world.models.requests == []
    world.assert_secretive()


async def test_no_log_line_quotes_prompt_persona_token_or_key(world: World) -> None:
    world.models.script(double.error(500), double.answer(SOUL + PROMPT))
    assert await world.run() == ExitCode.ANSWERED
    world.log.write(" ")
    for line in world.log.getvalue().splitlines()[:-1]:
        assert json.loads(line)["event"]
    for secret in ("Quillon", "zephyr", TOKEN, PROVIDER_KEY):
        assert secret not in world.log.getvalue()


def test_the_environment_is_taken_out_of_reach_of_children(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (world.job("$HOME $$ %PATH%") | {"ANIMA_OF_A_LATER_RELEASE": "x"}).items():
        monkeypatch.setenv(name, value)
    taken = take_environment(os.environ)
    assert taken.system_prompt.reveal() == "$HOME $$ %PATH%"
    assert "$HOME" not in repr(taken)
    assert TOKEN not in repr(taken)
    script = "import os; print([name for name in os.environ if name.startswith('ANIMA_')])"
    child = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert child.stdout.strip() == "[]"


def test_a_budget_of_tries_ends_by_number_or_by_time() -> None:
    now = 0.0
    retries = Retries(RetryLimits(tries=5, total=120, first_delay=1, max_delay=4), lambda: now, jitter=lambda: 1.0)
    assert [retries.next_delay() for _ in range(5)] == [1, 2, 4, 4, None]
    late = Retries(RetryLimits(tries=5, total=120, first_delay=1), lambda: now, jitter=lambda: 0.0)
    assert late.next_delay(100) == 100.5
    now = 119.9
    assert late.next_delay() is None


def worker(environment: dict[str, str]) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "workers.ai"], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_as_a_process_it_answers_and_its_log_keeps_secrets(world: World) -> None:
    environment = world.job() | {"OPENAI_LOG": "debug", "ANTHROPIC_LOG": "debug", "PYTHONASYNCIODEBUG": "1"}
    process = worker(environment)
    output, log = process.communicate(timeout=60)
    assert (process.returncode, output) == (ExitCode.ANSWERED, "")
    assert world.report.answer == ANSWER
    assert [json.loads(line)["attempt"] for line in log.splitlines()] == [KEY.path] * 2
    for secret in ("Quillon", "zephyr", TOKEN, PROVIDER_KEY):
        assert secret not in log


def test_with_a_collector_the_attempt_is_a_span_of_the_task_s_trace(world: World) -> None:
    world.models.script(double.error(401))
    with Collector() as collector:
        trace = {
            JOB_COLLECTOR: f"{collector.address}/v1/traces",
            "OTEL_EXPORTER_OTLP_ENDPOINT": "nonsense",
            "TRACEPARENT": f"00-{'a' * 32}-{'b' * 16}-01",
        }
        process = worker(world.job() | trace)
        process.communicate(timeout=60)
    span = collector.spans["attempt"]
    assert (span.trace_id.hex(), span.parent_span_id.hex()) == ("a" * 32, "b" * 16)
    assert world.gateway.traces == {f"00-{'a' * 32}-{span.span_id.hex()}-01"}
    values = {item.key: item.value.string_value for item in span.attributes}
    assert (values["anima.attempt"], values["anima.reason"]) == (KEY.path, Reason.PROVIDER_FAILED)
    for secret in ("Quillon", "zephyr", TOKEN, PROVIDER_KEY):
        assert secret.encode() not in b"".join(collector.bodies)


def test_as_a_process_it_refuses_another_prompt(world: World) -> None:
    process = worker(world.job() | {JobVariable.SYSTEM_PROMPT: "someone else"})
    process.communicate(timeout=60)
    assert process.returncode == ExitCode.REFUSED_TO_START
    assert world.report.reason is Reason.PROMPT_DIGEST_MISMATCH


@pytest.mark.parametrize("variable", [JobVariable.GATEWAY, JobVariable.ATTEMPT, JobVariable.TOKEN])
def test_as_a_process_it_says_what_is_missing(world: World, variable: JobVariable) -> None:
    environment = world.job()
    del environment[variable]
    process = worker(environment)
    _, log = process.communicate(timeout=60)
    assert process.returncode == ExitCode.REFUSED_TO_START
    assert variable in json.loads(log)["message"]


def test_as_a_process_it_names_certificates_that_cannot_be_read(world: World) -> None:
    process = worker(world.job() | {"SSL_CERT_FILE": "/none/of/these.pem"})
    _, log = process.communicate(timeout=60)
    assert process.returncode == ExitCode.REFUSED_TO_START
    assert "SSL_CERT_FILE" in json.loads(log)["message"]


def test_a_termination_signal_ends_it_at_once_and_quietly(world: World) -> None:
    asked = threading.Event()

    def hang(exchange: double.Exchange) -> None:
        asked.set()
        double.hang(exchange)

    world.models.script(hang)
    process = worker(world.job())
    assert asked.wait(60)
    process.send_signal(signal.SIGTERM)
    _, log = process.communicate(timeout=60)
    assert process.returncode == 143
    assert "Traceback" not in log


FORKER = """
import os, sys, threading
before = set(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else set()
import workers.ai
workers.ai.preload()
after = set(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else set()
print(threading.active_count(), sorted(after - before), flush=True)
children = []
for _ in range(3):
    child = os.fork()
    if child == 0:
        os._exit(workers.ai.main())
    children.append(child)
print([os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children])
"""


def test_a_warm_parent_has_one_thread_and_no_socket_and_its_forks_work(world: World) -> None:
    forker = subprocess.run([sys.executable, "-c", FORKER], env=world.job(), capture_output=True, text=True, timeout=60)
    assert forker.stdout.splitlines() == ["1 []", "[0, 0, 0]"]
    assert [report.answer for report in world.gateway.reports] == [ANSWER] * 3
