"""What a zygote is told to start, and the frame in which it travels.

The environment follows the launch in the same frame.  The zygote reads only the
header; the forked supervisor reads the rest from the pipe, so that no Job's
environment is ever in the memory from which the next one is forked.
"""

import json
import struct
from collections.abc import Mapping
from dataclasses import asdict, dataclass

HEADER = struct.Struct("!QQ")
"""The number of the request, and the size in bytes of what follows."""


@dataclass(frozen=True, slots=True)
class Launch:
    """One Job to start.  Times are in seconds, sizes in bytes."""

    number: int
    directory: str
    announce: str
    """The directory of the socket where the end is announced."""
    entrypoint: str
    """The module of the built-in worker."""
    command: list[str] | None
    """The program to run instead of the built-in worker."""
    fresh: bool
    """Run the built-in worker in a new interpreter, not in the fork."""
    timeout: float | None
    grace: float
    linger: float
    memory_limit: int | None


def encode(launch: Launch, environment: Mapping[str, str]) -> bytes:
    """Return the frame of one request."""
    body = json.dumps({"launch": asdict(launch), "environment": dict(environment)}).encode()
    return HEADER.pack(launch.number, len(body)) + body


def decode(body: bytes) -> tuple[Launch, dict[str, str]]:
    """Read what follows the header of a frame."""
    content = json.loads(body)
    return Launch(**content["launch"]), content["environment"]
