"""Where supervisors announce the ends of Jobs: one datagram socket for all."""

import asyncio
import contextlib
import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

from anima.model.names import check_label
from anima.stores.processes.supervisor import SOCKET

_MAX_DATAGRAM = 256


class Announcements:
    """Receives ``namespace/name`` of each Job that ends.

    Args:
        run: the directory of the socket.
    """

    def __init__(self, run: Path) -> None:
        self._run = run
        self._socket: socket.socket | None = None
        self._queues: set[asyncio.Queue[tuple[str, str]]] = set()

    def open(self) -> None:
        """Listen, in place of whoever listened before."""
        self._run.mkdir(mode=0o700, parents=True, exist_ok=True)
        (self._run / SOCKET).unlink(missing_ok=True)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        _bind(self._socket, self._run)
        asyncio.get_running_loop().add_reader(self._socket, self._receive)

    def close(self) -> None:
        """Stop listening."""
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket)
            self._socket.close()

    @contextlib.contextmanager
    def subscription(self) -> Iterator[asyncio.Queue[tuple[str, str]]]:
        """Hand out a queue that gets every (namespace, name) from now on."""
        queue: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
        self._queues.add(queue)
        try:
            yield queue
        finally:
            self._queues.discard(queue)

    def _receive(self) -> None:
        assert self._socket is not None
        with contextlib.suppress(BlockingIOError):
            while True:
                if announced := _parse(self._socket.recv(_MAX_DATAGRAM)):
                    for queue in self._queues:
                        queue.put_nowait(announced)


def _parse(datagram: bytes) -> tuple[str, str] | None:
    namespace, _, name = datagram.decode(errors="replace").partition("/")
    try:
        return check_label(namespace), check_label(name)
    except ValueError:
        return None


def _bind(listener: socket.socket, run: Path) -> None:
    # A socket's path is limited to about 100 bytes; both ways around are short.
    if sys.platform != "linux":
        with contextlib.chdir(run):
            listener.bind(SOCKET)
        return
    directory = os.open(run, os.O_RDONLY | os.O_DIRECTORY)
    try:
        listener.bind(f"/proc/self/fd/{directory}/{SOCKET}")
    finally:
        os.close(directory)
