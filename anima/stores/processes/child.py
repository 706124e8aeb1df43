"""The child that becomes the Job: from the fork to the worker's first line."""

import atexit
import contextlib
import ctypes
import errno
import importlib
import mmap
import os
import resource
import signal
import sys
import tempfile
import threading
import time
import traceback
from pathlib import Path
from typing import Never

from anima.stores.processes.launch import Launch

NOT_FOUND = 127
NOT_STARTED = 126
"""The exit codes that a shell gives to a command it cannot start."""

# Runs the built-in worker in a new interpreter that finds what this one finds.
_FRESH = (
    "import sys; name, *sys.path = sys.argv[1:]; del sys.argv[1:]\n"
    "from importlib import import_module; sys.exit(import_module(name).main())"
)
_ROOM = 16 * 1024 * 1024
"""What the forked worker needs in bytes beyond what it shares with its parent at first."""
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_libc = ctypes.CDLL(None)


def die_with_parent(parent: int) -> None:
    """Be killed when the supervisor dies (Linux)."""
    if sys.platform == "linux":
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)


def adopt_orphans() -> None:
    """Become the parent of every orphan among one's descendants (Linux)."""
    if sys.platform == "linux":
        _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1)


def become(launch: Launch, environment: dict[str, str], scratch: Path, status: int) -> Never:
    """Turn this forked child, whose output is set already, into the Job.

    Args:
        launch: what to run.
        environment: the Job's own variables, literal.
        scratch: the working directory.
        status: a descriptor on which to say why the Job could not be started.
    """
    variables = {"HOME": str(scratch), "TMPDIR": str(scratch), "PATH": os.environ.get("PATH", os.defpath)} | environment
    try:
        _confine(launch, scratch, status)
        if launch.command or launch.fresh:
            _execute(launch, variables)
        _check_room(launch)
        _prepare(launch, variables)
        main = importlib.import_module(launch.entrypoint).main
    except BaseException as error:
        _give_up(launch, error, status)
    os.close(status)
    _leave(main)


def _confine(launch: Launch, scratch: Path, status: int) -> None:
    close_others(status)
    os.chdir(scratch)
    os.umask(0o077)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if launch.memory_limit is not None:
        hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
        limit = launch.memory_limit if hard == resource.RLIM_INFINITY else min(launch.memory_limit, hard)
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        # The C library keeps some numbers for itself.
        with contextlib.suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_DFL)


def _check_room(launch: Launch) -> None:
    """Refuse a memory limit that the fork has used up already: it would fail in odd ways, or not end."""
    if launch.memory_limit is None:
        return
    try:
        mmap.mmap(-1, _ROOM, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS).close()
    except OSError:
        message = f"its memory limit of {launch.memory_limit} bytes is too small; raise resources.limits.memory"
        raise OSError(errno.ENOMEM, message) from None


def close_others(*kept: int) -> None:
    """Close every descriptor but the standard three and those that are kept."""
    low = 3
    for descriptor in (*sorted(kept), os.sysconf("SC_OPEN_MAX")):
        os.closerange(low, descriptor)
        low = descriptor + 1


def _execute(launch: Launch, variables: dict[str, str]) -> Never:
    command = launch.command or [sys.executable, "-P", "-c", _FRESH, launch.entrypoint, *sys.path]
    encoded = {name.encode(): value.encode() for name, value in variables.items()}
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.execvpe(command[0], command, encoded)  # noqa: S606


def _prepare(launch: Launch, variables: dict[str, str]) -> None:
    """Make the fork look like an interpreter that has just started."""
    os.environ.clear()
    for name, value in variables.items():
        os.environb[name.encode()] = value.encode()
    time.tzset()
    tempfile.tempdir = None
    sys.argv = [launch.entrypoint]
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", 1, "utf-8", "backslashreplace", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", 1, "utf-8", "backslashreplace", closefd=False)  # noqa: SIM115
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _give_up(launch: Launch, error: BaseException, status: int) -> Never:
    what = f"command {launch.command[0]!r}" if launch.command else f"worker {launch.entrypoint!r}"
    if isinstance(error, FileNotFoundError) and launch.command:
        code, message = NOT_FOUND, f"{what} was not found"
    else:
        reason = error.strerror if isinstance(error, OSError) else f"{type(error).__name__}: {error}"
        code, message = NOT_STARTED, f"{what} could not be started: {reason}"
    with contextlib.suppress(OSError):
        os.write(2, f"anima: {message}\n".encode(errors="replace"))
        os.write(status, message.encode(errors="replace")[:2048])
    os._exit(code)


def _leave(main: object) -> Never:
    # The interpreter's own way out takes apart every preloaded module, which
    # costs more than the fork; `multiprocessing` leaves its forks like this, too.
    assert callable(main)
    code: object = 1
    try:
        code = main()
    except SystemExit as leaving:
        code = leaving.code
    except BaseException:
        traceback.print_exc()
    number = _exit_code(code)
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(number)


def _exit_code(code: object) -> int:
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    print(code, file=sys.stderr)  # noqa: T201
    return 1
