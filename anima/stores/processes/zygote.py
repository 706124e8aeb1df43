"""The process that Jobs are forked from: single-threaded, no sockets, no secrets.

It reads requests from standard input and writes JSON lines to standard output:
once ``{"ready": …}``, then an answer to each request, written by the supervisor
that took it.  It exits at the end of its input, when the orchestrator is gone.
"""

import gc
import importlib
import json
import os
import signal
import sys
import threading
from pathlib import Path

from anima.stores.processes.launch import HEADER, decode
from anima.stores.processes.supervisor import supervise

_THREADS = Path("/proc/self/task")


def main() -> None:
    """Serve requests; preload the module that is named as the first argument, if any."""
    requests, answers = _private_pipes()
    if len(sys.argv) > 1:
        _preload(sys.argv[1])
    # Nobody waits for supervisors.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    os.write(answers, json.dumps({"ready": True}).encode() + b"\n")
    while header := _read(requests, HEADER.size):
        _hatch(requests, answers, *HEADER.unpack(header))


def _private_pipes() -> tuple[int, int]:
    """Move the pipes out of reach of a module that reads or prints while it is imported."""
    pipes = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    return pipes


def _preload(entrypoint: str) -> None:
    module = importlib.import_module(entrypoint)
    if hasattr(module, "preload"):
        module.preload()
    threads = len(list(_THREADS.iterdir())) if _THREADS.is_dir() else threading.active_count()
    if threads > 1:
        sys.exit(f"anima: importing {entrypoint} starts threads, so Jobs cannot be forked from it")
    # What is frozen is not written to by the collector, so the pages stay shared.
    gc.collect()
    gc.freeze()


def _hatch(requests: int, answers: int, number: int, size: int) -> None:
    done, taken = os.pipe()
    if os.fork():
        os.close(taken)
        if not os.read(done, 1):
            sys.exit(f"anima: request {number} was not taken, so what follows it cannot be read")
        os.close(done)
        return
    body = _read(requests, size)
    if not body:
        os._exit(1)
    os.write(taken, b"1")
    os.close(taken)
    os.setsid()
    supervise(*decode(body), answers)


def _read(descriptor: int, size: int) -> bytes:
    data = bytearray()
    while len(data) < size and (part := os.read(descriptor, size - len(data))):
        data += part
    return bytes(data) if len(data) == size else b""


if __name__ == "__main__":
    main()
