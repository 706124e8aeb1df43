"""`anima run` and the commands that follow a Task."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from anima.cli.connection import find_connection
from anima.exits import Exit
from anima.home import DEFAULT_GATEWAY, Home
from anima.stack.addresses import Addresses, HomeLock, write_addresses
from tests.cli.conftest import Anima

ANSWER = "Line one.\r\nLine two: é"


def apply_agent(anima: Anima, name: str, **spec: Any) -> None:
    agent: dict[str, Any] = {"apiVersion": "anima.dev/v1alpha1", "kind": "Agent", "metadata": {"name": name}}
    agent["spec"] = {"systemPrompt": {"inline": "Review."}, **spec}
    assert anima("apply", "-f", "-", stdin=json.dumps(agent)).exit_code == 0


def test_run_prints_the_answer_alone_on_standard_output(anima: Anima, name: str):
    anima.record(name, "go", ANSWER)
    result = anima("run", "heron", "go", "--name", name)
    assert result.exit_code == 0, result.output
    assert result.stdout_bytes == ANSWER.encode()
    assert f"Task default/{name} submitted" in result.stderr


def test_run_as_json_has_status_and_answer(anima: Anima, name: str):
    anima.record(name, "go", ANSWER)
    printed = json.loads(anima("run", "--agent", "heron", "--name", name, "-", "-o", "json", stdin="go").stdout)
    assert (printed["status"]["phase"], printed["answer"]) == ("Succeeded", ANSWER)


def test_a_failed_task_exits_with_1_and_says_why(anima: Anima, name: str):
    result = anima("run", "--agent", "heron", "--name", name, "fail")
    assert result.exit_code == Exit.TASK_FAILED
    assert result.stdout == ""
    assert "ended Failed (JobFailed): exit code 3. Read `anima logs TASK`." in result.stderr
    assert result.stderr.count("exit code 3") == 1
    assert anima.error(Exit.TASK_FAILED, "wait", name)["reason"] == "JobFailed"


def test_run_detached_prints_only_the_name(anima: Anima, name: str):
    result = anima("run", "--agent", "heron", "--name", name, "--detach", "hold")
    assert result.stdout == f"{name}\n"
    assert anima("cancel", name).exit_code == 0


def test_run_makes_up_a_name_that_is_a_label(anima: Anima):
    agent = "a" * 63
    made = anima("run", "--agent", agent, "--detach", "go").stdout.strip()
    assert made.startswith("aaaa")
    assert len(made) <= 63


def test_run_takes_the_one_task_of_a_file(anima: Anima, name: str, tmp_path: Path):
    spec = {"type": "ai", "agentRef": {"name": "heron"}, "prompt": "go"}
    task = {"apiVersion": "anima.dev/v1alpha1", "kind": "Task", "metadata": {"name": name}, "spec": spec}
    path = tmp_path / "task.json"
    path.write_text(json.dumps(task))
    assert anima("run", "-f", str(path), "--detach").stdout == f"{name}\n"
    assert anima("run", "-f", str(path), "--name", f"{name}-b", "--detach").stdout == f"{name}-b\n"
    path.write_text("kind: Agent\napiVersion: anima.dev/v1alpha1\nmetadata: {name: a}\nspec: {}\n")
    assert "must hold one Task" in anima.error(Exit.INVALID, "run", "-f", str(path))["message"]


@pytest.mark.parametrize(
    "arguments",
    [[], ["go"], ["--agent", "heron"], ["heron", "please", "go"], ["-f", "x", "--agent", "heron"], ["-f", "x", "go"]],
)
def test_run_wants_either_a_file_or_an_agent_and_a_prompt(anima: Anima, arguments: list[str]):
    result = anima("run", *arguments)
    assert result.exit_code == Exit.INVALID
    assert "give an Agent and a prompt in quotes" in result.stderr


def test_a_blank_prompt_is_refused(anima: Anima):
    assert anima.error(Exit.INVALID, "run", "--agent", "heron", " ")["reason"] == "TaskInvalid"
    assert "byte 1" in anima.error(Exit.INVALID, "run", "--agent", "heron", "-", stdin=b"a\xff")["message"]


def test_an_open_task_of_other_content_is_a_conflict(anima: Anima, name: str):
    anima("run", "--agent", "heron", "--name", name, "--detach", "hold")
    error = anima.error(Exit.CONFLICT, "run", "--agent", "heron", "--name", name, "other")
    assert error["reason"] == "TaskConflict"
    anima("cancel", name)


def test_a_closed_task_of_other_content_is_a_conflict_and_nothing_is_started(anima: Anima, name: str):
    anima.record(name, "go", ANSWER)
    error = anima.error(Exit.CONFLICT, "run", "--agent", "heron", "--name", name, "--detach", "other")
    assert error["reason"] == "TaskConflict"
    assert "once it has ended" in error["remedy"]
    # A run that is refused the name would be the one that Temporal finds.
    assert anima.data("status", name)["uid"] == anima.data("get", "task", name)["uid"]


def test_a_task_that_has_ended_takes_no_signal(anima: Anima, name: str):
    anima.record(name, "go", ANSWER)
    error = anima.error(Exit.CONFLICT, "cancel", name)
    assert error["message"].startswith(f"Task default/{name} has ended (Succeeded), so it takes no cancel")


def test_a_wait_that_is_too_short_says_that_the_task_goes_on(anima: Anima, name: str):
    anima("run", "--agent", "heron", "--name", name, "--detach", "hold")
    error = anima.error(Exit.UNAVAILABLE, "wait", name, "--timeout", "10ms")
    assert "it goes on" in error["message"]
    assert anima("wait", name, "--timeout", "five").exit_code == Exit.INVALID
    anima("cancel", name)
    assert anima.data("wait", name)["phase"] == "Succeeded"


def test_signals_reach_the_task_with_their_hints(anima: Anima, name: str):
    anima("run", "--agent", "heron", "--name", name, "--detach", "hold")
    assert anima("suspend", name, "--by", "ada", "--reason", "lunch").exit_code == 0
    assert anima("resume", name).exit_code == 0
    shown = anima.data("status", name)
    assert shown["message"] == str([("suspend", {"by": "ada", "reason": "lunch"}), ("resume", None)])
    assert "Running" in anima("status", name).stdout
    assert anima("cancel", name).stdout == f"Task default/{name} is being cancelled\n"


def test_resume_says_that_the_spec_still_holds(anima: Anima, name: str):
    spec = {"type": "ai", "agentRef": {"name": "heron"}, "prompt": "hold", "suspend": True}
    task = {"apiVersion": "anima.dev/v1alpha1", "kind": "Task", "metadata": {"name": name}, "spec": spec}
    assert anima("run", "-f", "-", "--detach", stdin=json.dumps(task)).exit_code == 0
    assert "is still held by its spec" in anima("resume", name).stdout
    assert anima("cancel", name).exit_code == 0


@pytest.mark.parametrize("command", ["status", "result", "logs", "suspend", "resume", "cancel", "wait", "rerun"])
def test_an_unknown_task_is_not_found(anima: Anima, name: str, command: str):
    assert name in anima.error(Exit.NOT_FOUND, command, name)["message"]


def test_the_record_answers_for_a_task_that_temporal_does_not_know(anima: Anima, name: str):
    anima.record(name, "go", ANSWER)
    assert anima.data("status", name)["phase"] == "Succeeded"
    assert anima("result", name).stdout_bytes == ANSWER.encode()
    assert anima.data("wait", name)["phase"] == "Succeeded"


def test_the_result_of_a_failed_task_exits_with_1(anima: Anima, name: str):
    anima.record(name, "go", None)
    result = anima("result", name)
    assert (result.exit_code, result.stdout) == (Exit.TASK_FAILED, "")
    assert "JobFailed" in result.stderr


def test_tasks_lists_records_by_namespace(anima: Anima, name: str):
    anima.record(name, "go", ANSWER)
    assert name in [item["name"] for item in anima.data("tasks")["items"]]
    assert anima.data("tasks", "-n", name) == {"items": []}
    line = next(line for line in anima("tasks", "-A").stdout.splitlines() if name in line)
    assert line.split()[:3] == ["default", name, "Succeeded"]
    assert name in anima("get", "tasks").stdout


def test_a_closed_record_can_be_deleted(anima: Anima, name: str):
    anima.record(name, "go", ANSWER)
    assert anima("delete", "task", name).exit_code == 0
    assert anima("status", name).exit_code == Exit.NOT_FOUND


def test_rerun_submits_the_same_spec_under_another_name(anima: Anima, name: str):
    anima.record(name, "go", ANSWER)
    assert anima.data("rerun", name, "--dry-run")["submitted"] == {}
    again = anima.data("rerun", name, "--name", f"{name}-2")
    assert again["submitted"] == {"namespace": "default", "name": f"{name}-2"}
    assert anima("status", f"{name}-2").exit_code == 0
    assert "so its Agent is not compared\nnothing was submitted\n" in anima("rerun", name, "--dry-run").stdout


def changes(anima: Anima, name: str) -> dict[str, dict[str, Any]]:
    return {item["what"]: item for item in anima.data("rerun", name, "--dry-run")["changes"]}


def test_rerun_shows_what_has_changed_since_the_task_was_bound(anima: Anima, name: str):
    apply_agent(anima, name, soul={"inline": "You are Vesper."})
    before = anima.data("soul", "show", name)
    anima.record(name, "go", ANSWER, bound_to=before, agent=name)
    assert not [item for item in changes(anima, name).values() if item["changed"]]
    apply_agent(anima, name, soul={"inline": "You are Umber."})
    found = changes(anima, name)
    assert {what: item["changed"] for what, item in found.items()} == {
        "spec digest": False,
        "inputs digest": False,
        "Agent uid": False,
        "Agent generation": True,
        "soul digest": True,
        "prompt digest": True,
    }
    assert found["soul digest"]["then"] == before["soulDigest"]
    assert "Agent generation: 1 -> 2\n" in anima("rerun", name, "--dry-run").stdout


def test_rerun_takes_the_spec_as_it_was_edited(anima: Anima, name: str):
    apply_agent(anima, name, soul={"inline": "You are Vesper."})
    bound_to = anima.data("soul", "show", name)
    anima.record(name, "go", ANSWER, bound_to, agent=name, edit={"prompt": "hold"})
    assert {what for what, item in changes(anima, name).items() if item["changed"]} == {"spec digest", "inputs digest"}
    anima.data("rerun", name, "--name", f"{name}-2")
    # The stand-in holds for that prompt only.
    assert anima.data("status", f"{name}-2")["phase"] == "Running"
    anima("cancel", f"{name}-2")


def test_rerun_compares_no_prompt_where_the_task_has_its_own_role(anima: Anima, name: str):
    apply_agent(anima, name, soul={"inline": "You are Vesper."})
    bound_to = anima.data("soul", "show", name)
    anima.record(name, "go", ANSWER, bound_to, agent=name, edit={"ai": {"systemPrompt": "Sing."}})
    assert "prompt digest" not in changes(anima, name)


def test_rerun_of_a_task_whose_agent_is_gone_submits_nothing(anima: Anima, name: str):
    apply_agent(anima, name, soul={"inline": "You are Vesper."})
    anima.record(name, "go", ANSWER, anima.data("soul", "show", name), agent=name)
    assert anima("delete", "agent", name).exit_code == 0
    assert f"no Agent {name}" in anima.error(Exit.NOT_FOUND, "rerun", name, "--name", f"{name}-2")["message"]
    assert anima("status", f"{name}-2").exit_code == Exit.NOT_FOUND


def test_a_described_task_has_its_attempts_with_model_and_tokens(anima: Anima, name: str):
    anima.record(name, "go", ANSWER)
    described = anima.data("describe", "task", name)
    assert described["phase"] == "Succeeded"
    (attempt,) = described["attempts"]
    assert (attempt["model"], attempt["usage"]["inputTokens"]) == ("small-1", 7)
    assert attempt["outcome"]["succeeded"]
    assert "model: small-1" in anima("describe", "task", name).stdout


def test_an_interrupted_wait_leaves_the_task_running(anima: Anima, name: str):
    command = [
        sys.executable,
        "-c",
        "from anima.cli import main; main()",
        "run",
        "--agent",
        "heron",
        "--name",
        name,
        "hold",
    ]
    environment = {**os.environ, **anima.environment}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        assert run.stderr is not None
        assert "submitted" in run.stderr.readline()
        assert "Running" in run.stderr.readline()
        run.send_signal(signal.SIGINT)
        stdout, stderr = run.communicate()
    assert run.returncode == Exit.INTERRUPTED
    assert stdout == ""
    assert f"`anima cancel {name}` ends it" in stderr
    assert f"`anima wait {name}` waits again" in stderr
    assert "Traceback" not in stderr
    assert anima.data("status", name)["phase"] == "Running"
    anima("cancel", name)


def test_with_nothing_running_one_line_says_so(anima: Anima, tmp_path: Path):
    alone = Anima({"ANIMA_HOME": str(tmp_path), "TEMPORAL_ADDRESS": "127.0.0.1:1"}, Home(tmp_path))
    for arguments in (["get", "agents"], ["run", "--agent", "a", "go"], ["tasks"]):
        result = alone(*arguments)
        assert result.exit_code == Exit.UNAVAILABLE
        (line,) = result.stderr.splitlines()
        assert "is `anima dev` running?" in line


def test_without_temporal_tasks_are_still_listed(anima: Anima, name: str):
    anima.record(name, "go", ANSWER)
    deaf = Anima({**anima.environment, "TEMPORAL_ADDRESS": "127.0.0.1:1"}, anima.home)
    assert name in [item["name"] for item in deaf.data("tasks")["items"]]
    assert "Temporal" in deaf.error(Exit.UNAVAILABLE, "run", "--agent", "heron", "go")["message"]


def test_a_wrong_token_is_refused_before_a_task_is_started(anima: Anima, name: str):
    stranger = Anima({**anima.environment, "ANIMA_TOKEN": "wrong"}, anima.home)
    error = stranger.error(Exit.INVALID, "tasks")
    assert error["reason"] == "RequestRefused"
    assert error["message"].endswith(f"another home's stack may answer at {anima.environment['ANIMA_GATEWAY_URL']}")
    assert stranger("run", "--agent", "heron", "--name", name, "--detach", "go").exit_code == Exit.INVALID
    assert anima("status", name).exit_code == Exit.NOT_FOUND


def test_the_running_stack_is_found_in_its_home(tmp_path: Path):
    home = Home(tmp_path)
    home.run.mkdir()
    write_addresses(home, Addresses("http://127.0.0.1:9", "127.0.0.1:8", "http://ui", None, os.getpid()))
    stopped = find_connection(home, {})
    assert (stopped.gateway, stopped.temporal) == (DEFAULT_GATEWAY, None)
    with HomeLock(home):
        found = find_connection(home, {})
        assert (found.gateway, found.temporal, found.temporal_namespace) == (
            "http://127.0.0.1:9",
            "127.0.0.1:8",
            "default",
        )
        own = find_connection(home, {"ANIMA_GATEWAY_URL": "http://x", "TEMPORAL_ADDRESS": "y:1"})
        assert (own.gateway, own.temporal) == ("http://x", None)
