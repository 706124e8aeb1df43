"""What the kernel tells of other processes (Linux; elsewhere nothing)."""

import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_BOOT_ID = _PROC / "sys/kernel/random/boot_id"


@dataclass(frozen=True, slots=True)
class Process:
    """One line of the process table."""

    pid: int
    state: str
    parent: int
    group: int
    session: int
    started: int
    """Clock ticks since the machine booted: with the pid it names a process for good."""


def look(pid: int) -> Process | None:
    """Return what is known of a process; none if there is no such process."""
    try:
        line = (_PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return None
    # The command stands in brackets and may itself hold brackets and spaces.
    fields = line.rpartition(")")[2].split()
    return Process(
        pid=pid,
        state=fields[0],
        parent=int(fields[1]),
        group=int(fields[2]),
        session=int(fields[3]),
        started=int(fields[19]),
    )


def processes() -> Iterator[Process]:
    """Yield every process that can still do something: zombies are left out."""
    pids = [int(entry.name) for entry in _PROC.iterdir() if entry.name.isdigit()] if _PROC.is_dir() else []
    for pid in pids:
        process = look(pid)
        if process is not None and process.state not in "ZX":
            yield process


def boot() -> str:
    """Name this boot of the machine: pids mean nothing in another one."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""


def kill(process: Process) -> None:
    """Kill exactly this process, not another one that has its pid by now."""
    if sys.platform != "linux":
        return
    try:
        pidfd = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return
    try:
        current = look(process.pid)
        if current is not None and current.started == process.started:
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    except ProcessLookupError:
        return
    finally:
        os.close(pidfd)
