"""``make bench``: the figures, as ratios within one run.

A Task attempt is measured without its Job's own time: from submission to the
final status, less the time from the start of its process to the decided outcome.
"""

import asyncio
import statistics
import sys
import time
from collections.abc import Awaitable, Sequence
from typing import Any

from temporalio.client import WorkflowHandle

from anima.model.task import TaskStatus
from bench.bare import TASK_QUEUE as BARE_QUEUE
from bench.bare import Bare
from bench.world import World, world

ROUNDS = 40
WARM_UP = 5
PROBES = 20
AT_ONCE = (1, 10, 100)
IN_FLIGHT = (0, 50)


async def main() -> None:
    """Measure and print everything."""
    async with world() as w:
        await _ratio(w)
        for number in AT_ONCE:
            await _throughput(w, number)
        for number in IN_FLIGHT:
            await _first_byte(w, number)
        await _burst(w, 50)


async def _ratio(w: World) -> None:
    bare, task, own, events = [], [], [], 0
    for number in range(WARM_UP + ROUNDS):
        bare_time = await _timed(_bare(w, number))
        handle, whole = await _timed_task(w)
        job = await w.job_seconds(handle)
        if number < WARM_UP:
            continue
        bare.append(bare_time)
        task.append(whole - job)
        own.append(job)
        events = len((await handle.fetch_history()).events)
    ratio = statistics.median(task) / statistics.median(bare)
    pairs = statistics.median(t / b for t, b in zip(task, bare, strict=True))
    _line("a bare workflow with one activity", _ms(bare))
    _line("a Task attempt without its Job's own time", _ms(task))
    _line("the Job's own time (rehearsal)", _ms(own))
    _line("ratio of the medians (goal: at most 1.5)", f"{ratio:.2f}, median of the pairs {pairs:.2f}")
    _line("history events of the attempt (goal: at most 40)", str(events))


async def _throughput(w: World, number: int) -> None:
    began = time.perf_counter()
    total = max(number, 20)
    limit = asyncio.Semaphore(number)

    async def one() -> None:
        async with limit:
            await (await w.submit("quick")).result()

    await asyncio.gather(*(one() for _ in range(total)))
    _line(f"Tasks a second, {number} at once", f"{total / (time.perf_counter() - began):.1f}")


async def _first_byte(w: World, in_flight: int) -> None:
    held = [await w.submit("hangs") for _ in range(in_flight)]
    while sum(request.body["model"] == "hang" for request in w.model.requests) < in_flight:
        await asyncio.sleep(0.1)
    spans = []
    for _ in range(PROBES):
        seen, began = len(w.model.requests), time.time()
        await (await w.submit("asks")).result()
        spans.append(w.model.requests[seen].first_byte - began)
    _line(f"submission to first byte at the model, {in_flight} others in flight (goal: under 500 ms)", _ms(spans))
    await asyncio.gather(*(handle.signal("cancel") for handle in held))
    await asyncio.gather(*(handle.result() for handle in held), return_exceptions=True)


async def _burst(w: World, number: int) -> None:
    seen, began = len(w.model.requests), time.time()
    handles = await asyncio.gather(*(w.submit("asks") for _ in range(number)))
    await asyncio.gather(*(handle.result() for handle in handles))
    spans = [request.first_byte - began for request in w.model.requests[seen:]]
    _line(f"submission to first byte at the model, {number} submitted in the same moment", _ms(spans))


async def _bare(w: World, number: int) -> None:
    await w.client.execute_workflow(Bare.run, id=f"bare-{number}", task_queue=BARE_QUEUE)


async def _timed_task(w: World) -> tuple[WorkflowHandle[Any, TaskStatus], float]:
    began = time.perf_counter()
    handle = await w.submit("quick")
    await handle.result()
    return handle, time.perf_counter() - began


async def _timed(work: Awaitable[None]) -> float:
    began = time.perf_counter()
    await work
    return time.perf_counter() - began


def _ms(seconds: Sequence[float]) -> str:
    ordered = sorted(seconds)
    p95 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.95))]
    return f"p50 {statistics.median(ordered) * 1000:.0f} ms, p95 {p95 * 1000:.0f} ms, n {len(ordered)}"


def _line(what: str, figure: str) -> None:
    sys.stdout.write(f"{what}: {figure}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main())
