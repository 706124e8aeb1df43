"""From nothing to an answer: what a person does who has just cloned Anima."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
# How this machine reaches a package index is its own affair.
NETWORK = re.compile(r"(PIP|UV|SSL|REQUESTS|CURL)_.*|.*_proxy", re.IGNORECASE)


@pytest.mark.verify
@pytest.mark.timeout(1200)
def test_make_run_in_a_fresh_clone_prints_a_real_models_answer(tmp_path: Path) -> None:
    clone = tmp_path / "anima clone"
    for file in _tracked():
        target = clone / file
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / file, target)
    environment = {name: value for name, value in os.environ.items() if NETWORK.fullmatch(name)}
    environment |= {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    environment |= {f"ANIMA_{part}_PORT": "0" for part in ("GATEWAY", "TEMPORAL", "UI", "MODEL")}
    # A new terminal has no virtual environment of this checkout on its PATH.
    environment["PATH"] = environment["PATH"].replace(f"{ROOT / '.venv' / 'bin'}:", "")

    done = subprocess.run(["make", "run"], cwd=clone, env=environment, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "Provider: the small model on this CPU" in done.stdout
    assert re.search(r"^Soul      sha256:[0-9a-f]{64}$", done.stdout, re.MULTILINE)


def _tracked() -> list[str]:
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return [file for file in listed.stdout.split("\0") if file and (ROOT / file).is_file()]
