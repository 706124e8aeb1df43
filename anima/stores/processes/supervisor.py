"""The process that watches one Job and writes down how it ended.

It outlives the orchestrator and the zygote.  Signals are its only input:

* ``SIGTERM``: the Job is deleted; end it with grace, then kill.
* ``SIGUSR1``: its attempt is decided; let it end by itself for a while.
"""

import contextlib
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Never

from anima.stores.processes import census, child
from anima.stores.processes.directory import Claim, Ending, JobDirectory
from anima.stores.processes.launch import Launch

SOCKET = "jobs.sock"
DELETE = signal.SIGTERM
RETIRE = signal.SIGUSR1
_AWAITED = frozenset({signal.SIGCHLD, signal.SIGALRM, DELETE, RETIRE})
_BLOCKED = _AWAITED | {signal.SIGINT, signal.SIGHUP}

_BUSY_PAUSE = 0.01
_ANNOUNCE_TIMEOUT = 5.0


def supervise(launch: Launch, environment: dict[str, str], answers: int) -> Never:
    """Claim the Job, start it, watch it to its end, and exit.

    Args:
        launch: what to start.
        environment: the Job's own; cleared here once the Job has it.
        answers: the pipe on which the request is answered.
    """
    # Before the lock is taken nobody can know whom to signal, so none is lost.
    signal.pthread_sigmask(signal.SIG_BLOCK, _BLOCKED)
    # Some systems drop SIGCHLD, though blocked, if nobody handles it.
    signal.signal(signal.SIGCHLD, lambda *_: None)
    answer = _detach(answers, launch.number)
    directory = JobDirectory(Path(launch.directory))
    try:
        job = _start(directory, launch, environment)
    except OSError as error:
        answer(f"{error.strerror}: {error.filename}" if error.filename else str(error))
        os._exit(1)
    environment.clear()
    answer("")
    if job is not None:
        job.watch()
    os._exit(0)


def _detach(answers: int, number: int) -> Callable[[str], None]:
    """Let go of all that the zygote has open; return how to answer its request, once."""
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    child.close_others(answers)

    def answer(error: str) -> None:
        with contextlib.suppress(OSError):
            os.write(answers, json.dumps({"number": number, "error": error[:1024]}).encode() + b"\n")
        os.close(answers)

    return answer


