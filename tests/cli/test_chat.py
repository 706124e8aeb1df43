"""`anima chat`, with and without a terminal."""

import asyncio
import codecs
import json
import os
import pty
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from anima.cli.dialogue import AnswerText
from anima.conversations import Conversation
from anima.exits import Exit
from anima.gateway import Gateway
from anima.keys import load
from anima.model.attempts import ProgressEvent
from anima.model.conversation import ConversationStatus
from anima.model.errors import NotFound
from anima.model.session import MAX_MESSAGE_BYTES, Role, SessionRecord
from tests.cli.conftest import Anima
from tests.doubles.conversation_workflow import REVISION, WAIT

SHORT = REVISION.session_digest.removeprefix("sha256:")[:12]


def test_an_answer_goes_alone_to_standard_output(anima: Anima, name: str):
    result = anima("chat", name, "--agent", "heron", "--message", "Hello.")
    assert result.exit_code == 0, result.output
    assert result.stdout == "You said: Hello.\n"
    assert f"under revision {SHORT}" in result.stderr


def test_messages_are_answered_in_order_and_the_revision_is_said_once(anima: Anima, name: str):
    result = anima("chat", name, "--agent", "heron", "--message", "One.", "--message", "Two.", "--message", "Three.")
    assert result.stdout == "You said: One.\nYou said: Two.\nYou said: Three.\n"
    assert result.stderr.count("revision") == 1
    assert anima("chat", name, "-m", "Four.").stdout == "You said: Four.\n"


def test_lines_of_a_pipe_are_messages_until_quit(anima: Anima, name: str):
    result = anima("chat", name, "--agent", "heron", stdin="One.\n\n  \nTwo: é\n/quit\nThree.\n")
    assert result.exit_code == 0, result.output
    assert result.stdout == "You said: One.\nYou said: Two: é\n"
    assert anima("chat", name, stdin="").exit_code == 0


def test_a_pipe_that_is_not_utf_8_is_refused(anima: Anima, name: str):
    error = anima.error(Exit.INVALID, "chat", name, "--agent", "heron", stdin=b"a\xff\n")
    assert error["message"] == "standard input is not UTF-8 at byte 1"


def test_a_failed_answer_is_told_with_its_remedy_and_the_rest_is_asked(anima: Anima, name: str):
    result = anima("chat", name, "--agent", "heron", "-m", "fail", "-m", "Hello.")
    assert result.exit_code == Exit.TASK_FAILED
    assert result.stdout == "You said: Hello.\n"
    assert "no answer (ProviderMissing)" in result.stderr
    assert "Apply the Provider" in result.stderr


def test_exchanges_are_data_on_request(anima: Anima, name: str):
    exchange = anima.data("chat", name, "--agent", "heron", "-m", "Hello.")["items"][0]
    assert exchange["message"]["content"] == "Hello."
    assert exchange["answer"]["content"] == "You said: Hello."
    assert exchange["answer"]["revision"] == REVISION.session_digest


def test_what_would_steer_a_terminal_is_made_harmless(anima: Anima, name: str):
    result = anima("chat", name, "--agent", "heron", "-m", "\x1b[2J\x07\u202e")
    assert result.stdout == "You said: \ufffd[2J\ufffd\ufffd\n"


@pytest.mark.parametrize(
    ("message", "words"), [(" ", "content: is blank"), ("x" * (MAX_MESSAGE_BYTES + 1), "the limit is 131072")]
)
def test_a_message_that_cannot_be_asked_is_refused(anima: Anima, name: str, message: str, words: str):
    error = anima.error(Exit.INVALID, "chat", name, "--agent", "heron", "-m", message)
    assert error["reason"] == "RequestRefused"
    assert words in error["message"]


def test_a_new_conversation_needs_an_agent(anima: Anima, name: str):
    assert anima.error(Exit.INVALID, "chat", name, "-m", "Hello.")["reason"] == "RequestRefused"
    assert anima("chat", name, "--agent", "Upper", "-m", "Hello.").exit_code == Exit.INVALID


