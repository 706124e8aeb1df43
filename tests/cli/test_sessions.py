"""`anima sessions`, `session` and `souls in-use` against a real gateway."""

import asyncio
import itertools
import json
import os
import pty
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from anima.cli.tables import show_status
from anima.client import AnimaClient
from anima.exits import Exit
from anima.model.binding import Revision
from anima.model.session import Turn
from anima.model.task import SessionReference, Task, TaskStatus
from anima.stores.sql import SqlLedger, SqlSessions, open_engine, sqlite_url
from tests.cli.conftest import Anima
from tests.stores.claimants import end, lock, task

HOSTILE = "one\x1b]0;owned\x07\n#9 assistant  forged\r\x9b2J\u202edesrever"
TALK = [
    {"role": "user", "content": "What is in the file?"},
    {"role": "assistant", "toolCalls": [{"id": "c1", "name": "read\n#8 user", "arguments": '{"path": "a"}'}]},
    {"role": "tool", "content": HOSTILE, "toolCallId": "c1"},
    {"role": "assistant", "content": "A word."},
]
LINES = "".join(json.dumps(message) + "\n" for message in TALK)


def begin(anima: Anima, name: str, *arguments: str, lines: str = LINES) -> None:
    result = anima("session", "import", name, "-", *arguments, stdin=lines.encode())
    assert result.exit_code == 0, result.output


def apply_agent(anima: Anima, name: str, namespace: str = "default", soul: str | None = "Be terse.") -> None:
    spec: dict[str, Any] = {"systemPrompt": {"inline": "Review."}} | ({"soul": {"inline": soul}} if soul else {})
    agent = {"apiVersion": "anima.dev/v1alpha1", "kind": "Agent", "metadata": {"name": name}, "spec": spec}
    assert anima("apply", "-f", "-", "-n", namespace, stdin=json.dumps(agent)).exit_code == 0


def revision_of(anima: Anima, agent: str) -> Revision:
    found = anima.data("soul", "show", agent)
    return Revision(
        agent_uid=found["agentUid"],
        agent_generation=found["agentGeneration"],
        soul_digest=found["soulDigest"],
        prompt_digest=found["promptDigest"],
        envelope_version=found["envelopeVersion"],
    )


def take_part(anima: Anima, name: str, revision: Revision | None, *, leave: bool = True) -> None:
    """Let a Task of the Session's name pin it and add its turn, as the orchestrator would."""

    async def take_part() -> None:
        engine = open_engine(sqlite_url(anima.home.database))
        ledger = SqlLedger(engine, lambda: datetime.now(UTC))
        numbers = itertools.count()
        sessions = SqlSessions(engine, lambda: datetime.now(UTC), lambda: f"{name}-session-{next(numbers)}")
        claimant = await task(ledger, name)
        held = await lock(sessions, claimant, name)
        await sessions.pin(held, name, revision, append=True)
        turn = Turn(task_uid=claimant.task_uid, task=name, prompt="Hello?", answer="Hello.", revision=revision)
        await sessions.append(held, turn)
        if leave:
            await sessions.leave("default", name, claimant.task_uid)
            await end(ledger, claimant)
        await engine.dispose()

    asyncio.run(take_part())


def test_sessions_are_listed_by_namespace(anima: Anima, name: str):
    begin(anima, name, "-n", name)
    header, line = anima("sessions", "-n", name).stdout.splitlines()
    assert header.split() == ["NAMESPACE", "NAME", "OWNER", "MESSAGES", "REVISION", "HOLDER", "WAITING", "USED"]
    assert line.split()[:4] == [name, name, "4", "0"]
    assert name not in anima("sessions").stdout
    assert name in anima("sessions", "--all-namespaces").stdout
    (listed,) = anima.data("sessions", "-n", name)["items"]
    assert (listed["name"], listed["messages"]) == (name, 4)


def test_a_list_shows_the_pin_and_the_holder(anima: Anima, name: str):
    apply_agent(anima, name)
    revision = revision_of(anima, name)
    take_part(anima, name, revision, leave=False)
    line = next(line for line in anima("sessions").stdout.splitlines() if name in line)
    short = revision.session_digest.removeprefix("sha256:")[:12]
    assert line.split()[:7] == ["default", name, "tasks", "2", short, name, "0"]
    shown = anima("session", "show", name).stdout
    assert revision.session_digest in shown
    assert f"by Task {name}, " in shown