def _start(directory: JobDirectory, launch: Launch, environment: dict[str, str]) -> "_Job | None":
    while not directory.hold():
        # Another supervisor is about to claim this Job, or has.
        if directory.claim():
            return None
        time.sleep(_BUSY_PAUSE)
    if directory.claim():
        return None
    directory.remove_scratch()
    directory.scratch.mkdir(mode=0o700)
    log = os.open(directory.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    return _fork(directory, launch, environment)


def _fork(directory: JobDirectory, launch: Launch, environment: dict[str, str]) -> "_Job | None":
    child.adopt_orphans()
    supervisor = os.getpid()
    gate, opener = os.pipe()
    status, report = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.setpgid(0, 0)
        child.die_with_parent(supervisor)
        os.close(opener)
        if not os.read(gate, 1):
            os._exit(0)
        child.become(launch, environment, directory.scratch, report)
    os.close(gate)
    os.close(report)
    # The Job waits at its gate until it is on disk that it has started.
    if not directory.decide(_claim(pid)):
        os.close(opener)
        os.waitpid(pid, 0)
        directory.remove_scratch()
        return None
    os.write(opener, b"1")
    os.close(opener)
    return _Job(directory, launch, pid, status)


def _claim(pid: int) -> Claim:
    with contextlib.suppress(OSError):
        os.setpgid(pid, pid)
    process = census.look(pid)
    return Claim(
        started_at=_now(),
        group=pid,
        session=os.getsid(0),
        ticks=process.started if process else 0,
        boot=census.boot(),
    )


class _Job:
    """A running Job, and what is yet to be done to it."""

    def __init__(self, directory: JobDirectory, launch: Launch, pid: int, status: int) -> None:
        self._directory = directory
        self._launch = launch
        self._pid = pid
        self._status = status
        self._exit: int | None = None
        self._cause = ""
        self._timed_out = False
        self._due: dict[Callable[[], None], float] = {}
        if launch.timeout is not None:
            self._plan(self._time_out, launch.timeout)

    def watch(self) -> None:
        """Wait for the end, hastened by deadlines and signals; then write it down."""
        while not self._reap():
            self._react(self._wait())
        self._kill_descendants()
        self._write_down()
        _announce(Path(self._launch.announce), self._directory)

    def _wait(self) -> int:
        pause = max(min(self._due.values()) - time.monotonic(), 0.001) if self._due else 0
        signal.setitimer(signal.ITIMER_REAL, pause)
        return signal.sigwait(_AWAITED)

    def _react(self, number: int) -> None:
        if number == DELETE:
            self._stop("deleted while it ran")
        elif number == RETIRE and self._retired not in self._due:
            self._plan(self._retired, self._launch.linger)
        for action in [action for action, due in self._due.items() if due <= time.monotonic()]:
            del self._due[action]
            action()

    def _plan(self, action: Callable[[], None], delay: float) -> None:
        self._due[action] = time.monotonic() + delay

    def _time_out(self) -> None:
        self._timed_out = not self._cause
        self._stop(f"ran longer than its timeout of {self._launch.timeout:g} s")

    def _retired(self) -> None:
        self._stop("stopped: it ran on after its attempt was decided")

    def _stop(self, cause: str) -> None:
        if not self._cause:
            self._cause = cause
            self._signal(signal.SIGTERM)
            self._plan(self._kill, self._launch.grace)

    def _kill(self) -> None:
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        # Not reaped yet, so both numbers are still its own.  It may have left its group.
        os.kill(self._pid, number)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._pid, number)

    def _reap(self) -> bool:
        """Collect what has ended; return whether the Job's own process is among it."""
        while self._exit is None:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return False
            if pid == self._pid:
                self._exit = os.waitstatus_to_exitcode(status)
        return True

    def _kill_descendants(self) -> None:
        """Kill all that the Job has left behind, whatever group or session it is in.

        Every orphan below becomes a child of this process (Linux), so when it has
        no child there is none left.
        """
        if sys.platform != "linux":
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while True:
                if not os.waitpid(-1, os.WNOHANG)[0]:
                    self._kill_children()
                    os.waitpid(-1, 0)

    def _kill_children(self) -> None:
        # Only this process reaps them, so until then their numbers are their own.
        for process in census.processes():
            if process.parent == os.getpid():
                if process.group == self._pid:
                    os.killpg(process.group, signal.SIGKILL)
                else:
                    os.kill(process.pid, signal.SIGKILL)

    def _write_down(self) -> None:
        assert self._exit is not None
        killed = f"killed by {_signal_name(-self._exit)}" if self._exit < 0 else ""
        messages = [self._cause or self._failure() or killed, self._directory.remove_scratch()]
        self._directory.end(
            Ending(
                ended_at=_now(),
                exit_code=self._exit if self._exit >= 0 else 128 - self._exit,
                timed_out=self._timed_out,
                message="; ".join(message for message in messages if message),
            )
        )

    def _failure(self) -> str:
        """Return why the Job could not be started, if it says so."""
        os.set_blocking(self._status, False)
        try:
            return os.read(self._status, 4096).decode(errors="replace")
        except BlockingIOError:
            return ""


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _announce(run: Path, job: JobDirectory) -> None:
    """Tell the orchestrator, if one listens; a lost message is caught by its slow check."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as announcement:
        # A socket's path is limited to about 100 bytes, a relative one is short.
        os.chdir(run)
        announcement.settimeout(_ANNOUNCE_TIMEOUT)
        announcement.sendto(f"{job.namespace}/{job.name}".encode(), SOCKET)


def _now() -> str:
    return datetime.now(UTC).isoformat()
