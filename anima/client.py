"""The SDK: submit Tasks, find them again, and steer them.

    client = await AnimaClient.connect()
    handle = await client.submit({"metadata": {"name": "review"}, "spec": {...}})
    print(await handle.result())

Any other Temporal SDK can do the same: start workflow `Task` with id
``task/<namespace>/<name>`` on task queue `anima` with the manifest as JSON.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from temporalio.client import Client, WorkflowExecution, WorkflowExecutionStatus, WorkflowHandle
from temporalio.common import Priority, WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError

from anima.handle import TaskHandle
from anima.model.errors import NotFound, Refusal, Unavailable
from anima.model.inputs import spec_digest
from anima.model.manifest import KINDS, parse_resource, parse_task
from anima.model.names import check_label, workflow_id
from anima.model.reasons import Reason
from anima.model.resources import DEFAULT_NAMESPACE
from anima.model.task import Phase, Task
from anima.model.wire import TASK_QUEUE, TASK_WORKFLOW, SearchAttribute
from anima.temporal import connect, temporal_errors

if TYPE_CHECKING:
    from anima.gateway import Gateway

SPEC_DIGEST_MEMO = "animaSpecDigest"
_JOIN_ATTEMPTS = 5
_BY_SERVER = {
    WorkflowExecutionStatus.TERMINATED: (Phase.FAILED, Reason.TERMINATED),
    WorkflowExecutionStatus.TIMED_OUT: (Phase.FAILED, Reason.TERMINATED),
}


@dataclass(frozen=True, slots=True)
class ListedTask:
    """A Task as Temporal's visibility lists it, a moment late."""

    namespace: str
    name: str
    phase: Phase
    reason: Reason | None
    agent: str
    soul_digest: str | None
    submission_time: datetime
    completion_time: datetime | None


class AnimaClient:
    """Submits Tasks to Temporal.

    Args:
        temporal: connected with `temporalio.contrib.pydantic`, as `connect` does.
        gateway: for answers, progress, and Tasks that Temporal has forgotten.
    """

    def __init__(self, temporal: Client, gateway: "Gateway | None" = None) -> None:
        self._temporal = temporal
        self._gateway = gateway

    @classmethod
    async def connect(
        cls,
        address: str | None = None,
        namespace: str | None = None,
        gateway: "Gateway | None" = None,
        **options: Any,
    ) -> "AnimaClient":
        """Connect as `temporalio.envconfig` finds it configured.

        Args:
            address: ``host:port`` in place of what is configured.
            namespace: Temporal's, in place of what is configured.
            gateway: for answers, progress, and Tasks that Temporal has forgotten.
            options: more of `temporalio.client.Client.connect`.

        Raises:
            Unavailable: the server does not answer.
        """
        return cls(await connect(address, namespace, **options), gateway)

    async def submit(self, task: Task | Mapping[str, Any], *, wait: bool = False) -> TaskHandle:
        """Start a Task, or join the open one of that name and content.

        A closed Task of the same content answers again with its stored end.

        Args:
            task: a Task, or its manifest; `apiVersion` and `kind` may be left out.
            wait: return only when the Task has ended, whichever way.

        Raises:
            Refusal: `TaskInvalid` with every problem, `TaskConflict`, or what the gateway refuses.
            Unavailable: Temporal does not answer.
        """
        valid = _validated(task)
        handle = self.handle(valid.namespace, valid.name)
        await self._check_record(valid)
        with temporal_errors(self._temporal, f"Task {valid.namespace}/{valid.name}"):
            await self._start_or_join(valid)
        if wait:
            await handle.wait()
        return handle

    def handle(self, namespace: str, name: str) -> TaskHandle:
        """Return the handle of a Task that may exist."""
        return TaskHandle(self._temporal, self._gateway, namespace, name)

    async def list(self, namespace: str | None = None, phase: Phase | None = None) -> "list[ListedTask]":
        """List Tasks from Temporal's visibility, newest first, each once.

        Args:
            namespace: of the Tasks; all if none.
            phase: of the Tasks; all if none.

        Raises:
            Refusal: `TaskInvalid` if the namespace is no DNS label.
        """
        clauses = [f'WorkflowType = "{TASK_WORKFLOW}"']
        if namespace is not None:
            clauses.append(f'{SearchAttribute.NAMESPACE} = "{_label(namespace)}"')
        found: dict[str, ListedTask] = {}
        refused: dict[str, ListedTask] = {}
        with temporal_errors(self._temporal, "the list of Tasks"):
            async for execution in self._temporal.list_workflows(" AND ".join(clauses)):
                listed = _listed(execution)
                if listed is not None:
                    # A run that was refused the name is not the Task that has it.
                    chosen = refused if listed.reason is Reason.TASK_CONFLICT else found
                    chosen.setdefault(execution.id, listed)
        newest = sorted((refused | found).values(), key=lambda listed: listed.submission_time, reverse=True)
        return [listed for listed in newest if phase in (None, listed.phase)]

    async def submitted(self, namespace: str, name: str) -> Task:
        """Return a Task as it was submitted, from its workflow's history.

        Raises:
            NotFound: Temporal has no such workflow, or not any more.
            Refusal: `TaskInvalid` if what was submitted is no Task.
        """
        subject = f"Task {namespace}/{name}"
        with temporal_errors(self._temporal, subject):
            events = self._workflow(namespace, name).fetch_history_events(page_size=1)
            first = await anext(events)
        payloads = first.workflow_execution_started_event_attributes.input.payloads
        manifest = json.loads(payloads[0].data) if payloads else None
        return parse_task(manifest, namespace, name)

    async def _check_record(self, task: Task) -> None:
        """Refuse a name that is taken, before a run is started that could only say so."""
        if self._gateway is None:
            return
        # Without a record, or with the gateway away, the workflow itself decides.
        with suppress(NotFound, Unavailable):
            recorded = await self._gateway.spec(task.namespace, task.name)
            _compare(task, recorded.submitted_digest)

    async def _start_or_join(self, task: Task) -> None:
        for _ in range(_JOIN_ATTEMPTS):
            try:
                await self._start(task)
                return
            except WorkflowAlreadyStartedError:
                if await self._joins(task):
                    return
        raise Unavailable(f"Task {task.namespace}/{task.name} is being started and ended by others; try again")

    async def _start(self, task: Task) -> None:
        # To fail on an open workflow, rather than to use it, tells at no cost that there is one.
        await self._temporal.start_workflow(
            TASK_WORKFLOW,
            task.to_json(),
            id=workflow_id(task.namespace, task.name),
            task_queue=TASK_QUEUE,
            id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
            id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
            memo={SPEC_DIGEST_MEMO: spec_digest(task.spec)},
            priority=Priority(priority_key=task.spec.priority, fairness_key=task.namespace),
            static_summary=f"Task {task.namespace}/{task.name} for Agent {task.spec.agent_ref.name}",
        )

    async def _joins(self, task: Task) -> bool:
        """Tell whether the open workflow is this Task; false if it has ended.

        One that was started without a memo is compared by what it was started with.
        """
        open_one = await self._workflow(task.namespace, task.name).describe()
        if open_one.status is not WorkflowExecutionStatus.RUNNING:
            return False
        digest = await open_one.memo_value(SPEC_DIGEST_MEMO, None)
        if digest is None:
            digest = spec_digest((await self.submitted(task.namespace, task.name)).spec)
        _compare(task, digest)
        return True

    def _workflow(self, namespace: str, name: str) -> WorkflowHandle[Any, Any]:
        return self._temporal.get_workflow_handle(workflow_id(namespace, name))