def test_show_has_the_last_messages_or_all_or_those_with_a_text(anima: Anima, name: str):
    begin(anima, name, lines="".join(json.dumps({"role": "user", "content": f"m{n}"}) + "\n" for n in range(120)))
    data = anima.data("session", "show", name, "--limit", "2")
    assert [message["content"] for message in data["messages"]] == ["m118", "m119"]
    assert data["session"]["messages"] == 120
    assert len(anima.data("session", "show", name)["messages"]) == 20
    assert len(anima.data("session", "show", name, "--all")["messages"]) == 120
    found = anima.data("session", "show", name, "--contains", "M11", "--limit", "3")["messages"]
    assert [message["content"] for message in found] == ["m117", "m118", "m119"]
    assert anima("session", "show", name, "--all").stdout.count("\n    m") == 120


@pytest.mark.parametrize("output", ["table", "json", "yaml"])
def test_no_message_steers_the_terminal(anima: Anima, name: str, output: str):
    begin(anima, name)
    shown = anima("session", "show", name, "-o", output).stdout
    assert "A word." in shown
    assert all(character.isprintable() or character == "\n" for character in shown)


def test_no_message_looks_like_another(anima: Anima, name: str):
    begin(anima, name)
    shown = anima("session", "show", name).stdout
    assert [line.split()[0] for line in shown.splitlines() if line.startswith("#")] == ["#1", "#2", "#3", "#4"]


def test_json_has_what_was_stored(anima: Anima, name: str):
    begin(anima, name)
    assert anima.data("session", "show", name)["messages"][2]["content"] == HOSTILE


def test_what_is_exported_is_imported_as_it_was(anima: Anima, name: str, tmp_path: Path):
    begin(anima, name)
    printed, file = anima("session", "export", name), tmp_path / "talk.jsonl"
    assert [json.loads(line) for line in printed.stdout_bytes.splitlines()] == TALK
    assert anima("session", "export", name, "-o", str(file)).stdout == ""
    assert file.read_bytes() == printed.stdout_bytes
    result = anima("session", "import", f"{name}-2", str(file))
    assert result.stdout == f"Session default/{name}-2 begun with 4 messages\n"
    assert anima("session", "export", f"{name}-2").stdout_bytes == printed.stdout_bytes


def test_an_export_that_fails_leaves_the_file_as_it_was(anima: Anima, name: str, tmp_path: Path):
    file = tmp_path / "talk.jsonl"
    file.write_text("earlier")
    assert anima("session", "export", name, "-o", str(file)).exit_code == Exit.NOT_FOUND
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("talk.jsonl", "earlier")]


def test_an_export_replaces_no_device(anima: Anima, name: str, tmp_path: Path):
    begin(anima, name)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert anima("session", "export", name, "-o", str(pipe)).exit_code == Exit.INVALID
    assert pipe.is_fifo()


def test_an_export_to_a_terminal_is_the_same_json_without_what_steers_it(anima: Anima, name: str):
    begin(anima, name)
    command = [sys.executable, "-c", "from anima.cli import main; main()", "session", "export", name]
    ours, theirs = pty.openpty()
    subprocess.run(command, stdout=theirs, env={**os.environ, **anima.environment}, check=True)
    os.close(theirs)
    shown = os.read(ours, 65536).decode()
    os.close(ours)
    assert [json.loads(line) for line in shown.splitlines()] == TALK
    assert all(character.isprintable() or character in "\r\n" for character in shown)


def test_an_import_that_is_refused_names_file_and_line_of_every_problem(anima: Anima, name: str, tmp_path: Path):
    file = tmp_path / "talk.jsonl"
    file.write_text('{"role": "user"}\n{"role": "human"}\nnonsense\n')
    result = anima("session", "import", name, str(file))
    assert result.exit_code == Exit.INVALID
    first, second = result.stderr.splitlines()
    assert first == f"error: {file}: line 2, role: must be one of 'user', 'assistant' or 'tool'"
    assert second.startswith(f"error: {file}: line 3: is not JSON at line 3")
    error = anima.error(Exit.INVALID, "session", "import", name, "-", stdin="nonsense")
    assert (error["reason"], error["problems"][0]["source"]) == ("RequestRefused", "standard input")
    assert anima("session", "show", name).exit_code == Exit.NOT_FOUND


