"""The embedded stack: ports, children that heal, and one whole stack."""

import asyncio
import json
import os
import signal
import socket
import stat
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from anima.home import Home
from anima.stack import Addresses, Ports, Stack, StackError, parts, process, running_stack
from anima.stack.addresses import HomeLock, write_addresses
from anima.stack.process import Child, Part

FREE = Ports(gateway=0, temporal=0, ui=0, model=0)

# Writes its process id where the test looks for it, then sleeps.
BEACON = "import os, sys, time; open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(600)"
DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + BEACON


def beacon_part(beacon: Path, program: str = BEACON) -> Part:
    async def ready(pid: int) -> bool:
        return _content(beacon) == str(pid)

    return Part("lamp", (sys.executable, "-c", program, str(beacon)), ready)


@asynccontextmanager
async def running(part: Part, directory: Path, said: list[str]) -> AsyncIterator[Child]:
    child = Child(part, dict(os.environ), directory, directory / "lamp.log", said.append)
    try:
        await child.start()
        yield child
    finally:
        await child.stop()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while True:
            if condition():
                return
            await asyncio.sleep(0.02)


def _content(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def _alive(pid: int) -> bool:
    try:
        # A zombie that nobody has waited for yet is as dead as one gets.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def until_replaced(child: Child, pid: int) -> None:
    await until(lambda: child.pid not in (None, pid))


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "a home")
    home.run.mkdir(parents=True)
    return home


