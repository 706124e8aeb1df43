"""`anima soul`: digest, check, publish and show."""

import hashlib
import json
from pathlib import Path

import pytest

from anima.documents import read_documents
from anima.exits import Exit
from tests.cli.conftest import Anima

TEXT = "\ufeffYou are Vesper.\r\nCalm, $(HOME) and é.\n"


@pytest.fixture
def soul(tmp_path: Path) -> Path:
    path = tmp_path / "SOUL.md"
    path.write_bytes(TEXT.encode())
    return path


def test_the_digest_is_that_of_sha256sum(anima: Anima, soul: Path):
    expected = f"sha256:{hashlib.sha256(soul.read_bytes()).hexdigest()}"
    assert anima("soul", "digest", str(soul)).stdout == f"{expected}\n"
    assert anima.data("soul", "check", str(soul)) == {"digest": expected, "bytes": len(TEXT.encode()), "limit": 8192}


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"x" * 8193, "SoulTooLarge"),
        (b" \n", "SoulSourceInvalid"),
        (b"a\0", "SoulSourceInvalid"),
        (b"a\xff", "SoulSourceInvalid"),
    ],
)
def test_a_file_that_can_be_no_soul_is_refused_by_check_and_publish(anima: Anima, soul: Path, data: bytes, reason: str):
    soul.write_bytes(data)
    assert anima.error(Exit.INVALID, "soul", "check", str(soul))["reason"] == reason
    assert anima.error(Exit.INVALID, "soul", "publish", str(soul), "--name", "x")["reason"] == reason


def test_a_file_without_an_end_is_refused(anima: Anima):
    for command in ("digest", "check"):
        assert anima.error(Exit.INVALID, "soul", command, "/dev/zero")["reason"] == "SoulTooLarge"


def test_publish_stores_an_immutable_config_map_and_prints_the_block(anima: Anima, soul: Path, name: str):
    result = anima("soul", "publish", str(soul), "--name", name)
    (document,) = read_documents(result.stdout)
    block = document.data["soul"]
    digest = hashlib.sha256(soul.read_bytes()).hexdigest()
    assert block == {
        "configMapRef": {"name": f"{name}-{digest[:12]}", "key": "SOUL.md"},
        "digest": f"sha256:{digest}",
    }
    stored = anima.data("get", "configmap", block["configMapRef"]["name"])
    assert (stored["immutable"], stored["data"]) == (True, {"SOUL.md": TEXT})
    assert anima("soul", "publish", str(soul), "--name", name).exit_code == 0


def test_publish_refuses_a_name_that_leaves_no_room_for_the_digest(anima: Anima, soul: Path):
    error = anima.error(Exit.INVALID, "soul", "publish", str(soul), "--name", "a" * 60)
    assert "metadata.name" in error["message"]


def test_show_tells_digests_and_sizes_and_the_text_only_on_request(anima: Anima, soul: Path, name: str):
    block = json.loads(anima("soul", "publish", str(soul), "--name", name, "-o", "json").stdout)
    agent = {"apiVersion": "anima.dev/v1alpha1", "kind": "Agent", "metadata": {"name": name}}
    agent["spec"] = {"systemPrompt": {"inline": "Review."}, **block}
    assert anima("apply", "-f", "-", stdin=json.dumps(agent)).exit_code == 0
    shown = anima("soul", "show", name)
    assert block["soul"]["digest"] in shown.stdout
    assert "of 112640 bytes" in shown.stdout
    assert "Vesper" not in shown.output
    text = anima("soul", "show", name, "--text")
    assert text.stdout_bytes.decode().startswith("Review.\n\n")
    assert TEXT in text.stdout_bytes.decode()


def test_a_missing_file_is_wrong_usage(anima: Anima, tmp_path: Path):
    assert anima("soul", "digest", str(tmp_path / "none")).exit_code == Exit.INVALID
