"""One JSON object a line, and no persona in any of them."""

import json
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anima.model.persona import PersonaText, SensitiveText
from anima.telemetry.redaction import WITHHELD, fields, filled, shown

MARKER = "PERSONA-MARKER"
DIGEST = "sha256:" + "a" * 64

START = """
import asyncio, logging, sys, threading, warnings
import structlog
from anima.model.errors import Refusal
from anima.model.persona import PersonaText
from anima.model.reasons import Reason
from anima.telemetry.logs import configure_logs
configure_logs("anima-test")
MARKER = "PERSONA-" + "MARKER"
ours, foreign = logging.getLogger("workers.gateway"), logging.getLogger("somelibrary")
def fail(message):
    raise ValueError(message)
"""


def lines(script: str, status: int = 0) -> list[dict[str, Any]]:
    """Return the log of a process; its standard output stays empty and the persona away."""
    done = subprocess.run([sys.executable, "-c", START + script], capture_output=True, check=False, text=True)
    assert (done.stdout, done.returncode) == ("", status), done.stderr
    assert MARKER not in done.stderr
    return [json.loads(line) for line in done.stderr.splitlines()]


def test_stdlib_and_structlog_end_in_one_form() -> None:
    first, second, third = lines("""
ours.info("bound %s to %s", "default/review", "sha256:1", extra={"attempt": "uid/0/1"})
structlog.get_logger("workers.ai").info("settled", attempt="uid/0/1", tries=2)
foreign.warning("retrying in %.1fs", 0.5, extra={"request": {"body": MARKER}})
""")
    assert first.pop("timestamp").endswith("+00:00")
    assert first == {
        "level": "info",
        "service": "anima-test",
        "logger": "workers.gateway",
        "event": "bound default/review to sha256:1",
        "attempt": "uid/0/1",
    }
    assert (second["logger"], second["event"], second["tries"]) == ("workers.ai", "settled", 2)
    assert (third["level"], third["event"]) == ("warning", "retrying in 0.5s")
    assert "request" not in third


def test_an_exception_is_its_type_and_where_it_was_raised() -> None:
    (line,) = lines("""
try:
    try:
        fail(MARKER)
    except ValueError as error:
        raise KeyError(MARKER) from error
except KeyError:
    foreign.exception("failed")
""")
    exception = line["exception"]
    assert (exception["type"], exception["cause"]["type"]) == ("KeyError", "ValueError")
    assert exception["cause"]["stack"][-1].endswith(":fail")
    assert "message" not in exception


def test_our_own_errors_keep_their_message_and_reason() -> None:
    (line,) = lines("""
try:
    raise Refusal(Reason.SOUL_DRIFT, "the soul is another")
except Refusal:
    structlog.get_logger("workers.gateway").exception("refused")
""")
    assert line["exception"]["message"] == "the soul is another"
    assert line["exception"]["reason"] == "SoulDrift"


def test_what_python_prints_itself_is_logged_without_its_words() -> None:
    threads, warning, task, uncaught = lines(
        """
thread = threading.Thread(target=fail, args=[MARKER])
thread.start()
thread.join()
warnings.warn(MARKER)
async def failing():
    fail(MARKER)
async def forget():
    await asyncio.wait([asyncio.ensure_future(failing())])
asyncio.run(forget())
fail(MARKER)
""",
        status=1,
    )
    assert threads["exception"]["type"] == "ValueError"
    assert warning["event"].startswith("UserWarning at ")
    assert task["event"] == "Task exception was never retrieved"
    assert uncaught["level"] == "critical"
    assert uncaught["exception"]["stack"][-1].endswith(":fail")


def test_exceptions_and_souls_among_the_arguments_show_nothing_of_themselves() -> None:
    first, second, third, fourth = lines("""
ours.warning("failed: %s, %s", ValueError(MARKER), PersonaText(MARKER))
ours.warning(ValueError(MARKER))
ours.warning("%d tries", MARKER.encode())
ours.warning("%(prompt)s for %(task)s", {"prompt": MARKER, "task": "default/review"})
""")
    assert first["event"] == "failed: ValueError, <PersonaText: 14 characters>"
    assert second["event"] == "ValueError"
    assert third["event"] == "%d tries"
    assert fourth["event"] == "<withheld> for default/review"


def test_a_line_inside_a_span_names_it(collector: Any) -> None:
    (line,) = lines(f"""
from anima.telemetry.traces import configure_traces
traces = configure_traces("anima-test", {collector.environ})
with traces.span("attempt"):
    ours.info("inside")
traces.shutdown()
""")
    assert line["span_id"] == collector.spans["attempt"].span_id.hex()
    assert line["trace_id"] == collector.spans["attempt"].trace_id.hex()


@pytest.mark.parametrize(
    "name",
    ["token", "api_key", "apiKey", "APIKey", "ANIMA_SYSTEM_PROMPT", "persona", "soul_text", "SOUL.md", "Authorization"],
)
def test_the_name_of_a_secret_withholds_text_but_no_number_and_no_digest(name: str) -> None:
    assert fields({name: MARKER}) == {name: WITHHELD}
    assert fields({name: {"nested": [MARKER]}}) == {name: WITHHELD}
    assert fields({name: 17}) == {name: 17}
    assert fields({name: DIGEST}) == {name: DIGEST}


def test_what_is_no_secret_keeps_its_name_and_value() -> None:
    plain = {"attempt": "uid/0/1", "soul_digest": DIGEST, "input_tokens": 12, "keyboard": "qwerty"}
    assert fields(plain) == plain


def _nested(value: Any, keys: list[str]) -> Any:
    for key in keys:
        value = [value] if key == "list" else {"name": value}
    return value


@given(st.lists(st.sampled_from(["list", "map"]), max_size=12), st.sampled_from([SensitiveText, PersonaText]))
def test_sensitive_text_is_redacted_however_deep_it_is(keys: list[str], kind: type[SensitiveText]) -> None:
    value = _nested(kind(MARKER), keys)
    assert MARKER not in json.dumps(shown(value))
    assert MARKER not in filled("%s", (value,))


def test_an_object_shows_its_type_only() -> None:
    class Thing:
        def __repr__(self) -> str:
            return MARKER

    assert shown({"thing": Thing(), "raw": MARKER.encode()}) == {"thing": "<Thing>", "raw": "<bytes>"}


def test_what_json_cannot_hold_is_text() -> None:
    assert json.loads(json.dumps(shown([float("inf"), float("nan"), "\ud800"]))) == ["inf", "nan", "\ud800"]
