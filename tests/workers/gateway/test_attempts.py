"""Attempt routes: one input, progress, and a report that decides once."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import httpx2
import pytest

from activities.transcripts import TranscriptReader
from anima.model.attempts import (
    MAX_EVENT_BYTES,
    MAX_RESULT_BYTES,
    AttemptInput,
    AttemptKey,
    Outcome,
    TranscriptReference,
)
from anima.model.reasons import Reason
from anima.model.session import Message, Role, SessionLock
from anima.model.transcript import MAX_BUDGET
from anima.stores.sql import SqlLedger, SqlSessions
from tests.workers.gateway.conftest import Woken, attempt_input
from workers.gateway.attempts import MAX_EVENT_BODY_BYTES, MAX_REPORT_BODY_BYTES

Begin = Callable[..., Awaitable[AttemptKey]]
Bearer = Callable[[AttemptKey], dict[str, str]]


class Worker:
    """Sends what a Job sends, under its attempt's token."""

    def __init__(self, http: httpx2.AsyncClient, key: AttemptKey, headers: dict[str, str]) -> None:
        self.http = http
        self.key = key
        self.headers = headers

    async def post(self, route: str, body: Any) -> httpx2.Response:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return await self.http.post(f"/v1/attempts/{self.key.path}/{route}", headers=self.headers, content=content)

    async def input(self) -> httpx2.Response:
        return await self.http.get(f"/v1/attempts/{self.key.path}/input", headers=self.headers)


@pytest.fixture
async def worker(anyone: httpx2.AsyncClient, begin: Begin, bearer: Bearer) -> Worker:
    key = await begin()
    return Worker(anyone, key, bearer(key))


async def test_a_worker_gets_exactly_its_input(worker: Worker) -> None:
    assert AttemptInput.model_validate_json((await worker.input()).content) == attempt_input("review", worker.key)


async def session_of(sessions: SqlSessions, *contents: str) -> TranscriptReference:
    messages = [
        Message(role=Role.ASSISTANT if place % 2 else Role.USER, content=content)
        for place, content in enumerate(contents)
    ]
    status = await sessions.import_messages("default", "harbour", messages)
    lock = SessionLock(
        session_uid=status.uid, namespace="default", session="harbour", task_uid="uid-of-review", token=1
    )
    return await TranscriptReader(sessions).reference(lock, MAX_BUDGET)


async def continued(ledger: SqlLedger, begin: Begin, reference: TranscriptReference) -> AttemptKey:
    """Start an attempt that is given a part of a Session."""
    first = await begin()
    key = first.model_copy(update={"attempt": 2})
    given = attempt_input("review", key).model_copy(update={"transcript_ref": reference})
    await ledger.intend(key, "review-2", given)
    return key


async def test_a_worker_gets_the_transcript_that_its_attempt_was_created_with(
    anyone: httpx2.AsyncClient, ledger: SqlLedger, sessions: SqlSessions, begin: Begin, bearer: Bearer
) -> None:
    long = "\u0001 naïve " * 90_000
    reference = await session_of(sessions, "Ahoy", "Ahoy!", long, long)
    key = await continued(ledger, begin, reference)
    given = AttemptInput.model_validate_json((await Worker(anyone, key, bearer(key)).input()).content)
    assert given.transcript is not None
    assert [message.content for message in given.transcript.messages] == ["Ahoy", "Ahoy!", long, long]
    assert given.transcript_ref == reference
    assert given.transcript.digest == reference.digest
    assert (await ledger.input(key)).transcript is None


async def test_a_worker_gets_nothing_of_a_session_that_was_deleted_and_made_anew(
    anyone: httpx2.AsyncClient, ledger: SqlLedger, sessions: SqlSessions, begin: Begin, bearer: Bearer
) -> None:
    key = await continued(ledger, begin, await session_of(sessions, "Ahoy", "Ahoy!"))
    await sessions.delete("default", "harbour")
    await session_of(sessions, "Ahoy", "Ahoy!")
    answer = await Worker(anyone, key, bearer(key)).input()
    assert answer.status_code == 409
    assert "Session default/harbour was deleted" in answer.text
    assert "Ahoy" not in answer.text


async def test_a_report_decides_the_attempt_and_wakes_the_workflow(
    worker: Worker, ledger: SqlLedger, woken: Woken
) -> None:
    answer = await worker.post("report", {"answer": "Fine, naïvely.", "usage": {"inputTokens": 7}})
    assert answer.status_code == 200
    assert answer.json()["succeeded"] is True
    assert await ledger.result(worker.key) == "Fine, naïvely."
    assert (await ledger.attempt(worker.key)).usage.input_tokens == 7
    assert await woken.keys.get() == worker.key


async def test_the_same_report_again_is_the_same_outcome(worker: Worker, woken: Woken) -> None:
    report = {"reason": "ProviderFailed", "message": "status 500"}
    first, second = [await worker.post("report", report) for _ in range(2)]
    assert (first.status_code, second.status_code) == (200, 200)
    assert first.json() == second.json()
    # Each time: the wake-up of the first may be what was lost.
    assert woken.keys.qsize() == 2


async def test_another_report_after_the_decision_is_a_conflict(worker: Worker, ledger: SqlLedger, woken: Woken) -> None:
    await worker.post("report", {"answer": "Fine."})
    late = await worker.post("report", {"answer": "Not fine."})
    assert (late.status_code, late.json()["error"]["reason"]) == (409, "Conflict")
    assert await ledger.result(worker.key) == "Fine."
    assert woken.keys.qsize() == 1


