"""`anima apply`, `get`, `describe` and `delete` against a real gateway."""

import json
from pathlib import Path

import pytest

from anima.documents import read_documents
from anima.exits import Exit
from tests.cli.conftest import Anima

SOUL = "You are Vesper, a heron.\r\nNo hurry: $(HOME) {{x}} @file\n"


def manifests(name: str, text: str = SOUL) -> str:
    agent = {
        "apiVersion": "anima.dev/v1alpha1",
        "kind": "Agent",
        "metadata": {"name": name},
        "spec": {"providerRef": {"name": name}, "soul": {"inline": text}},
    }
    provider = (
        f"apiVersion: anima.dev/v1alpha1\nkind: Provider\nmetadata: {{name: {name}}}\nspec: {{type: rehearsal}}\n"
    )
    return f"{provider}---\n{json.dumps(agent)}\n"


@pytest.mark.parametrize("text", ["", "# nothing yet\n", "---\n---\n"])
def test_a_file_without_a_manifest_is_named(anima: Anima, text: str):
    assert "no manifest" in anima.error(Exit.NOT_FOUND, "apply", "-f", "-", stdin=text)["message"]


def test_a_file_is_applied_and_applied_again_unchanged(anima: Anima, name: str, tmp_path: Path):
    path = tmp_path / "a.yaml"
    path.write_bytes(manifests(name).encode())
    first, second = anima("apply", "-f", str(path)), anima("apply", "-f", str(path))
    assert first.stdout == f"Provider default/{name} created\nAgent default/{name} created\n"
    assert second.stdout == f"Provider default/{name} unchanged\nAgent default/{name} unchanged\n"
    assert anima.data("get", "agent", name)["spec"]["soul"]["inline"] == SOUL


def test_standard_input_and_a_namespace_are_applied(anima: Anima, name: str):
    assert anima("apply", "-f", "-", "-n", name, stdin=manifests(name)).exit_code == 0
    assert [item["metadata"]["name"] for item in anima.data("get", "agents", "-n", name)["items"]] == [name]
    assert name not in [item["metadata"]["name"] for item in anima.data("get", "agents")["items"]]
    assert name in [item["metadata"]["name"] for item in anima.data("get", "agents", "-A")["items"]]


def test_nothing_is_applied_if_anything_is_invalid(anima: Anima, name: str, tmp_path: Path):
    (tmp_path / "a.yaml").write_text(manifests(name))
    (tmp_path / "b.yaml").write_text(manifests(f"{name}-b").replace("rehearsal", "telepathy"))
    error = anima.error(Exit.INVALID, "apply", "-f", str(tmp_path))
    (problem,) = error["problems"]
    assert error["reason"] == "ProviderInvalid"
    assert (Path(problem["source"]).name, problem["document"], problem["path"]) == ("b.yaml", 1, "spec.type")
    assert anima("get", "provider", name).exit_code == Exit.NOT_FOUND


def test_a_dry_run_applies_nothing(anima: Anima, name: str):
    result = anima("apply", "-f", "-", "--dry-run", stdin=manifests(name))
    assert f"Agent default/{name} validated" in result.stdout
    assert anima("get", "agent", name).exit_code == Exit.NOT_FOUND


def test_a_person_reads_one_line_a_problem_without_the_soul(anima: Anima, name: str):
    text = manifests(name).replace('"spec": {"pro', '"spec": {"sowl": 1, "pro').replace('"name": "', '"name": "X')
    result = anima("apply", "-f", "-", stdin=text)
    lines = result.stderr.splitlines()
    assert result.exit_code == Exit.INVALID
    assert any("spec.sowl: unknown field (did you mean soul?)" in line for line in lines)
    assert all(line.startswith("error: standard input:") for line in lines)
    assert "Vesper" not in result.output
    assert "\x1b" not in result.output


def test_tasks_in_a_file_are_submitted_after_what_they_need(anima: Anima, name: str):
    task = {"apiVersion": "anima.dev/v1alpha1", "kind": "Task", "metadata": {"name": name}}
    task["spec"] = {"type": "ai", "agentRef": {"name": name}, "prompt": "go"}
    result = anima("apply", "-f", "-", stdin=f"{json.dumps(task)}\n---\n{manifests(name)}")
    assert result.stdout.splitlines()[-1] == f"Task default/{name} submitted"
    assert anima("status", name).exit_code == 0


