"""A gateway on real stores: in this process for its answers, on a socket for its transport."""

import asyncio
import itertools
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx2
import pytest
from fastapi import FastAPI
from sqlalchemy.ext.asyncio import AsyncEngine

from activities.providers import ProviderResolver
from activities.readiness import AgentInspector
from activities.revisions import RevisionInspector
from activities.souls import SoulResolver
from activities.transcripts import TranscriptReader
from anima.gateway import Gateway
from anima.home import Home
from anima.keys import Keys
from anima.model.attempts import AttemptInput, AttemptKey, ProviderSettings
from anima.model.digests import digest_bytes
from anima.model.names import job_name, workflow_id
from anima.model.resources import Reference
from anima.model.task import TaskSpec
from anima.model.tokens import attempt_token
from anima.stores.migrations import migrate
from anima.stores.ports import TaskRecord
from anima.stores.processes.jobs import LocalJobs
from anima.stores.sessions import SessionKey
from anima.stores.sql import (
    SqlCatalog,
    SqlConversations,
    SqlLedger,
    SqlRevisionUses,
    SqlSessions,
    open_engine,
    sqlite_url,
)
from workers.gateway.app import create_app
from workers.gateway.process import listen, server_of
from workers.gateway.services import Services

ADDRESS = "http://127.0.0.1:8420"
NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)


def clock() -> datetime:
    return NOW


class Woken:
    """Collects the wake-ups of workflows, and fails them if told to."""

    def __init__(self) -> None:
        self.keys: asyncio.Queue[AttemptKey] = asyncio.Queue()
        self.conversations: list[SessionKey] = []
        self.failure: Exception | None = None

    async def __call__(self, record: TaskRecord, key: AttemptKey) -> None:
        await self.keys.put(key)
        if self.failure:
            raise self.failure

    async def conversation(self, key: SessionKey) -> None:
        self.conversations.append(key)
        if self.failure:
            raise self.failure


@pytest.fixture(scope="session")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated database without a row, to be copied."""
    path = tmp_path_factory.mktemp("migrated") / "anima.db"

    async def make() -> None:
        engine = open_engine(sqlite_url(path))
        await migrate(engine)
        await engine.dispose()

    asyncio.run(make())
    return path


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


@pytest.fixture
async def engine(home: Home, migrated: Path) -> AsyncIterator[AsyncEngine]:
    home.root.mkdir()
    shutil.copy(migrated, home.database)
    engine = open_engine(sqlite_url(home.database))
    yield engine
    await engine.dispose()


@pytest.fixture
def catalog(engine: AsyncEngine) -> SqlCatalog:
    numbers = itertools.count(1)
    return SqlCatalog(engine, clock, lambda: f"uid-{next(numbers)}")


@pytest.fixture
def ledger(engine: AsyncEngine) -> SqlLedger:
    return SqlLedger(engine, clock)


@pytest.fixture
def sessions(engine: AsyncEngine) -> SqlSessions:
    numbers = itertools.count(1)
    return SqlSessions(engine, clock, lambda: f"session-{next(numbers)}")


@pytest.fixture
def conversations(engine: AsyncEngine) -> SqlConversations:
    numbers = itertools.count(1)
    return SqlConversations(engine, clock, lambda: f"conversation-{next(numbers)}")


@pytest.fixture
def woken() -> Woken:
    return Woken()


@pytest.fixture
def services(
    home: Home,
    engine: AsyncEngine,
    catalog: SqlCatalog,
    ledger: SqlLedger,
    sessions: SqlSessions,
    conversations: SqlConversations,
    woken: Woken,
) -> Services:
    souls = SoulResolver(catalog)
    return Services(
        catalog=catalog,
        ledger=ledger,
        conversations=conversations,
        sessions=sessions,
        transcripts=TranscriptReader(sessions),
        keys=Keys.load_or_create(home),
        inspector=AgentInspector(souls, ProviderResolver(catalog, None), clock),
        revisions=RevisionInspector(catalog, souls, sessions, SqlRevisionUses(engine)),
        job_log=LocalJobs(home, clock, fork=False).log,
        notify=woken,
        wake=woken.conversation,
        poll_interval=timedelta(milliseconds=10),
    )


@pytest.fixture
def app(services: Services) -> FastAPI:
    numbers = itertools.count(1)
    return create_app(services, "gateway.internal", lambda: f"request-{next(numbers)}")


@pytest.fixture
async def anyone(app: FastAPI) -> AsyncIterator[httpx2.AsyncClient]:
    """A client without any token."""
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url=ADDRESS) as client:
        yield client


@pytest.fixture
async def user(app: FastAPI, services: Services) -> AsyncIterator[httpx2.AsyncClient]:
    """A client with the user token."""
    headers = {"Authorization": f"Bearer {services.keys.user_token}"}
    transport = httpx2.ASGITransport(app=app)
    async with httpx2.AsyncClient(transport=transport, base_url=ADDRESS, headers=headers) as client:
        yield client


@pytest.fixture
async def gateway(app: FastAPI, services: Services) -> AsyncIterator[Gateway]:
    """The SDK's client, in the same process."""
    async with Gateway(ADDRESS, services.keys.user_token, httpx2.ASGITransport(app=app)) as client:
        yield client


@pytest.fixture
async def served(services: Services) -> AsyncIterator[str]:
    """The address of a gateway on a real socket."""
    listener = listen("127.0.0.1", 0)
    server = server_of(services, "127.0.0.1")
    running = asyncio.create_task(server.serve(sockets=[listener]))
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    server.should_exit = True
    await running


@pytest.fixture
def begin(ledger: SqlLedger) -> Callable[..., Awaitable[AttemptKey]]:
    """Admit a Task and start an attempt of it, as the orchestrator would."""

    async def begin(name: str = "review", attempt: int = 1) -> AttemptKey:
        spec = TaskSpec(type="ai", agent_ref=Reference(name="reviewer"), prompt="Review it.", env=[])
        record = await ledger.admit("default", name, f"uid-of-{name}", workflow_id("default", name), spec, NOW)
        key = AttemptKey(task_uid=record.uid, iteration=0, attempt=attempt)
        await ledger.intend(key, job_name(name, record.uid, 0, attempt), attempt_input(name, key))
        await ledger.started(key)
        return key

    return begin


def attempt_input(task: str, key: AttemptKey) -> AttemptInput:
    prompt = "Review it, naïvely."
    return AttemptInput(
        namespace="default",
        task=task,
        key=key,
        user_prompt=prompt,
        user_prompt_digest=digest_bytes(prompt.encode()),
        system_prompt_digest=digest_bytes(b"system"),
        envelope_version=1,
        provider=ProviderSettings(type="rehearsal", model="rehearsal"),
    )


@pytest.fixture
def bearer(services: Services) -> Callable[[AttemptKey], dict[str, str]]:
    """Return the headers that a worker sends."""
    return lambda key: {"Authorization": f"Bearer {attempt_token(services.keys.attempt_secret, key)}"}