async def test_a_report_after_a_timeout_is_a_conflict(worker: Worker, ledger: SqlLedger) -> None:
    await ledger.decide(worker.key, Outcome(succeeded=False, reason=Reason.JOB_TIMEOUT))
    late = await worker.post("report", {"answer": "Fine."})
    assert late.status_code == 409
    assert "JobTimeout" in late.json()["error"]["message"]


async def test_reports_at_once_leave_one_outcome(worker: Worker, ledger: SqlLedger) -> None:
    answers = await asyncio.gather(*(worker.post("report", {"answer": f"Answer {n}."}) for n in range(8)))
    assert sorted(answer.status_code for answer in answers) == [200] + [409] * 7
    winner = next(n for n, answer in enumerate(answers) if answer.status_code == 200)
    assert await ledger.result(worker.key) == f"Answer {winner}."


async def test_a_failed_wake_up_fails_no_report(worker: Worker, woken: Woken, caplog: pytest.LogCaptureFixture) -> None:
    woken.failure = RuntimeError("no connection, says the library")
    assert (await worker.post("report", {"answer": "Fine."})).status_code == 200
    assert f"no wake-up for attempt {worker.key.path}: RuntimeError" in caplog.text


async def test_an_answer_of_the_limit_is_stored_and_one_byte_more_is_refused(worker: Worker, ledger: SqlLedger) -> None:
    # Two bytes a character: the limit is on bytes.
    too_long = await worker.post(
        "report", json.dumps({"answer": "é" * (MAX_RESULT_BYTES // 2) + "x"}, ensure_ascii=False).encode()
    )
    assert (too_long.status_code, too_long.json()["error"]["reason"]) == (422, "AnswerTooLarge")
    longest = "é" * (MAX_RESULT_BYTES // 2)
    assert (
        await worker.post("report", json.dumps({"answer": longest}, ensure_ascii=False).encode())
    ).status_code == 200
    assert await ledger.result(worker.key) == longest


async def test_the_longest_answer_is_taken_however_json_writes_it(worker: Worker, ledger: SqlLedger) -> None:
    longest = "\x01" * MAX_RESULT_BYTES
    over = await worker.post("report", json.dumps({"answer": longest + "\x01"}).encode())
    assert (over.status_code, over.json()["error"]["reason"]) == (422, Reason.ANSWER_TOO_LARGE)
    assert (await worker.post("report", json.dumps({"answer": longest}).encode())).status_code == 200
    assert await ledger.result(worker.key) == longest


@pytest.mark.parametrize(("route", "limit"), [("report", MAX_REPORT_BODY_BYTES), ("events", MAX_EVENT_BODY_BYTES)])
async def test_a_body_is_read_up_to_its_limit(worker: Worker, route: str, limit: int) -> None:
    # Blanks around JSON count, too; and nothing is sent here that a route would store.
    assert (await worker.post(route, b"[]" + b" " * (limit - 2))).status_code == 422
    refused = await worker.post(route, b"[]" + b" " * (limit - 1))
    assert (refused.status_code, refused.json()["error"]["reason"]) == (413, "TooLarge")
    assert f"larger than {limit} bytes" in refused.json()["error"]["message"]


async def test_an_event_is_stored_once_whatever_is_in_it(worker: Worker, ledger: SqlLedger) -> None:
    event = (
        b'{"sequence": 3, "kind": "text\\n", "data": {"delta": "\\u2028 \\"", "n": NaN, "big": 123456789012345678901}}'
    )
    assert [(await worker.post("events", event)).status_code for _ in range(2)] == [204, 204]
    (stored,) = await ledger.events(worker.key)
    assert (stored.sequence, stored.kind, stored.data["delta"]) == (3, "text\n", '\u2028 "')


async def test_an_event_that_is_too_large_is_refused(worker: Worker) -> None:
    answer = await worker.post("events", {"sequence": 0, "kind": "text", "data": {"delta": "x" * MAX_EVENT_BYTES}})
    assert answer.status_code == 422


@pytest.mark.parametrize("answer", ["", " \n"])
async def test_a_blank_answer_is_a_failure_that_says_so(worker: Worker, answer: str) -> None:
    decided = (await worker.post("report", json.dumps({"answer": answer}).encode())).json()
    assert (decided["succeeded"], decided["reason"]) == (False, "AnswerBlank")
    assert decided["message"]


MALFORMED = {
    "nothing": b"",
    "no JSON": b"answer: Fine.",
    "invalid UTF-8": b'{"answer": "\xff"}',
    "a lone surrogate": b'{"answer": "\\udc00"}',
    "deep nesting": b'{"usage": ' * 50_000,
    "an integer beyond 2^53": b'{"answer": "x", "usage": {"inputTokens": 9007199254740993}}',
    "an unknown reason": b'{"reason": "Tired"}',
    "a reason that is not a worker's": b'{"reason": "Cancelled", "message": "Marigold"}',
    "an unknown field": b'{"answer": "x", "persona": "Marigold"}',
    "both": b'{"answer": "x", "reason": "JobFailed"}',
    "an answer that is no text": b'{"answer": ["Marigold"]}',
}


@pytest.mark.parametrize("body", MALFORMED.values(), ids=MALFORMED)
async def test_a_malformed_report_decides_nothing(worker: Worker, ledger: SqlLedger, body: bytes) -> None:
    answer = await worker.post("report", body)
    assert answer.status_code == 422
    assert "Marigold" not in answer.text
    assert (await ledger.attempt(worker.key)).outcome is None
