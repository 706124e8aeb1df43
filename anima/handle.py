"""One Task as its submitter sees it: status, end, answer, and how to steer it."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from temporalio.client import (
    Client,
    WorkflowExecutionStatus,
    WorkflowFailureError,
    WorkflowHandle,
    WorkflowUpdateFailedError,
)
from temporalio.exceptions import ApplicationError, CancelledError, FailureError

from anima.model.attempts import ProgressEvent
from anima.model.binding import SoulBinding
from anima.model.errors import Conflict, NotFound, Refusal, Unavailable
from anima.model.names import workflow_id
from anima.model.reasons import Reason
from anima.model.task import Phase, TaskSpec, TaskStatus
from anima.model.wire import Query, Signal, Update
from anima.temporal import temporal_errors

if TYPE_CHECKING:
    from anima.gateway import Gateway

QUERY_TIMEOUT = timedelta(seconds=5)
PATIENCE = 10
"""How often `wait` asks a Temporal server that is away, beyond the client's own retries."""


class TaskHandle:
    """A Task by name.  Making a handle asks nobody; its methods do.

    Each raises `Unavailable` if neither Temporal nor the gateway can answer and
    `NotFound` if neither knows the Task; a signal to one that has ended is a `Conflict`.
    """

    def __init__(self, temporal: Client, gateway: "Gateway | None", namespace: str, name: str) -> None:
        self.namespace = namespace
        self.name = name
        self._temporal = temporal
        self._gateway = gateway

    @property
    def workflow_id(self) -> str:
        return workflow_id(self.namespace, self.name)

    async def status(self) -> TaskStatus:
        """Return the status as the workflow has it, or the record that it left."""
        try:
            with temporal_errors(self._temporal, self._subject):
                # A query of a terminated workflow answers as if it ran.
                if (await self._workflow.describe()).status is WorkflowExecutionStatus.RUNNING:
                    return _status(await self._workflow.query(Query.STATUS, rpc_timeout=QUERY_TIMEOUT))
        except (NotFound, Unavailable) as error:
            return await self._recorded_or(error)
        ended = await self._end()
        if ended.reason is Reason.TASK_CONFLICT:
            # The latest run was refused the name; the Task that has it is on record.
            with suppress(NotFound, Unavailable):
                return await self._recorded_or(NotFound("there is no record"))
        return ended

    async def binding(self) -> SoulBinding | None:
        """Return the Task's soul binding: digests only; none before it is bound."""
        return (await self.status()).soul_binding

    async def wait(self, timeout: timedelta | None = None) -> TaskStatus:  # noqa: ASYNC109 (the word of every SDK)
        """Wait for the end, whichever it is, and return the final status.

        Raises:
            TimeoutError: the Task goes on.
        """
        async with asyncio.timeout(timeout.total_seconds() if timeout else None):
            return await self._end()

    async def result(self, timeout: timedelta | None = None) -> str:  # noqa: ASYNC109 (the word of every SDK)
        """Wait for the end and return the answer.

        Raises:
            Refusal: the Task did not succeed; the reason is the Task's.
            TimeoutError: the Task goes on.
        """
        status = await self.wait(timeout)
        if status.phase is not Phase.SUCCEEDED:
            reason = status.reason or Reason.JOB_FAILED
            raise Refusal(reason, f"{self._subject} ended {status.phase}: {status.message or reason.remedy}")
        return (await self._need_gateway().result(self.namespace, self.name)).decode()

    async def suspend(self, by: str | None = None, reason: str | None = None) -> None:
        """Hold the Task before its next Job; a running Job goes on."""
        await self._signal(Signal.SUSPEND, by, reason)

    async def resume(self, by: str | None = None, reason: str | None = None) -> None:
        """Clear the operator's hold; a hold in the spec stays."""
        await self._signal(Signal.RESUME, by, reason)

    async def cancel(self, by: str | None = None, reason: str | None = None) -> None:
        """End the Task and its Job."""
        await self._signal(Signal.CANCEL, by, reason)

    async def edit(self, spec: TaskSpec | Mapping[str, Any]) -> TaskStatus:
        """Replace the spec, from the next attempt on.

        Raises:
            Refusal: the spec is not valid, or a field in it is frozen.
        """
        body = spec.to_json() if isinstance(spec, TaskSpec) else dict(spec)
        try:
            with temporal_errors(self._temporal, self._subject):
                return _status(await self._workflow.execute_update(Update.EDIT, body))
        except WorkflowUpdateFailedError as error:
            raise _refusal(error.cause) from None

    async def events(self, after: int = -1) -> AsyncIterator[ProgressEvent]:
        """Yield the progress events of the latest attempt until it is decided."""
        async for event in self._need_gateway().follow(self.namespace, self.name, after):
            yield event

    @property
    def _subject(self) -> str:
        return f"Task {self.namespace}/{self.name}"

    @property
    def _workflow(self) -> WorkflowHandle[Any, Any]:
        return self._temporal.get_workflow_handle(self.workflow_id)

    def _need_gateway(self) -> "Gateway":
        if self._gateway is None:
            raise Unavailable("answers and progress come from the gateway; give AnimaClient one")
        return self._gateway

    async def _signal(self, signal: Signal, by: str | None, reason: str | None) -> None:
        hint = {key: value for key, value in (("by", by), ("reason", reason)) if value is not None}
        try:
            with temporal_errors(self._temporal, self._subject):
                await self._workflow.signal(signal, args=[hint] if hint else [])
        except NotFound as unknown:
            recorded = await self._recorded_or(unknown)
            if not recorded.phase.final:
                raise
            message = f"{self._subject} has ended ({recorded.phase}), so it takes no {signal}; submit a new Task"
            raise Conflict(message) from None

    async def _end(self) -> TaskStatus:
        for _ in range(PATIENCE):
            try:
                with temporal_errors(self._temporal, self._subject):
                    return _status(await self._workflow.result())
            except WorkflowFailureError as error:
                return await self._failed(error.cause)
            except NotFound as error:
                return await self._recorded_or(error)
            except Unavailable as error:
                away = error
                await asyncio.sleep(1)
        raise away

    async def _failed(self, cause: BaseException) -> TaskStatus:
        if isinstance(cause, ApplicationError | CancelledError) and cause.details:
            return _status(cause.details[0])
        # Terminated, or ended by Temporal itself: the workflow had no last word.
        message = cause.message if isinstance(cause, FailureError) else type(cause).__name__
        unknown = TaskStatus(namespace=self.namespace, name=self.name, uid="")
        try:
            last = await self._recorded_or(NotFound("there is no record"))
        except (NotFound, Unavailable):
            last = unknown
        if last.phase.final:
            return last
        cancelled = isinstance(cause, CancelledError)
        phase, reason = (Phase.CANCELLED, Reason.CANCELLED) if cancelled else (Phase.FAILED, Reason.TERMINATED)
        return last.model_copy(update={"phase": phase, "reason": reason, "message": message})

    async def _recorded_or(self, error: NotFound | Unavailable) -> TaskStatus:
        """Return what the gateway has on record; without one, raise `error`."""
        if self._gateway is None:
            raise error
        return await self._gateway.task(self.namespace, self.name)


def _status(data: Any) -> TaskStatus:
    # Strict models read enumerations from JSON only.
    return TaskStatus.model_validate_json(json.dumps(data))


def _refusal(cause: BaseException) -> Refusal:
    if isinstance(cause, ApplicationError):
        known = [reason for reason in Reason if reason == cause.type]
        return Refusal(known[0] if known else Reason.REQUEST_REFUSED, cause.message)
    return Refusal(Reason.REQUEST_REFUSED, f"the edit failed: {type(cause).__name__}")
