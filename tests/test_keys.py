"""Key files: private, whole, and the same for everyone who asks at once."""

import stat
import subprocess
import sys
from pathlib import Path

import pytest

from anima.home import Home
from anima.keys import Keys, load, load_or_create
from anima.model.errors import Conflict, NotFound, Unavailable

RACERS = 8


def test_a_key_is_made_once_and_private(tmp_path: Path) -> None:
    path = tmp_path / "home with a space" / "keys" / "user.token"
    key = load_or_create(path)
    assert load_or_create(path) == load(path) == key
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert [entry.name for entry in path.parent.iterdir()] == ["user.token"]


def test_processes_that_race_agree_on_the_key(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from anima.keys import load_or_create\n"
        "print('ready', flush=True); sys.stdin.readline(); print(load_or_create(Path(sys.argv[1])))"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "keys" / "attempt.key")]
    racers = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(RACERS)
    ]
    for racer in racers:
        assert racer.stdout is not None
        assert racer.stdout.readline() == "ready\n"
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    keys = {racer.communicate()[0] for racer in racers}
    assert len(keys) == 1
    assert keys == {load(tmp_path / "keys" / "attempt.key") + "\n"}


def test_whoever_loses_the_race_takes_the_winners_key(tmp_path: Path) -> None:
    path = tmp_path / "keys" / "attempt.key"
    winner = "w" * 43

    def generate_late() -> str:
        path.write_text(winner)
        return "l" * 43

    assert load_or_create(path, generate_late) == winner


@pytest.mark.parametrize("content", ["", "\n", "short", "x" * 44])
def test_a_file_that_holds_no_key_is_refused_and_left_alone(tmp_path: Path, content: str) -> None:
    path = tmp_path / "user.token"
    path.write_text(content)
    with pytest.raises(Conflict, match="holds no key; delete it"):
        load_or_create(path)
    assert path.read_text() == content


def test_a_home_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Unavailable, match="cannot be used: Not a directory"):
        Keys.load_or_create(Home(tmp_path / "file"))


def test_a_missing_key_says_who_makes_it(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="`anima dev` makes it"):
        load(tmp_path / "user.token")


def test_keys_do_not_show_themselves(tmp_path: Path) -> None:
    keys = Keys.load_or_create(Home(tmp_path))
    assert keys.user_token not in repr(keys)
    assert keys.attempt_secret.decode() not in repr(keys)
