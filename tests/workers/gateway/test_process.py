"""The gateway as a process: its port, its keys, its end."""

import asyncio
import json
import os
import re
import signal
import socket
import stat
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest

from anima.exits import Exit
from anima.gateway import Gateway
from anima.home import Home
from anima.keys import load
from anima.model.errors import Unavailable
from anima.model.manifest import KINDS
from workers.gateway.process import listen

AGENTS = KINDS["Agent"]


@asynccontextmanager
async def gateway_process(home: Path, **environment: str) -> AsyncIterator[Process]:
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "workers.gateway"),
        env=kept | {"ANIMA_HOME": str(home), "ANIMA_GATEWAY_PORT": "0"} | environment,
        stderr=PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def address(process: Process) -> str:
    """Return where it listens, as its log says."""
    assert process.stderr is not None
    async for line in process.stderr:
        if found := re.search(r"listening on ([\d.]+), port (\d+)", json.loads(line)["event"]):
            return f"http://{found[1]}:{found[2]}"
    raise AssertionError("the gateway ended before it listened")


async def test_it_serves_without_temporal_and_ends_on_sigterm(tmp_path: Path) -> None:
    root = tmp_path / "home with a space"
    async with gateway_process(root, TEMPORAL_ADDRESS="127.0.0.1:1") as process:
        async with Gateway(await address(process), load(Home(root).user_token)) as gateway:
            assert await gateway.list(AGENTS) == []
        assert stat.S_IMODE(Home(root).database.stat().st_mode) == 0o600
        process.send_signal(signal.SIGTERM)
        _, rest = await process.communicate()
    assert (process.returncode, rest) == (Exit.OK, b"")


async def test_two_that_start_at_once_share_keys_and_database(tmp_path: Path) -> None:
    async with gateway_process(tmp_path) as one, gateway_process(tmp_path) as other:
        for where in await asyncio.gather(address(one), address(other)):
            async with Gateway(where, load(Home(tmp_path).user_token)) as gateway:
                assert await gateway.list(AGENTS) == []


async def test_a_port_in_use_is_one_message(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        async with gateway_process(tmp_path, ANIMA_GATEWAY_PORT=str(port)) as process:
            _, said = await process.communicate()
    assert process.returncode == Exit.UNAVAILABLE
    assert (
        said.decode() == f"gateway: port {port} on 127.0.0.1 is in use; end what holds it, or set ANIMA_GATEWAY_PORT\n"
    )
    assert not Home(tmp_path).user_token.exists()


async def test_a_home_that_cannot_be_one_is_one_message(tmp_path: Path) -> None:
    async with gateway_process(Path(os.devnull)) as process:
        _, said = await process.communicate()
    assert process.returncode == Exit.UNAVAILABLE
    assert said.endswith(b"cannot be used: Not a directory; check its directory's owner and mode\n")
    assert b"Traceback" not in said


def test_an_address_of_another_machine_is_named() -> None:
    with pytest.raises(Unavailable, match=r"cannot listen on 192\.0\.2\.1, port 0: .*; check ANIMA_GATEWAY_HOST"):
        listen("192.0.2.1", 0)


async def test_no_log_line_holds_a_query_a_header_or_a_body(tmp_path: Path) -> None:
    async with gateway_process(tmp_path) as process:
        where = await address(process)
        token = load(Home(tmp_path).user_token)
        async with httpx2.AsyncClient(base_url=where, trust_env=False) as client:
            for headers in ({}, {"Authorization": f"Bearer {token}"}, {"Host": "rebound.example"}):
                path = "/v1/namespaces/default/agents/reviewer?text=Marigold"
                await client.put(path, headers=headers, content=b'{"kind": "Marigold"}')
        process.send_signal(signal.SIGTERM)
        _, said = await process.communicate()
    assert token not in said.decode()
    assert "Marigold" not in said.decode()


def test_an_answer_is_sent_without_waiting_for_more() -> None:
    with listen("127.0.0.1", 0) as listener, socket.create_connection(listener.getsockname()):
        connection, _ = listener.accept()
        with connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
