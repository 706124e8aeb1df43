"""At least a hundred random kills under forty Tasks at once: nothing is lost, nothing runs twice."""

import asyncio
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from anima.handle import TaskHandle
from anima.model.errors import Unavailable
from anima.model.task import Phase, TaskStatus
from tests.e2e.place import Place, open_place

KILLS = 120
AT_ONCE = 40
# Seconds between two kills: less, and nothing would ever be up for long enough to work.
PAUSE = (0.3, 2.5)
TASK_LIMIT = 300.0
PATIENT = {"retryPolicy": {"maxRetries": 100, "initialDelay": "100ms", "maxDelay": "1s"}}
WEIGHTS = {"orchestrator": 3, "gateway": 3, "temporal": 2, "job": 8, "zygote": 2, "supervisor": 3}


@dataclass
class Figures:
    killed: Counter[str] = field(default_factory=Counter)
    ended: list[TaskStatus] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    def __str__(self) -> str:
        attempts = sum(status.total_attempts for status in self.ended)
        kills = ", ".join(f"{count} {what}" for what, count in sorted(self.killed.items()))
        times = sorted(self.seconds)
        return (
            f"{self.killed.total()} kills ({kills}); {len(self.ended)} Tasks in {attempts} attempts; "
            f"a Task took {times[len(times) // 2]:.1f} s (median), {times[-1]:.1f} s (longest)"
        )


@pytest.mark.soak
@pytest.mark.timeout(1800)
async def test_random_kills_lose_nothing(tmp_path: Path) -> None:
    seed = time.time_ns()
    print(f"\nseed {seed}")  # noqa: T201
    figures, over = Figures(), asyncio.Event()
    async with open_place(tmp_path) as place:
        await place.agent("works", "--work=2")
        async with asyncio.TaskGroup() as tasks:
            for lane in range(AT_ONCE):
                tasks.create_task(_submit(place, lane, over, figures))
            await _kill(place, random.Random(seed), figures)
            over.set()
        await place.ready()
        await place.quiet()
        print(figures)  # noqa: T201
        for status in figures.ended:
            await _check(place, status)
        lines = place.witness.read_text().split("\n")[:-1]
    keys = [line.split()[0] for line in lines]
    assert len(keys) == len(set(keys)), [key for key, count in Counter(keys).items() if count > 1]


async def _kill(place: Place, chance: random.Random, figures: Figures) -> None:
    targets = _targets(place)
    while figures.killed.total() < KILLS:
        await asyncio.sleep(chance.uniform(*PAUSE))
        (what,) = chance.choices(list(WEIGHTS), list(WEIGHTS.values()))
        if found := await asyncio.to_thread(targets[what]):
            with suppress(ProcessLookupError):
                os.kill(chance.choice(found), signal.SIGKILL)
                figures.killed[what] += 1


def _targets(place: Place) -> dict[str, Callable[[], list[int]]]:
    def part(name: str) -> Callable[[], list[int]]:
        return lambda: [pid] if (pid := place.children[name].pid) else []

    parts = {name: part(name) for name in place.children}
    return {**parts, "job": place.jobs, "zygote": place.zygotes, "supervisor": lambda: [*place.supervisors().values()]}


async def _submit(place: Place, lane: int, over: asyncio.Event, figures: Figures) -> None:
    number = 0
    while not over.is_set():
        number += 1
        began = time.monotonic()
        handle = await _started(place, f"soak-{lane}-{number}")
        figures.ended.append(await place.end(handle, TASK_LIMIT))
        figures.seconds.append(time.monotonic() - began)


async def _started(place: Place, name: str) -> TaskHandle:
    while True:
        try:
            return await place.submit("works", name, **PATIENT)
        except Unavailable:
            await asyncio.sleep(0.2)


async def _check(place: Place, status: TaskStatus) -> None:
    """Check that the Task ended right, once, with all that it should leave."""
    assert status.phase is Phase.SUCCEEDED, (status.name, status.reason, status.message)
    attempts = await place.ledger.attempts(status.uid)
    assert [attempt.key.attempt for attempt in attempts] == list(range(1, status.total_attempts + 1))
    assert [bool(a.outcome and a.outcome.succeeded) for a in attempts] == [False] * (len(attempts) - 1) + [True]
    answered = attempts[-1].key.path
    assert answered in place.jobs_of(status.uid)
    assert (await place.answer(place.client.handle("default", status.name))).startswith(f"{answered} was asked: ")
    assert status.soul_binding is not None
    assert status.soul_binding == await place.binding(status.uid)
    assert await place.gateway.task("default", status.name) == status
