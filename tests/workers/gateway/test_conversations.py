"""Conversation routes: what may be said, and how its answer is read and followed."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import httpx2
import pytest

from anima.conversations import Conversation
from anima.gateway import Gateway
from anima.model.api import IDEMPOTENCY_HEADER, AttemptProgress
from anima.model.attempts import AttemptKey, ProgressEvent, Report
from anima.model.conversation import Attestation, PostedMessage
from anima.model.errors import Conflict, NotFound, Refusal, Unavailable
from anima.model.names import job_name, workflow_id
from anima.model.reasons import Reason
from anima.model.session import MAX_MESSAGE_BYTES, MAX_PENDING, Claimant, SessionRecord, Turn
from anima.model.task import TaskSpec
from anima.stores.sessions import SessionKey
from anima.stores.sql import SqlConversations, SqlLedger, SqlSessions
from tests.workers.gateway.conftest import NOW, Woken, attempt_input
from workers.gateway.process import listen, server_of
from workers.gateway.services import Services

PATH = "/v1/conversations/default/talk"
KEY = SessionKey("default", "talk", conversation=True)
Begin = Callable[..., Awaitable[AttemptKey]]


def body(content: str = "Hello.", agent: str | None = "reviewer") -> dict[str, Any]:
    return {"content": content} | ({"agentRef": {"name": agent}} if agent else {})


@pytest.fixture
def attempt(ledger: SqlLedger) -> Begin:
    """Admit the Task of a message and start an attempt of it, as the orchestrator would."""

    async def attempt(posted: PostedMessage, number: int = 1) -> AttemptKey:
        spec = TaskSpec.model_validate(
            {"type": "ai", "agentRef": {"name": posted.agent}, "prompt": "Hello.", "sessionRef": {"name": "talk"}}
        )
        uid = f"uid-of-{posted.task}"
        await ledger.admit("default", posted.task, uid, workflow_id("default", posted.task), spec, NOW)
        key = AttemptKey(task_uid=uid, attempt=number)
        await ledger.intend(key, job_name(posted.task, uid, 0, number), attempt_input(posted.task, key))
        await ledger.started(key)
        return key

    return attempt


@pytest.fixture
def answer(ledger: SqlLedger, sessions: SqlSessions) -> Callable[..., Awaitable[None]]:
    """Store the answer to a message, as its Task would."""

    async def answer(posted: PostedMessage, key: AttemptKey, text: str) -> None:
        await ledger.report(key, Report(answer=text))
        claimant = Claimant(task_uid=key.task_uid, task=posted.task, workflow_id=workflow_id("default", posted.task))
        place = await sessions.acquire("default", "talk", claimant)
        assert place.lock
        turn = Turn(task_uid=key.task_uid, task=posted.task, prompt="Hello.", answer=text)
        await sessions.append(place.lock, turn)
        await sessions.leave("default", "talk", key.task_uid)

    return answer


Answer = Callable[[PostedMessage, AttemptKey, str], Awaitable[None]]


async def posted(user: httpx2.AsyncClient, content: str = "Hello.", **headers: str) -> PostedMessage:
    response = await user.post(f"{PATH}/messages", json=body(content), headers=headers)
    assert response.status_code == 202, response.text
    return PostedMessage.model_validate_json(response.content)


def event(sequence: int, text: str = "part") -> ProgressEvent:
    return ProgressEvent(sequence=sequence, kind="text", data={"delta": f"{text}\n\n"})


async def test_a_message_is_queued_and_the_conversation_woken(
    user: httpx2.AsyncClient, conversations: SqlConversations, woken: Woken
) -> None:
    response = await user.post(f"{PATH}/messages", json=body("Hi.\r\n$(X)"), headers={IDEMPOTENCY_HEADER: "key-1"})

    assert response.status_code == 202
    assert response.headers["location"] == f"{PATH}/messages/1"
    assert response.headers[IDEMPOTENCY_HEADER] == "key-1"
    message = PostedMessage.model_validate_json(response.content)
    assert (message.number, message.agent, message.content) == (1, "reviewer", "Hi.\r\n$(X)")
    assert await conversations.pending("default", "talk") == [message]
    assert woken.conversations == [KEY]


async def test_the_same_key_is_the_same_message_and_no_key_is_one_of_its_own(
    user: httpx2.AsyncClient, gateway: Gateway
) -> None:
    first = await posted(user, **{IDEMPOTENCY_HEADER: "a"})
    assert (await posted(user, **{IDEMPOTENCY_HEADER: "a"})).number == first.number
    assert (await posted(user, **{IDEMPOTENCY_HEADER: "b"})).number == 2
    third = await user.post(f"{PATH}/messages", json=body())
    given = third.headers[IDEMPOTENCY_HEADER]
    again = await posted(user, **{IDEMPOTENCY_HEADER: given})
    assert (third.json()["number"], again.number) == (3, 3)
    with pytest.raises(Conflict):
        await Conversation(gateway, "default", "talk").post("Other words.", "a", "reviewer")


@pytest.mark.parametrize("key", ["", " ", "a b", "x" * 201, "\u00fc", "a\tb"])
async def test_a_key_that_is_none_is_refused(
    user: httpx2.AsyncClient, conversations: SqlConversations, key: str
) -> None:
    response = await user.post(f"{PATH}/messages", json=body(), headers={IDEMPOTENCY_HEADER: key.encode()})

    assert response.status_code == 422
    assert [problem["path"] for problem in response.json()["error"]["problems"]] == [IDEMPOTENCY_HEADER]
    assert await pending(conversations) == []


async def pending(conversations: SqlConversations) -> list[PostedMessage]:
    try:
        return list(await conversations.pending("default", "talk"))
    except NotFound:
        return []


@pytest.mark.parametrize(
    ("raw", "path"),
    [
        (json.dumps(body("")), "content"),
        (json.dumps(body(" \n")), "content"),
        (json.dumps(body("a\0")), "content"),
        (json.dumps(body("a\ud800")), "content"),
        (json.dumps(body("x" * (MAX_MESSAGE_BYTES + 1))), "content"),
        (json.dumps(body("é" * (MAX_MESSAGE_BYTES // 2) + "x")), "content"),
        (json.dumps(body("\x01" * (MAX_MESSAGE_BYTES // 2))), "content"),
        ("{}", "content"),
        ('{"content": "x", "agent": "reviewer"}', "agent"),
        ('{"content": "x", "agent_ref": {"name": "reviewer"}}', "agent_ref"),
        (json.dumps(body(agent="Upper")), "agentRef.name"),
    ],
)
async def test_a_message_that_no_task_could_be_is_refused_by_its_field(
    user: httpx2.AsyncClient, conversations: SqlConversations, raw: str, path: str
) -> None:
    response = await user.post(f"{PATH}/messages", content=raw)

    error = response.json()["error"]
    assert (response.status_code, error["reason"]) == (422, Reason.REQUEST_REFUSED)
    assert [problem["path"] for problem in error["problems"]] == [path]
    assert len(response.content) < 2000
    assert await pending(conversations) == []


@pytest.mark.parametrize("raw", [b"", b"{", b'"text"', b"[]", b"\xff", b'{"content": "a", "content": "b"}'])
async def test_a_body_that_is_no_message_is_refused(user: httpx2.AsyncClient, raw: bytes) -> None:
    response = await user.post(f"{PATH}/messages", content=raw)

    assert (response.status_code, response.json()["error"]["reason"]) == (422, Reason.REQUEST_REFUSED)


@pytest.mark.parametrize("content", ["x" * MAX_MESSAGE_BYTES, "é" * (MAX_MESSAGE_BYTES // 2)])
async def test_a_message_of_the_exact_limit_is_taken(user: httpx2.AsyncClient, content: str) -> None:
    # Also if its JSON writes each character as six bytes.
    assert (await user.post(f"{PATH}/messages", content=json.dumps(body(content)))).json()["content"] == content


async def test_a_body_beyond_all_bounds_is_too_large(user: httpx2.AsyncClient) -> None:
    raw = json.dumps(body("\\u0041" * (2 * MAX_MESSAGE_BYTES)))
    assert (await user.post(f"{PATH}/messages", content=raw)).status_code == 413


async def test_a_full_conversation_asks_to_come_back_later(user: httpx2.AsyncClient, gateway: Gateway) -> None:
    for number in range(MAX_PENDING):
        await posted(user, f"Question {number}.")

    response = await user.post(f"{PATH}/messages", json=body("One more."))

    assert (response.status_code, response.json()["error"]["reason"]) == (429, Reason.CONVERSATION_FULL)
    assert int(response.headers["retry-after"]) > 0
    with pytest.raises(Refusal) as refusal:
        await Conversation(gateway, "default", "talk").post("One more.", "key")
    assert refusal.value.reason is Reason.CONVERSATION_FULL


async def test_a_session_of_tasks_is_no_conversation(
    user: httpx2.AsyncClient, sessions: SqlSessions, begin: Begin, ledger: SqlLedger
) -> None:
    record = await ledger.task((await begin()).task_uid)
    await sessions.acquire(
        "default", "talk", Claimant(task_uid=record.uid, task=record.name, workflow_id=record.workflow_id)
    )

    response = await user.post(f"{PATH}/messages", json=body())

    assert (response.status_code, response.json()["error"]["reason"]) == (422, Reason.SESSION_OWNED)
    assert (await user.get(PATH)).status_code == 404


async def test_a_failed_wake_up_is_no_failure_of_the_request(
    user: httpx2.AsyncClient, woken: Woken, caplog: pytest.LogCaptureFixture
) -> None:
    woken.failure = Unavailable("Temporal is away")

    response = await user.post(f"{PATH}/messages", json=body("Persona-free words."))

    assert response.status_code == 202
    assert "no wake-up for conversation default/talk: Unavailable" in caplog.text
    assert "Persona-free words." not in caplog.text


async def test_the_status_tells_who_answers_and_what_waits(
    user: httpx2.AsyncClient, gateway: Gateway, attempt: Begin, answer: Answer
) -> None:
    conversation = Conversation(gateway, "default", "talk")
    with pytest.raises(NotFound):
        await conversation.status()
    first = await posted(user)
    second = await posted(user, "And now?")

    status = await conversation.status()
    assert (status.agent, status.pending) == ("reviewer", [first, second])
    assert (status.session.name, status.session.messages, status.session.identity) == ("talk", 0, None)

    await answer(first, await attempt(first), "Fine.")
    status = await conversation.status()
    assert [message.number for message in status.pending] == [2]
    assert status.session.messages == 2
    assert status.session.identity is not None


async def test_a_message_is_read_with_its_answer(
    user: httpx2.AsyncClient, gateway: Gateway, attempt: Begin, answer: Answer
) -> None:
    first = await posted(user)
    conversation = Conversation(gateway, "default", "talk")
    assert (await conversation.message(1)).answer is None

    await answer(first, await attempt(first), "Fine.")

    found = await conversation.message(1)
    assert found.answer
    assert (found.message.answer, found.answer.content) == (found.answer.sequence, "Fine.")
    with pytest.raises(NotFound):
        await conversation.message(2)


async def test_a_failure_is_an_answer_with_its_reason(
    user: httpx2.AsyncClient, gateway: Gateway, conversations: SqlConversations
) -> None:
    first = await posted(user)
    attestation = Attestation(
        task_uid="uid", task=first.task, reason=Reason.PROVIDER_MISSING, message="there is none", unbound=True
    )
    await conversations.project_failure("default", "talk", 1, attestation, None)

    steps = [step async for step in Conversation(gateway, "default", "talk").follow(1)]

    (answer,) = steps
    assert isinstance(answer, SessionRecord)
    assert (answer.reason, answer.unbound) == (Reason.PROVIDER_MISSING, True)


async def test_a_stream_has_every_attempt_in_order_and_then_the_answer(
    served: str, services: Services, user: httpx2.AsyncClient, ledger: SqlLedger, attempt: Begin, answer: Answer
) -> None:
    first = await posted(user)
    seen: list[Any] = []
    async with Gateway(served, services.keys.user_token) as gateway:
        key = await attempt(first)
        await ledger.append_event(key, event(0))
        async for step in Conversation(gateway, "default", "talk").follow(1):
            if isinstance(step, SessionRecord):
                seen.append(step.content)
                continue
            seen.append((step.attempt, step.sequence))
            assert step.data == {"delta": "part\n\n"}
            if seen == [(1, 0)]:
                await ledger.append_event(key, event(1))
                await ledger.report(key, Report(reason=Reason.PROVIDER_FAILED))
                second = await attempt(first, 2)
                for sequence in range(3):
                    await ledger.append_event(second, event(sequence))
                await answer(first, second, "Fine.\u2028\r\n")
    assert seen == [(1, 0), (1, 1), (2, 0), (2, 1), (2, 2), "Fine.\u2028\r\n"]


async def test_a_reader_that_comes_back_goes_on_where_it_was(
    user: httpx2.AsyncClient, ledger: SqlLedger, attempt: Begin, answer: Answer
) -> None:
    first = await posted(user)
    for number in (1, 2):
        key = await attempt(first, number)
        for sequence in range(2):
            await ledger.append_event(key, event(sequence))
        if number == 1:
            await ledger.report(key, Report(reason=Reason.PROVIDER_FAILED))
    await answer(first, key, "Fine.")

    whole = await identifiers(user, None)

    assert whole == ["0.1.0", "0.1.1", "0.2.0", "0.2.1", "answer"]
    for place, last in enumerate(whole, 1):
        assert await identifiers(user, last) == whole[place:]


async def identifiers(user: httpx2.AsyncClient, last: str | None) -> list[str]:
    headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": last} if last else {})
    response = await user.get(f"{PATH}/messages/1/events", headers=headers)
    assert response.text.endswith("event: end\ndata: {}\n\n")
    return [line.removeprefix("id: ") for line in response.text.splitlines() if line.startswith("id: ")]


@pytest.mark.parametrize("last", ["x", "1.2", "0.1.-1", "1.2.3.4", f"0.1.{'9' * 5000}", "answer "])
async def test_an_id_that_is_not_of_the_stream_is_refused(user: httpx2.AsyncClient, last: str) -> None:
    await posted(user)
    response = await user.get(f"{PATH}/messages/1/events", headers={"Last-Event-ID": last.encode()})
    # A header's own blanks are no part of it.
    assert response.status_code == 422 or last.strip() == "answer"


async def test_an_answer_streams_from_the_post_itself(
    served: str, services: Services, user: httpx2.AsyncClient, attempt: Begin, answer: Answer
) -> None:
    before = await posted(user, "Before.")
    headers = {"Authorization": f"Bearer {services.keys.user_token}", "Accept": "text/event-stream"}
    lines: list[str] = []
    async with (
        httpx2.AsyncClient(base_url=served, headers=headers) as client,
        client.stream("POST", f"{PATH}/messages", json=body("Now.")) as response,
    ):
        assert response.headers["location"] == f"{PATH}/messages/2"
        async for line in response.aiter_lines():
            lines.append(line)
            if line == ": 1 messages before this one":
                await answer(before, await attempt(before), "First.")
            elif line.startswith(": nothing new") and len(await pending(services.conversations)) == 1:  # type: ignore[arg-type]
                (message,) = await pending(services.conversations)  # type: ignore[arg-type]
                await answer(message, await attempt(message), "Second.")
    assert ": 1 messages before this one" in lines
    assert "event: answer" in lines
    assert '"content":"Second."' in "".join(lines)
    assert lines[-3:] == ["event: end", "data: {}", ""] or lines[-2:] == ["event: end", "data: {}"]


async def test_a_stream_ends_unfinished_with_the_gateway_and_is_taken_up_again(
    services: Services, user: httpx2.AsyncClient, ledger: SqlLedger, attempt: Begin, answer: Answer
) -> None:
    first = await posted(user)
    key = await attempt(first)
    await ledger.append_event(key, event(0))
    listener = listen("127.0.0.1", 0)
    address = listener.getsockname()
    server = server_of(services, "127.0.0.1")
    running = asyncio.create_task(server.serve(sockets=[listener]))
    away: list[Unavailable] = []
    seen: list[str] = []

    async def restart() -> None:
        nonlocal server, running
        server.should_exit = True
        await running
        await ledger.append_event(key, event(1))
        await answer(first, key, "Fine.")
        server = server_of(services, "127.0.0.1")
        running = asyncio.create_task(server.serve(sockets=[listen(*address)]))

    async with Gateway(f"http://127.0.0.1:{address[1]}", services.keys.user_token) as gateway:
        async for step in Conversation(gateway, "default", "talk", away.append).follow(1):
            seen.append(str(step.sequence) if isinstance(step, AttemptProgress) else step.content)
            if seen == ["0"]:
                restarting = asyncio.create_task(restart())
        await restarting
    server.should_exit = True
    await running

    assert seen == ["0", "1", "Fine."]
    assert away


async def test_a_deleted_conversation_ends_its_streams(
    served: str, services: Services, user: httpx2.AsyncClient, sessions: SqlSessions, conversations: SqlConversations
) -> None:
    first = await posted(user)
    attestation = Attestation(
        task_uid=None, task=first.task, reason=Reason.TASK_CONFLICT, message="taken", unbound=True
    )
    await conversations.project_failure("default", "talk", 1, attestation, None)
    await sessions.delete("default", "talk")
    async with Gateway(served, services.keys.user_token) as gateway:
        with pytest.raises(NotFound):
            [step async for step in Conversation(gateway, "default", "talk").follow(1)]


@pytest.mark.parametrize(("path", "field"), [("messages/0", "number"), ("messages/x/events", "number")])
async def test_a_number_out_of_range_is_named(user: httpx2.AsyncClient, path: str, field: str) -> None:
    response = await user.get(f"{PATH}/{path}")
    assert response.status_code == 422
    assert [problem["path"] for problem in response.json()["error"]["problems"]] == [field]
