"""The command against a real gateway process, a real Temporal, and a stand-in workflow."""

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import Coroutine, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest
from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Worker
from typer.testing import CliRunner, Result

from anima.cli import app
from anima.home import Home
from anima.model.attempts import AttemptInput, AttemptKey, ProviderSettings, Report, Usage
from anima.model.binding import SoulBinding
from anima.model.digests import digest_bytes
from anima.model.inputs import INPUTS_VERSION, inputs_digest
from anima.model.manifest import parse_task
from anima.model.names import job_name, workflow_id
from anima.model.task import Phase, TaskSpec, TaskStatus
from anima.model.wire import TASK_QUEUE
from anima.stores.sql import SqlLedger, open_engine, sqlite_url
from tests.doubles.conversation_workflow import Answerer, ConversationStandIn
from tests.doubles.task_workflow import StandIn


@dataclass(frozen=True)
class Anima:
    """The command with the environment of a running stack."""

    environment: dict[str, str]
    home: Home

    def __call__(self, *arguments: str, stdin: bytes | str | None = None) -> Result:
        return CliRunner().invoke(app, arguments, input=stdin, env=self.environment)

    def data(self, *arguments: str) -> Any:
        """Run with ``-o json`` and return what was printed."""
        result = self(*arguments, "-o", "json")
        assert result.exit_code == 0, result.stderr
        return json.loads(result.stdout)

    def error(self, code: int, *arguments: str, stdin: bytes | str | None = None) -> dict[str, Any]:
        """Run with ``-o json``, expect that exit status, and return the error."""
        result = self(*arguments, "-o", "json", stdin=stdin)
        assert result.exit_code == code, result.output
        error: dict[str, Any] = json.loads(result.stderr.splitlines()[-1])["error"]
        return error

    def record(
        self,
        name: str,
        prompt: str,
        answer: str | None,
        bound_to: dict[str, Any] | None = None,
        agent: str = "heron",
        edit: dict[str, Any] | None = None,
    ) -> None:
        """Write a Task that ended into the Ledger, as the orchestrator would.

        Args:
            name: the Task's.
            prompt: the user's.
            answer: none for a Task that failed.
            bound_to: the Agent's prompt as `anima soul show -o json` has it.
            agent: the Agent's name.
            edit: fields of the spec that were edited after the binding.
        """
        spec = {"type": "ai", "agentRef": {"name": agent}, "prompt": prompt}
        asyncio.run(_record(self.home, name, spec, answer, bound_to, edit))


@pytest.fixture(scope="session")
def anima(temporal: WorkflowEnvironment, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Anima]:
    home = Home(tmp_path_factory.mktemp("anima home"))
    address = temporal.client.service_client.config.target_host
    environment = {"ANIMA_HOME": str(home.root), "TEMPORAL_ADDRESS": address, "COLUMNS": "200"}
    command = [sys.executable, "-m", "workers.gateway"]
    settings = {**os.environ, **environment, "ANIMA_GATEWAY_PORT": "0"}
    with (
        _worker(address, home),
        subprocess.Popen(command, env=settings, stderr=subprocess.PIPE, text=True) as process,
    ):
        assert process.stderr is not None
        line = next(line for line in process.stderr if "listening on" in line)
        port = json.loads(line)["event"].rpartition(" ")[2]
        # What it says later must not fill the pipe.
        threading.Thread(target=process.stderr.read, daemon=True).start()
        yield Anima({**environment, "ANIMA_GATEWAY_URL": f"http://127.0.0.1:{port}"}, home)
        process.terminate()


@pytest.fixture
def name() -> str:
    return f"t-{uuid4().hex[:12]}"


class _worker:  # noqa: N801 (used as a function)
    """A worker with the stand-ins, on an event loop in a thread of its own."""

    def __init__(self, address: str, home: Home) -> None:
        self._address = address
        self._home = home
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)

    def __enter__(self) -> None:
        self._thread.start()
        self._worker = self._run(self._start()).result()

    def __exit__(self, *_: object) -> None:
        self._run(self._worker.__aexit__(None, None, None)).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, coroutine: Coroutine[Any, Any, Any]) -> Future[Any]:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    async def _start(self) -> Worker:
        client = await Client.connect(self._address, data_converter=pydantic_data_converter)
        worker = Worker(
            client,
            task_queue=TASK_QUEUE,
            workflows=[StandIn, ConversationStandIn],
            activities=[Answerer(self._home).answer_pending],
        )
        return await worker.__aenter__()


async def _record(
    home: Home,
    name: str,
    body: dict[str, Any],
    answer: str | None,
    bound_to: dict[str, Any] | None,
    edit: dict[str, Any] | None,
) -> None:
    engine = open_engine(sqlite_url(home.database))
    ledger = SqlLedger(engine, lambda: datetime.now(UTC))
    uid = uuid4().hex
    spec = parse_task({"spec": body}, "default", name).spec
    await ledger.admit("default", name, uid, workflow_id("default", name), spec, datetime.now(UTC))
    status = TaskStatus(namespace="default", name=name, uid=uid, agent=spec.agent_ref.name, attempt=1, total_attempts=1)
    ended: dict[str, Any] = {"phase": Phase.FAILED, "message": "exit code 3", "reason": "JobFailed"}
    if answer is not None:
        key = AttemptKey(task_uid=uid, attempt=1)
        await ledger.intend(key, job_name(name, uid, 0, 1), _input(name, key, spec.user_prompt))
        await ledger.started(key)
        outcome = await ledger.report(key, Report(answer=answer, usage=Usage(input_tokens=7), model="small-1"))
        ended = {"phase": Phase.SUCCEEDED, "result_ref": outcome.result}
    if bound_to is not None:
        ended["soul_binding"] = await ledger.bind(_binding(uid, bound_to, spec))
    if edit is not None:
        await ledger.edit(uid, parse_task({"spec": body | edit}, "default", name).spec)
    await ledger.close(TaskStatus.model_validate({**status.model_dump(by_alias=False), **ended}, strict=False))
    await engine.dispose()


def _binding(uid: str, prompt: dict[str, Any], spec: TaskSpec) -> SoulBinding:
    return SoulBinding(
        agent_uid=prompt["agentUid"],
        agent_generation=prompt["agentGeneration"],
        task_uid=uid,
        soul_digest=prompt["soulDigest"],
        prompt_digest=prompt["promptDigest"],
        inputs_digest=inputs_digest(spec),
        inputs_version=INPUTS_VERSION,
        envelope_version=prompt["envelopeVersion"],
        bound_at=datetime.now(UTC),
    )


def _input(name: str, key: AttemptKey, prompt: str) -> AttemptInput:
    return AttemptInput(
        namespace="default",
        task=name,
        key=key,
        user_prompt=prompt,
        user_prompt_digest=digest_bytes(prompt.encode()),
        system_prompt_digest=digest_bytes(b""),
        envelope_version=1,
        provider=ProviderSettings(type="rehearsal", model="rehearsal"),
    )