def text(sequence: int, delta: str) -> ProgressEvent:
    return ProgressEvent(sequence=sequence, kind="text", data={"delta": delta})


def record(content: str) -> SessionRecord:
    return SessionRecord(
        sequence=2, role=Role.ASSISTANT, content=content, tool_calls=[], created_at="2026-11-30T12:00:00Z"
    )  # fmt: skip


def test_an_answer_is_printed_once_as_it_comes(capsys: pytest.CaptureFixture[str]):
    shown = AnswerText(live=True)
    shown.add((0, 1), text(0, "Hel"))
    assert capsys.readouterr().out == "Hel"
    shown.add((0, 1), text(1, "lo.\x1b"))
    shown.finish(record("Hello.\x1b And more."))
    assert capsys.readouterr().out == "lo.\ufffd And more.\n"


def test_an_answer_that_begins_anew_begins_a_new_line(capsys: pytest.CaptureFixture[str]):
    shown = AnswerText(live=True)
    shown.add((0, 1), text(0, "A false st"))
    shown.add((0, 1), ProgressEvent(sequence=1, kind="retry", data={"cause": "cut off", "delaySeconds": 1}))
    shown.add((0, 1), text(2, "Another"))
    shown.add((0, 2), text(0, "At "))
    shown.finish(record("At last."))
    captured = capsys.readouterr()
    assert captured.out == "A false st\nAnother\nAt last.\n"
    assert captured.err == "asking again: cut off\nattempt 2\n"


def test_an_answer_that_is_not_what_was_streamed_is_printed_whole(capsys: pytest.CaptureFixture[str]):
    shown = AnswerText(live=True)
    shown.add((0, 1), text(0, "Something"))
    shown.finish(record("Else.\n"))
    assert capsys.readouterr().out == "Something\nElse.\n"


class Terminal:
    """The command at a terminal of its own."""

    def __init__(self, anima: Anima, *arguments: str) -> None:
        self._master, slave = pty.openpty()
        environment = {**os.environ, **anima.environment, "TERM": "dumb"}
        command = [sys.executable, "-c", "from anima.cli import main; main()", "chat", *arguments]
        self.process = subprocess.Popen(command, env=environment, stdin=slave, stdout=slave, stderr=slave)
        os.close(slave)
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._unread = ""
        self.seen = ""

    def until(self, words: str) -> str:
        """Read until these words have come; return all since the last time."""
        while words not in self._unread:
            try:
                self._unread += self._decoder.decode(os.read(self._master, 4096))
            except OSError:
                raise AssertionError(f"it ended, without {words!r} in {self._unread!r}") from None
        before, _, self._unread = self._unread.partition(words)
        self.seen += before + words
        return before + words

    def rest(self) -> str:
        """Read until it ends."""
        with suppress(OSError):
            while data := os.read(self._master, 4096):
                self._unread += self._decoder.decode(data)
        return self._unread

    def type(self, line: str) -> None:
        os.write(self._master, line.encode())

    def close(self) -> int:
        code = self.process.wait(20)
        os.close(self._master)
        return code


@contextmanager
def terminal(anima: Anima, *arguments: str) -> Iterator[Terminal]:
    opened = Terminal(anima, *arguments)
    try:
        yield opened
    finally:
        opened.process.kill()
        opened.process.wait()


def test_a_conversation_at_a_terminal_goes_on_after_failures(anima: Anima, name: str):
    with terminal(anima, name, "--agent", "heron") as talk:
        talk.until("> ")
        talk.type("Hello.\n")
        assert f"under revision {SHORT}" in talk.until("/why tells more")
        talk.until("> ")
        talk.type("fail\n")
        talk.until("Apply the Provider")
        talk.until("> ")
        talk.type("retry\n")
        talk.until("attempt 2")
        assert "You said: retry" in talk.until("> ")
        talk.type("/why\n")
        assert f"pinned to revision {SHORT}" in talk.until("tells more")
        talk.until("> ")
        talk.type("/quit\n")
        assert talk.close() == 0
    # What was said once is not said again.
    assert len(re.findall("under revision", talk.seen)) == 1