def test_a_stale_resource_version_is_a_conflict(anima: Anima, name: str):
    anima("apply", "-f", "-", stdin=manifests(name))
    agent = anima.data("get", "agent", name)
    agent["metadata"]["resourceVersion"] = "999999"
    assert anima.error(Exit.CONFLICT, "apply", "-f", "-", stdin=json.dumps(agent))["reason"] == "Conflict"


def test_what_get_prints_can_be_applied_again(anima: Anima, name: str):
    anima("apply", "-f", "-", stdin=manifests(name))
    printed = anima("get", "agent", name, "-o", "yaml").stdout
    (document,) = read_documents(printed)
    assert document.data["spec"]["soul"]["inline"] == SOUL
    assert anima("apply", "-f", "-", stdin=printed).stdout == f"Agent default/{name} unchanged\n"


def test_tables_have_a_line_an_object_and_no_colour_in_a_pipe(anima: Anima, name: str):
    anima("apply", "-f", "-", "-n", name, stdin=manifests(name))
    result = anima("get", "agents", "-n", name)
    header, line = result.stdout.splitlines()
    assert header.split() == ["NAMESPACE", "NAME", "READY", "REASON", "PROVIDER", "GENERATION"]
    assert line.split() == [name, name, "True", "Ready", name, "1"]
    assert "\x1b" not in result.stdout


def test_describe_shows_readiness_digest_and_sizes_but_not_the_soul(anima: Anima, name: str):
    anima("apply", "-f", "-", stdin=manifests(name))
    shown = anima("describe", "agent", name).stdout
    assert "Ready" in shown
    assert "sha256:" in shown
    assert f"{len(SOUL.encode())} bytes" in shown
    assert "Vesper" not in shown


def test_describe_says_why_an_agent_is_not_ready(anima: Anima, name: str):
    soul = {"configMapRef": {"name": name, "key": "SOUL.md"}, "digest": f"sha256:{'0' * 64}"}
    agent = {"apiVersion": "anima.dev/v1alpha1", "kind": "Agent", "metadata": {"name": name}, "spec": {"soul": soul}}
    anima("apply", "-f", "-", stdin=json.dumps(agent))
    assert "SoulSourceMissing" in anima("describe", "agent", name).stdout


def test_a_deleted_object_is_not_found(anima: Anima, name: str):
    anima("apply", "-f", "-", stdin=manifests(name))
    assert anima("delete", "agent", name).stdout == f"Agent default/{name} deleted\n"
    assert anima.error(Exit.NOT_FOUND, "get", "agent", name)["reason"] == "NotFound"
    assert anima("delete", "agent", name).exit_code == Exit.NOT_FOUND


def test_a_secret_is_never_shown(anima: Anima, name: str):
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": {"key": "aHVudGVyMg=="}}
    assert anima("apply", "-f", "-", stdin=json.dumps(secret)).exit_code == 0
    for arguments in (["get", "secret", name, "-o", "json"], ["get", "secrets"], ["describe", "secret", name]):
        shown = anima(*arguments).output
        assert "key" in shown
        assert "hunter2" not in shown
        assert "aHVudGVyMg==" not in shown


@pytest.mark.parametrize(("kind", "remedy"), [("agnets", "did you mean Agent?"), ("pods", "known kinds")])
def test_an_unknown_kind_is_refused_with_the_nearest(anima: Anima, kind: str, remedy: str):
    assert remedy in anima.error(Exit.INVALID, "get", kind)["message"]


@pytest.mark.parametrize("name", ["../../secrets", "A", "", "a" * 64])
def test_a_name_that_is_no_label_is_wrong_usage(anima: Anima, name: str):
    assert anima("get", "agent", name).exit_code == Exit.INVALID


def test_a_missing_file_is_not_found(anima: Anima, tmp_path: Path):
    error = anima.error(Exit.NOT_FOUND, "apply", "-f", str(tmp_path / "missing.yaml"))
    assert "missing.yaml" in error["message"]
