"""The routes of Sessions: read, moved, explained and deleted."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy.ext.asyncio import AsyncEngine

from activities.souls import SoulResolver
from anima.gateway import Gateway
from anima.model.agent import Agent
from anima.model.binding import Revision, SoulBinding
from anima.model.conversation import Attestation
from anima.model.digests import digest_bytes
from anima.model.errors import Conflict, NotFound, Unavailable
from anima.model.manifest import parse_resource
from anima.model.reasons import Reason
from anima.model.session import Message, Role, SessionRecord, ToolCall, Turn
from anima.stores.sql import SqlCatalog, SqlConversations, SqlLedger, SqlSessions
from tests.stores.claimants import end, lock, task
from tests.workers.gateway.conftest import NOW, clock
from workers.gateway import transcripts
from workers.gateway.process import listen, server_of
from workers.gateway.services import Services
from workers.gateway.transcripts import MessageLines, lines_of

SESSION = "/v1/namespaces/default/sessions/chat"
ROUTES = [
    ("GET", "/v1/sessions"),
    ("GET", "/v1/namespaces/default/sessions"),
    ("GET", "/v1/namespaces/default/revisions"),
    ("GET", SESSION),
    ("GET", f"{SESSION}/messages"),
    ("GET", f"{SESSION}/queue"),
    ("GET", f"{SESSION}/why"),
    ("GET", f"{SESSION}/export"),
    ("POST", f"{SESSION}/import"),
    ("DELETE", SESSION),
]
TALK = [
    Message(role=Role.USER, content="What is in the file?"),
    Message(role=Role.ASSISTANT, tool_calls=[ToolCall(id="c1", name="read", arguments='{"path": "a"}')]),
    Message(role=Role.TOOL, content="naïve\x00\x1b[2J", tool_call_id="c1"),
    Message(role=Role.ASSISTANT, content="A word."),
]


def numbered(count: int) -> list[Message]:
    return [Message(role=(Role.USER, Role.ASSISTANT)[number % 2], content=f"m{number}") for number in range(count)]


def lines(*messages: dict[str, Any] | str) -> bytes:
    return b"".join((item if isinstance(item, str) else json.dumps(item)).encode() + b"\n" for item in messages)


def said(records: Sequence[SessionRecord]) -> list[Message]:
    return [Message(**{name: getattr(record, name) for name in Message.model_fields}) for record in records]


async def apply(catalog: SqlCatalog, name: str, **spec: Any) -> Agent:
    body = {"systemPrompt": {"inline": "Review."}, **spec}
    manifest = {"apiVersion": "anima.dev/v1alpha1", "kind": "Agent", "metadata": {"name": name}, "spec": body}
    applied = (await catalog.apply(parse_resource(manifest, "default"))).resource
    assert isinstance(applied, Agent)
    return applied


async def agent(catalog: SqlCatalog, name: str, soul: str = "You are terse.") -> Revision:
    """Apply an Agent with a soul, and return its revision."""
    applied = await apply(catalog, name, soul={"inline": soul})
    return (await SoulResolver(catalog).resolve_agent(applied)).revision


async def take_part(
    sessions: SqlSessions, ledger: SqlLedger, name: str, revision: Revision | None, session: str = "chat"
) -> None:
    """Let a Task pin a Session, add its turn, and end."""
    claimant = await task(ledger, name)
    held = await lock(sessions, claimant, session)
    await sessions.pin(held, name, revision, append=True)
    turn = Turn(task_uid=claimant.task_uid, task=name, prompt="Hello?", answer="Hello.", revision=revision)
    await sessions.append(held, turn)
    await sessions.leave("default", session, claimant.task_uid)
    await end(ledger, claimant)


@pytest.mark.parametrize(("method", "path"), ROUTES)
async def test_every_route_wants_the_user_token(anyone: httpx2.AsyncClient, method: str, path: str) -> None:
    assert (await anyone.request(method, path)).status_code == 401


@pytest.mark.parametrize(
    ("method", "path"), [route for route in ROUTES if SESSION in route[1] and "import" not in route[1]]
)
async def test_a_session_that_is_not_there_is_not_found(user: httpx2.AsyncClient, method: str, path: str) -> None:
    answer = await user.request(method, path)
    assert (answer.status_code, answer.json()["error"]["reason"]) == (404, "NotFound")
    assert "chat" in answer.json()["error"]["message"]


async def test_sessions_are_listed_by_namespace_without_their_content(gateway: Gateway, sessions: SqlSessions) -> None:
    for namespace, name in (("default", "one"), ("default", "two"), ("other", "three")):
        await sessions.import_messages(namespace, name, numbered(3))
    assert {session.name for session in await gateway.sessions()} == {"one", "two", "three"}
    assert {session.name for session in await gateway.sessions("default")} == {"one", "two"}
    assert len(await gateway.sessions(limit=2)) == 2
    (three,) = await gateway.sessions("other")
    assert (three.messages, three.owner, three.identity) == (3, None, None)
    assert three == await gateway.session("other", "three")


async def test_messages_are_read_from_either_end_and_searched(gateway: Gateway, sessions: SqlSessions) -> None:
    await sessions.import_messages("default", "chat", numbered(30))

    async def contents(**which: Any) -> list[str]:
        return [record.content for record in await gateway.records("default", "chat", **which)]

    assert await contents(limit=2) == ["m0", "m1"]
    assert await contents(limit=2, newest=True) == ["m28", "m29"]
    assert await contents(after=3, before=6) == ["m3", "m4"]
    assert await contents(contains="M2", limit=3, newest=True) == ["m27", "m28", "m29"]


async def test_the_identity_is_in_the_status_and_not_among_the_messages(
    gateway: Gateway, sessions: SqlSessions, ledger: SqlLedger, catalog: SqlCatalog
) -> None:
    revision = await agent(catalog, "reviewer")
    await take_part(sessions, ledger, "first", revision)
    status = await gateway.session("default", "chat")
    assert status.identity is not None
    assert (status.identity.digest, status.identity.task) == (revision.session_digest, "first")
    records = await gateway.records("default", "chat")
    assert [(record.role, record.content) for record in records] == [("user", "Hello?"), ("assistant", "Hello.")]
    assert {record.revision for record in records} == {revision.session_digest}
    exported = b"".join([piece async for piece in gateway.export_session("default", "chat")])
    assert b"sha256" not in exported


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=201", "after=-1", "before=0", "contains=", "newest=maybe", f"contains={'x' * 1001}"]
)
async def test_a_query_that_makes_no_sense_is_refused(user: httpx2.AsyncClient, query: str) -> None:
    answer = await user.get(f"{SESSION}/messages?{query}")
    assert (answer.status_code, answer.json()["error"]["reason"]) == (422, "RequestRefused")


async def test_the_queue_has_its_holder_and_the_first_that_wait(
    gateway: Gateway, sessions: SqlSessions, ledger: SqlLedger
) -> None:
    for name in ("holder", "second", "third"):
        await sessions.acquire("default", "chat", await task(ledger, name))
    queue = await gateway.queue("default", "chat", limit=1)
    assert queue.holder is not None
    assert (queue.holder.task, queue.waiting, [waiter.task for waiter in queue.next]) == ("holder", 2, ["second"])


async def test_what_is_exported_is_imported_as_it_was(gateway: Gateway, sessions: SqlSessions) -> None:
    await sessions.import_messages("default", "chat", [*TALK, *numbered(100)])
    begun = await gateway.import_session("default", "copy", gateway.export_session("default", "chat"))
    original = said(await gateway.records("default", "chat", limit=200))
    assert len(original) == begun.messages == 104
    assert said(await gateway.records("default", "copy", limit=200)) == original
    assert original[2].content == "naïve\ufffd\x1b[2J"


async def test_why_a_turn_failed_is_not_exported_as_an_answer(
    gateway: Gateway, sessions: SqlSessions, conversations: SqlConversations
) -> None:
    posted = await conversations.post("default", "chat", "key", "Hello?", "reviewer")
    failed = Attestation(
        task_uid="uid", task=posted.task, reason=Reason.PROVIDER_FAILED, message="no key", unbound=True
    )
    await conversations.project_failure("default", "chat", posted.number, failed, None)
    assert len(await gateway.records("default", "chat")) == 2
    exported = b"".join([piece async for piece in gateway.export_session("default", "chat")])
    assert exported == b'{"role":"user","content":"Hello?"}\n'
    assert not (await gateway.explain_session("default", "chat")).has_history


async def test_an_export_does_not_go_on_in_another_session_of_the_same_name(sessions: SqlSessions) -> None:
    await sessions.import_messages("default", "chat", numbered(40))
    exported = lines_of(sessions, await sessions.session("default", "chat"))
    await anext(exported)
    await sessions.delete("default", "chat")
    await sessions.import_messages("default", "chat", numbered(50))
    with pytest.raises(Conflict, match="another one by now"):
        _ = [piece async for piece in exported]


class Vanishing(SqlSessions):
    """Loses the Session once its first page is read."""

    async def records(self, namespace: str, name: str, **which: Any) -> Sequence[SessionRecord]:
        page = await super().records(namespace, name, **which)
        await self.delete(namespace, name)
        return page


async def test_an_export_that_fails_on_the_way_is_seen_to_be_broken_off(
    services: Services, sessions: SqlSessions, engine: AsyncEngine
) -> None:
    await sessions.import_messages("default", "chat", numbered(40))
    listener = listen("127.0.0.1", 0)
    server = server_of(replace(services, sessions=Vanishing(engine, clock, lambda: "uid")), "127.0.0.1")
    running = asyncio.create_task(server.serve(sockets=[listener]))
    address = f"http://127.0.0.1:{listener.getsockname()[1]}"
    async with Gateway(address, services.keys.user_token) as gateway:
        with pytest.raises(Unavailable, match="broke its answer off"):
            _ = [piece async for piece in gateway.export_session("default", "chat")]
    server.should_exit = True
    await running


async def imported(user: httpx2.AsyncClient, body: bytes) -> list[dict[str, str]]:
    """Import what is refused, and return its problems."""
    answer = await user.post(f"{SESSION}/import", content=body)
    assert answer.status_code == 422, answer.text
    assert (await user.get(SESSION)).status_code == 404
    error = answer.json()["error"]
    assert error["reason"] == "RequestRefused"
    assert error["message"].startswith("nothing is imported")
    problems: list[dict[str, str]] = error["problems"]
    return problems


async def test_an_import_is_refused_as_a_whole_with_every_problem_and_its_line(user: httpx2.AsyncClient) -> None:
    body = lines(
        {"role": "user", "content": "fine"},
        {"role": "human", "content": 1},
        "",
        '{"role": "user",',
        {"role": "user", "contnet": "secret words"},
        '{"role": "user", "role": "tool"}',
        '{"role": "assistant", "toolCalls": [{"id": "", "name": "read"}]}',
    )
    problems = await imported(user, body + b'{"role": "user", "content": "\xff"}')
    assert [problem["path"] for problem in problems] == [
        "line 2, role",
        "line 2, content",
        "line 4",
        "line 5, contnet",
        "line 6",
        "line 7, toolCalls[0].id",
        "line 8",
    ]
    assert "not JSON at line 4" in problems[2]["message"]
    assert problems[3]["remedy"] == "did you mean content?"
    assert "secret words" not in json.dumps(problems)


async def test_a_hundred_problems_are_told_and_no_more(user: httpx2.AsyncClient) -> None:
    assert len(await imported(user, lines(*["nonsense"] * 150))) == 100


@pytest.mark.parametrize("body", [b"", b"\n\r\n \n"])
async def test_an_import_without_a_message_is_refused(user: httpx2.AsyncClient, body: bytes) -> None:
    assert await imported(user, body) == [
        {"path": "", "message": "there is no message in it", "remedy": "give one a line"}
    ]


async def test_a_line_that_is_too_long_is_refused(user: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transcripts, "MAX_LINE_BYTES", 100)
    fits = json.dumps({"role": "user", "content": "x" * 60}).encode()
    fits += b" " * (100 - len(fits))
    (problem,) = await imported(user, fits + b"\n" + fits + b" \n" + fits)
    assert (problem["path"], problem["message"]) == ("line 2", "has 101 bytes, the limit is 100")


async def test_an_import_that_is_too_large_is_refused(
    user: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transcripts, "MAX_IMPORT_BYTES", 60)
    answer = await user.post(f"{SESSION}/import", content=lines(*[{"role": "user", "content": "x"}] * 3))
    assert (answer.status_code, answer.json()["error"]["reason"]) == (413, "TooLarge")
    assert (await user.get(SESSION)).status_code == 404


async def test_too_many_messages_are_refused(user: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transcripts, "MAX_IMPORT_MESSAGES", 3)
    (problem,) = await imported(user, lines(*[{"role": "user", "content": "x"}] * 9))
    assert (problem["path"], problem["remedy"]) == ("line 4", "import fewer")


async def test_a_session_that_exists_is_not_imported_again(gateway: Gateway, sessions: SqlSessions) -> None:
    await sessions.import_messages("default", "chat", numbered(3))
    with pytest.raises(Conflict, match="exists"):
        await gateway.import_session("default", "chat", gateway.export_session("default", "chat"))
    assert (await gateway.session("default", "chat")).messages == 3


async def test_what_no_database_takes_is_imported_as_what_it_can_take(user: httpx2.AsyncClient) -> None:
    body = lines('\ufeff{"role": "user", "content": "a\\u0000b\\ud800c"}')
    assert (await user.post(f"{SESSION}/import", content=body)).status_code == 201
    (message,) = (await user.get(f"{SESSION}/messages")).json()["items"]
    assert message["content"] == "a\ufffdb\ufffdc"


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=1), st.integers(1, 40))
def test_lines_are_the_same_wherever_they_are_cut(contents: list[str], size: int) -> None:
    body = "\n".join(json.dumps({"role": "user", "content": text}, ensure_ascii=False) for text in contents).encode()
    read = MessageLines()
    for start in range(0, len(body), size):
        read.feed(body[start : start + size])
    read.end()
    assert [message.content for message in read.messages()] == contents


async def test_a_session_is_deleted_unless_it_is_in_use(
    gateway: Gateway, sessions: SqlSessions, ledger: SqlLedger
) -> None:
    claimant = await task(ledger, "holder")
    await sessions.acquire("default", "chat", claimant)
    with pytest.raises(Conflict, match="in use"):
        await gateway.delete_session("default", "chat")
    await sessions.leave("default", "chat", claimant.task_uid)
    await gateway.delete_session("default", "chat")
    with pytest.raises(NotFound):
        await gateway.session("default", "chat")


class TestWhy:
    async def reasons(self, gateway: Gateway) -> dict[str, Reason | None]:
        found = await gateway.explain_session("default", "chat")
        assert all((item.reason is None) == item.accepted for item in found.agents)
        return {item.agent: item.reason for item in found.agents}

    async def test_only_the_pinned_revision_is_accepted(
        self, gateway: Gateway, sessions: SqlSessions, ledger: SqlLedger, catalog: SqlCatalog
    ) -> None:
        revision = await agent(catalog, "reviewer")
        await agent(catalog, "twin")
        await apply(catalog, "plain")
        await apply(catalog, "remote", runtimeRef={"name": "elsewhere"})
        await take_part(sessions, ledger, "first", revision)
        found = await gateway.explain_session("default", "chat")
        assert (found.revision, found.has_history) == (revision.session_digest, True)
        assert found.identity is not None
        assert (found.identity.task, found.identity.revision) == ("first", revision)
        assert await self.reasons(gateway) == {
            "plain": Reason.SESSION_SOUL_MISMATCH,
            "remote": Reason.RUNTIME_UNSUPPORTED,
            "reviewer": None,
            "twin": Reason.SESSION_SOUL_MISMATCH,
        }
        (twin,) = (await gateway.explain_session("default", "chat", "twin")).agents
        assert twin.soul_digest == revision.soul_digest
        assert twin.revision not in (None, revision.session_digest)
        assert "the Agent's uid was" in twin.message

    async def test_a_changed_agent_is_refused_with_what_has_changed(
        self, gateway: Gateway, sessions: SqlSessions, ledger: SqlLedger, catalog: SqlCatalog
    ) -> None:
        await take_part(sessions, ledger, "first", await agent(catalog, "reviewer"))
        await agent(catalog, "reviewer", soul="You are long-winded.")
        await agent(catalog, "reviewer")
        (verdict,) = (await gateway.explain_session("default", "chat")).agents
        assert verdict.reason is Reason.SESSION_SOUL_MISMATCH
        assert "the Agent's generation was 1 and is 3" in verdict.message

    async def test_a_session_without_a_soul_takes_only_agents_without_one(
        self, gateway: Gateway, sessions: SqlSessions, ledger: SqlLedger, catalog: SqlCatalog
    ) -> None:
        await agent(catalog, "reviewer")
        await apply(catalog, "plain")
        await take_part(sessions, ledger, "first", None)
        found = await gateway.explain_session("default", "chat")
        assert found.identity is not None
        assert found.revision is None
        assert await self.reasons(gateway) == {"plain": None, "reviewer": Reason.SESSION_SOUL_MISMATCH}

    async def test_imported_history_takes_no_soul(
        self, gateway: Gateway, sessions: SqlSessions, catalog: SqlCatalog
    ) -> None:
        await agent(catalog, "reviewer")
        await apply(catalog, "plain")
        await sessions.import_messages("default", "chat", numbered(1))
        assert await self.reasons(gateway) == {"plain": None, "reviewer": Reason.SESSION_UNPINNED_HISTORY}

    async def test_a_session_that_nothing_has_pinned_takes_every_agent(
        self, gateway: Gateway, sessions: SqlSessions, ledger: SqlLedger, catalog: SqlCatalog
    ) -> None:
        await agent(catalog, "reviewer")
        await apply(catalog, "plain")
        await sessions.acquire("default", "chat", await task(ledger, "holder"))
        found = await gateway.explain_session("default", "chat")
        assert found.holder is not None
        assert (found.holder.task, found.has_history, found.identity) == ("holder", False, None)
        assert await self.reasons(gateway) == {"plain": None, "reviewer": None}

    async def test_an_agent_that_is_not_there_is_told(self, gateway: Gateway, sessions: SqlSessions) -> None:
        await sessions.import_messages("default", "chat", numbered(1))
        (verdict,) = (await gateway.explain_session("default", "chat", "nobody")).agents
        assert (verdict.accepted, verdict.reason) == (False, Reason.AGENT_MISSING)


async def test_revisions_in_use_have_the_agents_tasks_and_sessions_under_them(
    gateway: Gateway, sessions: SqlSessions, ledger: SqlLedger, catalog: SqlCatalog
) -> None:
    old = await agent(catalog, "reviewer", soul="You are long-winded.")
    await take_part(sessions, ledger, "past", old)
    now = await agent(catalog, "reviewer")
    await apply(catalog, "plain")
    await take_part(sessions, ledger, "without", None, "plain-talk")
    for name in ("running", "ended"):
        claimant = await task(ledger, name)
        await ledger.bind(bound(claimant.task_uid, now))
    await end(ledger, claimant)
    missing = {"configMapRef": {"name": "gone", "key": "SOUL.md"}, "digest": digest_bytes(b"")}
    await apply(catalog, "broken", soul=missing)
    found = await gateway.revisions("default")
    current, former, absent = found.items
    assert current.model_dump(by_alias=False) == {
        "digest": now.session_digest,
        "soul_digest": now.soul_digest,
        "agent_uid": now.agent_uid,
        "agent_generation": 2,
        "agents": ["reviewer"],
        "tasks": {"open": ["running"], "ended": 1},
        "sessions": [],
    }
    assert (former.digest, former.agents, former.sessions) == (old.session_digest, [], ["chat"])
    assert (absent.digest, absent.agents, absent.sessions) == (None, ["plain"], ["plain-talk"])
    (unresolved,) = found.unresolved
    assert (unresolved.agent, unresolved.reason) == ("broken", Reason.SOUL_SOURCE_MISSING)
    assert (await gateway.revisions("elsewhere")).items == []


def bound(task_uid: str, revision: Revision) -> SoulBinding:
    assert revision.soul_digest is not None
    return SoulBinding(
        task_uid=task_uid,
        inputs_digest=digest_bytes(b""),
        inputs_version=1,
        bound_at=NOW,
        agent_uid=revision.agent_uid,
        agent_generation=revision.agent_generation,
        soul_digest=revision.soul_digest,
        prompt_digest=revision.prompt_digest,
        envelope_version=revision.envelope_version,
    )
