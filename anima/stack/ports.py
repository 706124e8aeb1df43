"""The loopback ports of the stack, chosen and checked before anything starts."""

import os
import socket
from contextlib import ExitStack
from dataclasses import dataclass, fields, replace

import httpx2

from anima.stack.process import StackError

HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Ports:
    """One port for each part; 0 chooses a free one."""

    gateway: int = 8420
    temporal: int = 7233
    ui: int = 8233
    model: int = 8421

    def claim(self) -> "Ports":
        """Return the ports with each 0 replaced, all of them free just now.

        Raises:
            StackError: a port is taken; the message names every such port and its option.
        """
        taken: list[str] = []
        chosen: dict[str, int] = {}
        # Held together, so that no two parts are given the same free port.
        with ExitStack() as held:
            for part, port in self._items():
                try:
                    chosen[part] = _bind(held, port)
                except OSError as error:
                    taken.append(_complaint(part, port, error))
        if taken:
            raise StackError("\n".join(taken) + self._owner())
        return Ports(**chosen)

    def free(self) -> "Ports":
        """Return the ports with each taken one replaced by 0."""
        return replace(self, **{part: 0 for part, port in self._items() if not _is_free(port)})

    def options(self) -> list[str]:
        """Return the options of `anima dev` that choose these ports; none for a default."""
        defaults = dict(Ports()._items())
        return [f"--{part}-port={port}" for part, port in self._items() if port != defaults[part]]

    def _items(self) -> list[tuple[str, int]]:
        return [(field.name, getattr(self, field.name)) for field in fields(self)]

    def _owner(self) -> str:
        if not _is_anima(self.gateway):
            return ""
        return f"\nAnother Anima answers on port {self.gateway}: stop it, or choose other ports for this one."


def _bind(held: ExitStack, port: int) -> int:
    probe = held.enter_context(socket.socket())
    # What the parts do too: a port whose connections are still winding down is free.
    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    probe.bind((HOST, port))
    probe.listen()
    number: int = probe.getsockname()[1]
    return number


def _is_free(port: int) -> bool:
    try:
        with ExitStack() as held:
            _bind(held, port)
    except OSError:
        return False
    return True


def _complaint(part: str, port: int, error: OSError) -> str:
    cause = os.strerror(error.errno) if error.errno else str(error)
    return (
        f"port {port} for {part} cannot be used: {cause}; stop what uses it, or give --{part}-port N "
        f"(or ANIMA_{part.upper()}_PORT), where 0 chooses a free one"
    )


def _is_anima(port: int) -> bool:
    try:
        answer = httpx2.get(f"http://{HOST}:{port}/v1/version", timeout=1, trust_env=False)
        return answer.is_success and set(answer.json()) == {"version"}
    except (httpx2.HTTPError, ValueError, TypeError):
        return False
