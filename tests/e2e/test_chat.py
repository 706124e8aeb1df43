"""A real conversation with the small model: two chats, and a restart of everything between them."""

import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from anima.exits import Exit
from anima.gateway import Gateway
from anima.home import Home
from anima.keys import load
from anima.stack import running_stack
from tests.cli.test_dev import run, start, until_line
from tests.workers.test_small_model import needs_model

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "reviewer"


@asynccontextmanager
async def stack(home: Home) -> AsyncIterator[None]:
    """Run `anima dev`, and end it as Ctrl-C does."""
    process = await start(home, "dev")
    try:
        await until_line(process, "Ctrl-C stops it.")
        yield
        process.send_signal(signal.SIGINT)
        await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def given(gateway: Gateway, task: str) -> list[dict[str, Any]]:
    """Return what a Task's worker told of the transcript that it was given."""
    page = await gateway.events("default", task)
    return [event.data for event in page.events if event.kind == "transcript"]


@needs_model
@pytest.mark.verify
@pytest.mark.timeout(300)
async def test_a_chat_goes_on_after_a_restart_of_everything(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    async with stack(home):
        code, _, err = await run(home, "apply", "-f", str(EXAMPLE))
        assert code == Exit.OK, err
        code, first, err = await run(home, "chat", "talk", "--agent", "reviewer", "--message", "What is a bug?")
        assert code == Exit.OK, err
    async with stack(home):
        code, second, err = await run(home, "chat", "talk", "--message", "Give me an example.")
        assert code == Exit.OK, err
        running = running_stack(home)
        assert running is not None
        async with Gateway(running.gateway, load(home.user_token)) as gateway:
            records = await gateway.records("default", "talk")
            # The newest Task comes first.
            transcripts = [await given(gateway, task.name) for task in reversed(await gateway.tasks())]

    assert [record.content.strip() for record in records] == [
        "What is a bug?",
        first.strip(),
        "Give me an example.",
        second.strip(),
    ]
    assert transcripts == [[{"messages": 0, "leftOut": 0}], [{"messages": 2, "leftOut": 0}]]
    assert len({record.revision for record in records}) == 1
