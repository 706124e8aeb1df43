"""One kill -9 at one point: armed by a test, pulled by the program that gets there."""

import json
import os
import select
import signal
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from anima.stores.processes import census

CONTROL = "ANIMA_TEST_CONTROL"
"""The directory where triggers are armed, in the environment of the test programs."""

When = Literal["before", "after"]


@dataclass(frozen=True)
class Trigger:
    """Kill `pid` once, when `point` is reached.

    Args:
        point: an activity's name, or the last word of a route.
        when: before it acts, or after it acted and before its answer is on record.
        pid: whom to kill; 0 is the one who gets there.
        witness: if set, the Job that wrote the last line of this file is killed.
        parent: kill the supervisor of that Job instead.
    """

    point: str
    when: When
    pid: int = 0
    witness: str = ""
    parent: bool = False

    def arm(self, control: Path) -> None:
        """Replace whatever was armed."""
        _fired(control).unlink(missing_ok=True)
        draft = control / "draft"
        draft.write_text(json.dumps(asdict(self)))
        draft.replace(_armed(control))


def disarm(control: Path) -> None:
    _armed(control).unlink(missing_ok=True)


def fired_at(control: Path) -> float | None:
    """Return when the trigger was pulled; none if it was not."""
    with suppress(FileNotFoundError, ValueError):
        return float(_fired(control).read_text())
    return None


def reached(point: str, when: When) -> None:
    """Kill, if a trigger is armed for this point and nobody has pulled it."""
    control = Path(os.environ[CONTROL])
    try:
        trigger = Trigger(**json.loads(_armed(control).read_text()))
    except FileNotFoundError:
        return
    if (trigger.point, trigger.when) != (point, when):
        return
    with suppress(FileExistsError):
        with _fired(control).open("x") as fired:
            fired.write(str(time.time()))
        kill(_victim(trigger))


def kill(pid: int) -> None:
    """Kill a process and return when it is gone."""
    with suppress(ProcessLookupError):
        handle = os.pidfd_open(pid)
        try:
            signal.pidfd_send_signal(handle, signal.SIGKILL)
            select.select([handle], [], [], 10)
        finally:
            os.close(handle)


def _victim(trigger: Trigger) -> int:
    if trigger.witness:
        job = int(Path(trigger.witness).read_text().split()[-1])
        return _parent(job) if trigger.parent else job
    return trigger.pid or os.getpid()


def _parent(pid: int) -> int:
    process = census.look(pid)
    if process is None:
        raise ProcessLookupError(f"the Job {pid} is gone already")
    return process.parent


def _armed(control: Path) -> Path:
    return control / "armed.json"


def _fired(control: Path) -> Path:
    return control / "fired"
