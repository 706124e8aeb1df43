"""Task routes, seen through the client that the SDK and the command use."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

import httpx2
import pytest
import uvicorn

from anima.gateway import Gateway
from anima.home import Home
from anima.model.api import DIGEST_HEADER, RecordedSpec
from anima.model.attempts import AttemptKey, Outcome, ProgressEvent, Report, Usage
from anima.model.binding import SoulBinding
from anima.model.digests import digest_bytes
from anima.model.errors import Conflict, NotFound, Unavailable
from anima.model.inputs import INPUTS_VERSION, inputs_digest, spec_digest
from anima.model.manifest import KINDS
from anima.model.reasons import Reason
from anima.model.task import Phase, ResultReference, TaskSpec
from anima.stores.sql import SqlLedger
from workers.gateway.process import listen, server_of
from workers.gateway.services import Services

Begin = Callable[..., Awaitable[AttemptKey]]
PATH = "/v1/namespaces/default/tasks/review"


def event(sequence: int) -> ProgressEvent:
    return ProgressEvent(sequence=sequence, kind="text", data={"delta": f"part {sequence}\n\n", "nothing": None})


def binding(task_uid: str, spec: TaskSpec) -> SoulBinding:
    digest = digest_bytes(b"x")
    return SoulBinding(
        agent_uid="agent-uid",
        agent_generation=1,
        task_uid=task_uid,
        soul_digest=digest,
        prompt_digest=digest,
        inputs_digest=inputs_digest(spec),
        inputs_version=INPUTS_VERSION,
        envelope_version=1,
        bound_at=datetime(2026, 11, 30, tzinfo=UTC),
    )


async def close(ledger: SqlLedger, key: AttemptKey, phase: Phase, reference: ResultReference | None = None) -> None:
    record = await ledger.task(key.task_uid)
    await ledger.close(record.status.model_copy(update={"phase": phase, "result_ref": reference}))


async def test_tasks_are_listed_newest_first(gateway: Gateway, begin: Begin) -> None:
    for name in ("first", "second", "third"):
        await begin(name)
    assert [status.name for status in await gateway.tasks()] == ["third", "second", "first"]
    assert [status.name for status in await gateway.tasks("default", limit=1)] == ["third"]
    assert await gateway.tasks("other") == []
    assert (await gateway.task("default", "first")).uid == "uid-of-first"


async def test_the_spec_that_counts_is_told_with_its_digest_and_binding(
    gateway: Gateway, begin: Begin, ledger: SqlLedger
) -> None:
    record = await ledger.task((await begin()).task_uid)
    recorded = await gateway.spec("default", "review")
    assert recorded == RecordedSpec(
        spec=record.spec, digest=record.spec_digest, submitted_digest=record.spec_digest, binding=None
    )
    edited = record.spec.model_copy(update={"suspend": True})
    await ledger.edit(record.uid, edited)
    bound = await ledger.bind(binding(record.uid, edited))
    await ledger.close(record.status.model_copy(update={"phase": Phase.FAILED}))
    assert await gateway.spec("default", "review") == RecordedSpec(
        spec=edited, digest=spec_digest(edited), submitted_digest=record.spec_digest, binding=bound
    )


async def test_a_described_task_has_its_attempts(gateway: Gateway, begin: Begin, ledger: SqlLedger) -> None:
    first = await begin()
    await ledger.decide(first, Outcome(succeeded=False, reason=Reason.JOB_FAILED))
    await ledger.report(await begin(attempt=2), Report(answer="Fine.", model="m-1", usage=Usage(output_tokens=5)))
    described = await gateway.describe(KINDS["Task"], "default", "review")
    assert described["uid"] == "uid-of-review"
    found = [(one["key"]["attempt"], one["model"], one["usage"]["outputTokens"]) for one in described["attempts"]]
    assert found == [(1, "", 0), (2, "m-1", 5)]


async def test_a_result_arrives_byte_for_byte_with_its_digest(
    gateway: Gateway, user: httpx2.AsyncClient, begin: Begin, ledger: SqlLedger
) -> None:
    key = await begin()
    answer = "\ufeffNaïve.\r\n\u2028<script>\n"
    await ledger.report(key, Report(answer=answer))
    # Before the workflow has closed the Task, and after.
    assert await gateway.result("default", "review") == answer.encode()
    await close(ledger, key, Phase.SUCCEEDED, (await ledger.attempt(key)).outcome.result)  # type: ignore[union-attr]
    response = await user.get(f"{PATH}/result")
    assert response.content == answer.encode()
    assert response.headers[DIGEST_HEADER] == digest_bytes(answer.encode())
    assert response.headers["content-type"] == "text/plain; charset=utf-8"


async def test_a_task_without_a_result_says_how_it_stands(gateway: Gateway, begin: Begin, ledger: SqlLedger) -> None:
    key = await begin()
    with pytest.raises(NotFound, match="Task default/review has no result; it is Running"):
        await gateway.result("default", "review")
    await ledger.decide(key, Outcome(succeeded=False, reason=Reason.JOB_FAILED))
    await close(ledger, key, Phase.FAILED)
    with pytest.raises(NotFound, match="it is Failed"):
        await gateway.result("default", "review")


async def test_logs_are_any_bytes_of_the_attempt_that_is_asked_for(
    gateway: Gateway, begin: Begin, ledger: SqlLedger, home: Home
) -> None:
    for attempt in (1, 2):
        key = await begin(attempt=attempt)
        log = home.jobs / "default" / (await ledger.attempt(key)).job_name / "log"
        log.parent.mkdir(parents=True)
        log.write_bytes(b"\xff\0 attempt %d" % attempt)
    assert await gateway.logs("default", "review") == b"\xff\0 attempt 2"
    assert await gateway.logs("default", "review", attempt=1) == b"\xff\0 attempt 1"
    assert await gateway.logs("default", "review", tail=3) == b"t 2"
    with pytest.raises(NotFound, match="no such attempt"):
        await gateway.logs("default", "review", iteration=1)


async def test_only_a_closed_task_is_deleted(gateway: Gateway, begin: Begin, ledger: SqlLedger) -> None:
    key = await begin()
    with pytest.raises(Conflict, match="not closed"):
        await gateway.delete_task("default", "review")
    await close(ledger, key, Phase.FAILED)
    await gateway.delete_task("default", "review")
    with pytest.raises(NotFound, match="no Task review"):
        await gateway.task("default", "review")


async def test_events_are_of_the_latest_attempt(gateway: Gateway, begin: Begin, ledger: SqlLedger) -> None:
    first = await begin()
    assert (await gateway.events("default", "review")).events == []
    await ledger.append_event(first, event(0))
    await ledger.decide(first, Outcome(succeeded=False, reason=Reason.JOB_FAILED))
    assert (await gateway.events("default", "review")).decided
    second = await begin(attempt=2)
    for sequence in range(3):
        await ledger.append_event(second, event(sequence))
    page = await gateway.events("default", "review", after=0)
    assert (page.iteration, page.attempt, page.decided) == (0, 2, False)
    assert page.events == [event(1), event(2)]


async def test_a_stream_gives_each_event_once_and_ends_with_its_attempt(
    served: str, services: Services, begin: Begin, ledger: SqlLedger
) -> None:
    key = await begin()
    seen: list[int] = []
    async with Gateway(served, services.keys.user_token) as gateway:
        await ledger.append_event(key, event(0))
        async for found in gateway.follow("default", "review"):
            assert found == event(found.sequence)
            seen.append(found.sequence)
            # What is there before the decision is still sent after it.
            if found.sequence == 0:
                for sequence in range(1, 20):
                    await ledger.append_event(key, event(sequence))
                await ledger.report(key, Report(answer="Fine."))
                await begin(attempt=2)
    assert seen == list(range(20))


async def test_a_stream_waits_for_the_first_attempt_and_ends_with_the_task(
    served: str, services: Services, begin: Begin, ledger: SqlLedger
) -> None:
    key = await begin("deleted")
    async with Gateway(served, services.keys.user_token) as gateway:
        following = asyncio.create_task(_all(gateway, "deleted"))
        await close(ledger, key, Phase.CANCELLED)
        await gateway.delete_task("default", "deleted")
        assert await following == []
        with pytest.raises(NotFound):
            await _all(gateway, "never")


async def test_a_stream_ends_unfinished_with_the_gateway(services: Services, begin: Begin, ledger: SqlLedger) -> None:
    await ledger.append_event(await begin(), event(0))
    listener = listen("127.0.0.1", 0)
    server = server_of(services, "127.0.0.1")
    running = asyncio.create_task(server.serve(sockets=[listener]))
    async with Gateway(f"http://127.0.0.1:{listener.getsockname()[1]}", services.keys.user_token) as gateway:
        with pytest.raises(Unavailable, match="ended the stream of events; follow it again"):
            await _stop_at_the_first_event(gateway, server)
    await running


async def _stop_at_the_first_event(gateway: Gateway, server: uvicorn.Server) -> None:
    async for _ in gateway.follow("default", "review"):
        server.should_exit = True


async def _all(gateway: Gateway, name: str) -> list[ProgressEvent]:
    return [found async for found in gateway.follow("default", name)]


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("/v1/tasks?limit=0", "limit"),
        ("/v1/tasks?limit=501", "limit"),
        ("/v1/tasks?limit=many", "limit"),
        (f"{PATH}/events?after=-2", "after"),
        (f"{PATH}/events?after=9007199254740993", "after"),
        (f"{PATH}/logs?tail=0", "tail"),
        (f"{PATH}/logs?tail=99999999", "tail"),
        (f"{PATH}/logs?attempt=0", "attempt"),
        (f"{PATH}/logs?iteration={'9' * 5000}", "iteration"),
    ],
)
async def test_a_parameter_out_of_range_is_named(user: httpx2.AsyncClient, begin: Begin, path: str, field: str) -> None:
    await begin()
    answer = await user.get(path)
    assert answer.status_code == 422
    assert [problem["path"] for problem in answer.json()["error"]["problems"]] == [field]
    assert len(json.dumps(answer.json())) < 600