def _label(namespace: str) -> str:
    try:
        return check_label(namespace)
    except ValueError as error:
        raise Refusal(Reason.TASK_INVALID, f"the namespace {error.args[0]}: {error.args[1]}") from None


def _compare(task: Task, digest: str) -> None:
    if digest != spec_digest(task.spec):
        message = f"Task {task.namespace}/{task.name} exists already with other content in its spec"
        raise Refusal(Reason.TASK_CONFLICT, message)


def _validated(task: Task | Mapping[str, Any]) -> Task:
    """Check what will be sent, defaults and all, before it is sent."""
    if isinstance(task, Task):
        valid = task
    else:
        kind = KINDS["Task"]
        parsed = parse_resource({"apiVersion": kind.api_version, "kind": kind.name, **task}, DEFAULT_NAMESPACE)
        if not isinstance(parsed, Task):
            raise Refusal(Reason.TASK_INVALID, f"a {parsed.kind} cannot be submitted; `anima apply` stores it")
        valid = parsed
    return parse_task(valid.to_json(), valid.namespace, valid.name)


def _listed(execution: WorkflowExecution) -> ListedTask | None:
    prefix, _, rest = execution.id.partition("/")
    namespace, _, name = rest.partition("/")
    if prefix != "task" or not name:
        return None
    values = {pair.key.name: pair.value for pair in execution.typed_search_attributes}
    phase, reason = Phase(values.get(SearchAttribute.PHASE, Phase.PENDING)), values.get(SearchAttribute.REASON)
    if execution.status in _BY_SERVER and not phase.final:
        phase, reason = _BY_SERVER[execution.status]
    return ListedTask(
        namespace=namespace,
        name=name,
        phase=phase,
        reason=Reason(reason) if reason else None,
        agent=str(values.get(SearchAttribute.AGENT, "")),
        soul_digest=values.get(SearchAttribute.SOUL_DIGEST),
        submission_time=execution.start_time,
        completion_time=execution.close_time,
    )