def test_an_import_into_a_session_that_exists_is_a_conflict(anima: Anima, name: str):
    begin(anima, name)
    error = anima.error(Exit.CONFLICT, "session", "import", name, "-", stdin=LINES)
    assert "exists" in error["message"]


@pytest.mark.parametrize("command", ["show", "export", "delete", "why"])
def test_an_unknown_session_is_not_found(anima: Anima, name: str, command: str):
    result = anima("session", command, name)
    assert result.exit_code == Exit.NOT_FOUND
    assert name in result.stderr


def test_a_session_is_deleted_unless_it_is_in_use(anima: Anima, name: str):
    begin(anima, name)
    assert anima("session", "delete", name).stdout == f"Session default/{name} deleted\n"
    take_part(anima, name, None, leave=False)
    assert "in use" in anima.error(Exit.CONFLICT, "session", "delete", name)["message"]


def test_why_tells_the_pin_and_what_it_refuses(anima: Anima, name: str):
    other = f"{name}-b"
    for agent in (name, other):
        apply_agent(anima, agent)
    revision = revision_of(anima, name)
    take_part(anima, name, revision)
    shown = anima("session", "why", name).stdout
    assert revision.session_digest in shown
    assert "Be terse." not in shown
    rows = {line.split()[0]: line.split()[1:] for line in shown.splitlines() if line.startswith(name)}
    assert rows[name][2] == "yes"
    assert f"\n{other}: Session default/{name} is pinned by Task {name} to revision" in shown
    assert "the Agent's uid was" in shown
    (verdict,) = anima.data("session", "why", name, "--agent", other)["agents"]
    assert (verdict["accepted"], verdict["reason"]) == (False, "SessionSoulMismatch")


def test_why_tells_what_a_session_without_an_identity_takes(anima: Anima, name: str):
    begin(anima, name, "-n", name)
    assert f"There is no Agent in namespace {name}" in anima("session", "why", name, "-n", name).stdout
    apply_agent(anima, "reviewer", name)
    shown = anima("session", "why", name, "-n", name).stdout
    assert "not pinned yet" in shown
    assert "Tasks without a soul: it has history without an identity" in shown
    assert "SessionUnpinnedHistory" in shown


def test_souls_in_use_are_shown_with_what_is_under_them(anima: Anima, name: str):
    apply_agent(anima, name)
    revision = revision_of(anima, name)
    take_part(anima, name, revision)
    shown = anima("souls", "in-use").stdout
    short = revision.session_digest.removeprefix("sha256:")[:12]
    line = next(line for line in shown.splitlines() if line.startswith(short))
    assert line.split() == [short, str(revision.soul_digest).removeprefix("sha256:")[:12], name, "0", name]
    found = {item.get("digest"): item for item in anima.data("souls", "in-use")["items"]}
    assert found[revision.session_digest]["sessions"] == [name]
    apply_agent(anima, "plain", name, soul=None)
    assert anima("souls", "in-use", "-n", name).stdout.splitlines()[1].split() == ["no", "soul", "plain", "0"]


@pytest.mark.parametrize(("option", "append"), [((), True), (("--no-append",), False)])
def test_run_continues_a_session(anima: Anima, name: str, option: tuple[str, ...], append: bool):
    assert anima("run", "heron", "go", "--name", name, "--session", "talk", *option, "--detach").exit_code == 0

    async def submitted() -> Task:
        client = await AnimaClient.connect(anima.environment["TEMPORAL_ADDRESS"])
        return await client.submitted("default", name)

    assert asyncio.run(submitted()).spec.session_ref == SessionReference(name="talk", append=append)


def test_a_status_names_the_session(capsys: pytest.CaptureFixture[str]):
    show_status(TaskStatus(namespace="default", name="review", uid="uid", session="talk").to_json())
    assert ["Session", "talk"] in [line.split() for line in capsys.readouterr().out.splitlines()]


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (["heron", "go", "--no-append"], "--no-append goes with --session NAME"),
        (["-f", "task.yaml", "--session", "talk"], "leave --session out"),
        (["heron", "go", "--session", "No Label"], "must be a DNS label"),
    ],
)
def test_run_refuses_a_session_that_makes_no_sense(anima: Anima, arguments: list[str], fault: str):
    result = anima("run", *arguments)
    assert result.exit_code == Exit.INVALID
    assert fault in result.stderr