class TestPorts:
    def test_zero_chooses_distinct_free_ports(self) -> None:
        chosen = FREE.claim()
        numbers = {chosen.gateway, chosen.temporal, chosen.ui, chosen.model}
        assert len(numbers) == 4
        assert 0 not in numbers

    def test_a_taken_port_is_named_with_its_option(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            with pytest.raises(StackError, match=f"port {port} for temporal .*--temporal-port N"):
                Ports(gateway=0, temporal=port, ui=0, model=0).claim()

    def test_every_taken_port_is_named_at_once(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as two:
            taken = Ports(one.getsockname()[1], 0, two.getsockname()[1], 0)
            with pytest.raises(StackError, match=r"(?s)--gateway-port.*--ui-port"):
                taken.claim()

    def test_two_parts_on_one_port_are_refused(self) -> None:
        port = FREE.claim().gateway
        with pytest.raises(StackError, match=f"port {port} for temporal"):
            Ports(gateway=port, temporal=port, ui=0, model=0).claim()

    def test_a_taken_port_may_be_given_up_for_a_free_one(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            asked = Ports(gateway=taken.getsockname()[1], temporal=FREE.claim().temporal, ui=0, model=0)
            assert asked.free() == Ports(0, asked.temporal, 0, 0)

    def test_the_options_that_choose_ports_leave_defaults_out(self) -> None:
        assert Ports().options() == []
        assert Ports(temporal=40000, model=40001).options() == ["--temporal-port=40000", "--model-port=40001"]


class TestHome:
    def test_a_second_stack_on_a_home_is_refused(self, home: Home) -> None:
        write_addresses(home, Addresses("http://127.0.0.1:1", "127.0.0.1:2", "http://127.0.0.1:3", None, 42))
        with (
            HomeLock(home),
            pytest.raises(StackError, match=r"process 42, gateway http://127\.0\.0\.1:1"),
            HomeLock(home),
        ):
            pass

    def test_addresses_of_a_dead_stack_do_not_count(self, home: Home) -> None:
        addresses = Addresses("http://127.0.0.1:1", "127.0.0.1:2", "http://127.0.0.1:3", None, 42)
        write_addresses(home, addresses)
        assert running_stack(home) is None
        with HomeLock(home):
            assert running_stack(home) == addresses

    async def test_a_home_that_cannot_be_created_is_one_clear_message(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        with pytest.raises(StackError, match="file/home cannot be used: Not a directory; set ANIMA_HOME"):
            async with Stack(Home(tmp_path / "file" / "home"), FREE, print):
                pass

    async def test_nothing_is_left_of_a_stack_that_finds_a_port_taken(self, home: Home) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            stack = Stack(home, Ports(taken.getsockname()[1], 0, 0, 0), print)
            with pytest.raises(StackError):
                async with stack:
                    pass
        assert not stack.children
        assert not home.temporal_database.exists()
        with HomeLock(home):
            pass


class TestEnvironment:
    def test_no_key_of_a_provider_and_no_other_cluster_is_inherited(self, home: Home) -> None:
        inherited = {
            "PATH": "/bin",
            "ANTHROPIC_API_KEY": "a",
            "OPENAI_API_KEY": "b",
            "TEMPORAL_ADDRESS": "cloud:7233",
            "TEMPORAL_API_KEY": "c",
        }
        addresses = Addresses("http://127.0.0.1:1", "127.0.0.1:2", "http://127.0.0.1:3", None, 42)
        environment = parts.environment(home, addresses, Ports(gateway=1), inherited)
        assert environment == {
            "PATH": "/bin",
            "ANIMA_HOME": str(home.root),
            "ANIMA_GATEWAY_HOST": "127.0.0.1",
            "ANIMA_GATEWAY_PORT": "1",
            "TEMPORAL_CONFIG_FILE": os.devnull,
            "TEMPORAL_ADDRESS": "127.0.0.1:2",
            "TEMPORAL_NAMESPACE": "default",
        }


class TestChild:
    async def test_a_killed_child_is_started_again(self, tmp_path: Path) -> None:
        said: list[str] = []
        async with running(beacon_part(tmp_path / "beacon"), tmp_path, said) as child:
            first = child.pid
            assert first
            os.kill(first, signal.SIGKILL)
            await until_replaced(child, first)
            await until(lambda: len(said) == 2)
        assert said == ["lamp was ended by signal 9; it is started again in 0.2 s", "lamp is ready again"]

    async def test_a_stopped_child_is_gone(self, tmp_path: Path) -> None:
        async with running(beacon_part(tmp_path / "beacon"), tmp_path, []) as child:
            pid = child.pid
        assert pid
        assert not _alive(pid)
        assert child.pid is None

    async def test_a_child_that_ignores_the_polite_signal_is_killed(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(process, "_GRACE", 0.1)
        said: list[str] = []
        async with running(beacon_part(tmp_path / "beacon", DEAF), tmp_path, said) as child:
            pid = child.pid
        assert pid
        assert not _alive(pid)
        assert said == ["lamp does not stop and is killed"]

    async def test_a_child_that_cannot_start_fails_with_the_end_of_its_log(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(process, "_FIRST_PAUSE", 0.0)
        broken = beacon_part(tmp_path / "beacon", "raise SystemExit('no oil')")
        with pytest.raises(StackError, match=r"(?s)lamp does not start: ended with exit code 1.*lamp\.log:\n.*no oil"):
            async with running(broken, tmp_path, []):
                pass

    @pytest.mark.skipif(sys.platform != "linux", reason="only Linux ties a process to its parent")
    async def test_a_child_dies_with_a_stack_that_is_killed(self, tmp_path: Path) -> None:
        command = (sys.executable, "-c", STARTER, str(tmp_path))
        starter = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        assert starter.stdout
        pid = int(await starter.stdout.readline())
        assert _alive(pid)
        starter.kill()
        await starter.wait()
        await until(lambda: not _alive(pid))


STARTER = f"""
import asyncio, os, sys
from pathlib import Path
from anima.stack.process import Child, Part

directory = Path(sys.argv[1])
beacon = directory / "beacon"

async def ready(pid):
    return beacon.exists() and beacon.read_text() == str(pid)

async def main():
    part = Part("lamp", (sys.executable, "-c", {BEACON!r}, str(beacon)), ready)
    child = Child(part, dict(os.environ), directory, directory / "lamp.log", print)
    await child.start()
    print(child.pid, flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


class TestWholeStack:
    async def test_every_part_starts_heals_and_stops(self, home: Home) -> None:
        said: list[str] = []
        stack = Stack(home, FREE, said.append)
        async with stack as addresses:
            published = json.loads(home.stack.read_text())
            assert published.pop("temporalNamespace") == "default"
            assert Addresses(**published) == addresses
            assert stat.S_IMODE(home.stack.stat().st_mode) == 0o600
            for child in stack.children:
                pid = child.pid
                assert pid
                os.kill(pid, signal.SIGKILL)
                await until(lambda name=child.name: f"{name} is ready again" in said)
            pids = [child.pid for child in stack.children]
        assert not home.stack.exists()
        assert not any(pid and _alive(pid) for pid in pids)