def test_a_second_terminal_shows_what_was_said_and_follows_what_is_not_answered(anima: Anima, name: str):
    anima("chat", name, "--agent", "heron", "-m", "Hello.", "-m", "fail")
    with terminal(anima, name) as first, terminal(anima, name) as second:
        first.until("You said: Hello.")
        first.until("no answer (ProviderMissing)")
        first.until("> ")
        first.type(f"{WAIT}\n")
        second.until("You said: Hello.")
        second.until("> ")
        with terminal(anima, name) as third:
            third.until(f"> {WAIT}")
            second.type("Go on.\n")
            third.until(f"You said: {WAIT}")
        first.until(f"You said: {WAIT}")
        second.until("You said: Go on.")
        for one in (first, second):
            one.until("> ")
            one.type("\x04")
            assert one.close() == 0


@pytest.mark.parametrize("delay", [0.0, 0.002, 0.01, 0.1])
def test_ctrl_c_ends_it(anima: Anima, name: str, delay: float):
    with terminal(anima, name, "--agent", "heron") as talk:
        talk.until("> ")
        talk.type(f"{WAIT}\n")
        talk.until(WAIT)
        time.sleep(delay)
        talk.process.send_signal(signal.SIGINT)
        rest = talk.rest()
        assert talk.close() == Exit.INTERRUPTED, rest
        assert "Traceback" not in rest
        assert "Warning" not in rest


def test_an_answer_is_followed_from_one_gateway_to_the_next(anima: Anima, name: str):
    with gateway(anima, 0) as (first, port), terminal(at(anima, port), name, "--agent", "heron") as talk:
        talk.until("> ")
        talk.type(f"{WAIT}\n")
        wait_until_posted(anima, name)
        kill(first)
        talk.until("asking again")
        with gateway(anima, port):
            assert anima("chat", name, "-m", "Go on.").stdout == "You said: Go on.\n"
            talk.until(f"You said: {WAIT}")


def test_a_message_to_a_gateway_that_is_away_arrives_once(anima: Anima, name: str):
    with gateway(anima, 0) as (first, port), terminal(at(anima, port), name, "--agent", "heron") as talk:
        talk.until("> ")
        kill(first)
        talk.type("Hello.\n")
        talk.until("asking again")
        with gateway(anima, port):
            talk.until("You said: Hello.")
    assert [message.number for message in asyncio.run(_status(anima, name)).pending] == []
    assert asyncio.run(_status(anima, name)).session.messages == 2


def at(anima: Anima, port: int) -> Anima:
    """Return the command as it talks to the gateway on another port."""
    return Anima({**anima.environment, "ANIMA_GATEWAY_URL": f"http://127.0.0.1:{port}"}, anima.home)


def kill(process: "subprocess.Popen[str]") -> None:
    process.kill()
    process.wait()


def wait_until_posted(anima: Anima, name: str) -> None:
    while True:
        with suppress(NotFound):
            if asyncio.run(_status(anima, name)).pending:
                return


async def _status(anima: Anima, name: str) -> ConversationStatus:
    async with Gateway(anima.environment["ANIMA_GATEWAY_URL"], load(anima.home.user_token)) as client:
        return await Conversation(client, "default", name).status()


@contextmanager
def gateway(anima: Anima, port: int) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Run one more gateway over the same home."""
    settings = {**os.environ, **anima.environment, "ANIMA_GATEWAY_PORT": str(port)}
    command = [sys.executable, "-m", "workers.gateway"]
    with subprocess.Popen(command, env=settings, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        line = next(line for line in process.stderr if "listening on" in line)
        threading.Thread(target=process.stderr.read, daemon=True).start()
        yield process, int(json.loads(line)["event"].rpartition(" ")[2])
        process.kill()
