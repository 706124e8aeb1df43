"""Signalling the supervisor of a Job, and waiting until it is gone."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Iterator

from anima.stores.processes.directory import JobDirectory

_FIRST_PAUSE = 0.005
_LONGEST_PAUSE = 0.5


def tell(directory: JobDirectory, number: signal.Signals) -> None:
    """Send a signal to the supervisor if it lives."""
    with _supervisor(directory) as (pid, handle):
        _send(pid, handle, number)


async def stop(directory: JobDirectory, number: signal.Signals) -> None:
    """Send a signal to the supervisor, and return when it holds the Job no more."""
    with _supervisor(directory) as (pid, handle):
        _send(pid, handle, number)
        if handle is not None:
            await _exited(handle)
    pause = _FIRST_PAUSE
    while await asyncio.to_thread(directory.holder) is not None:
        await asyncio.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)


@contextlib.contextmanager
def _supervisor(directory: JobDirectory) -> Iterator[tuple[int | None, int | None]]:
    """Give the supervisor's pid and, on Linux, a handle that can mean no other process."""
    pid = directory.holder()
    if pid is None or sys.platform != "linux":
        yield pid, None
        return
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        yield None, None
        return
    try:
        # Still the holder after the handle was taken, so the handle is its own.
        yield (pid, handle) if directory.holder() == pid else (None, None)
    finally:
        os.close(handle)


def _send(pid: int | None, handle: int | None, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        if handle is not None and sys.platform == "linux":
            signal.pidfd_send_signal(handle, number)
        elif pid is not None:
            os.kill(pid, number)


async def _exited(handle: int) -> None:
    loop = asyncio.get_running_loop()
    exited = asyncio.Event()
    loop.add_reader(handle, exited.set)
    try:
        await exited.wait()
    finally:
        loop.remove_reader(handle)
