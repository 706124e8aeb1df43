"""What a workflow, a signal, a query or an update is given: one input, or none.

The SDK would call the method with all that was sent, fail, and try again for ever:
one signal with two hints would stop a Task for good, and leave it deaf to `cancel`.
"""

from dataclasses import replace
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ApplicationError
from temporalio.worker import (
    ExecuteWorkflowInput,
    HandleQueryInput,
    HandleSignalInput,
    HandleUpdateInput,
    Interceptor,
    WorkflowInboundInterceptor,
    WorkflowInterceptorClassInput,
)

with workflow.unsafe.imports_passed_through():
    from anima.model.reasons import Reason


class OneInput(Interceptor):
    """Every workflow and update of ours takes one input; what more a signal or a query brings is ignored."""

    def workflow_interceptor_class(
        self,
        input: WorkflowInterceptorClassInput,  # noqa: A002, ARG002 (the SDK's signature)
    ) -> type[WorkflowInboundInterceptor]:
        return _OneInput


class _OneInput(WorkflowInboundInterceptor):
    async def execute_workflow(self, input: ExecuteWorkflowInput) -> Any:  # noqa: A002
        if len(input.args) > 1:
            message = f"the workflow takes one input, the Task's manifest as JSON, and was given {len(input.args)}"
            raise ApplicationError(message, type=Reason.TASK_INVALID, non_retryable=True)
        return await super().execute_workflow(input)

    async def handle_signal(self, input: HandleSignalInput) -> None:  # noqa: A002
        await super().handle_signal(replace(input, args=input.args[:1]))

    async def handle_query(self, input: HandleQueryInput) -> Any:  # noqa: A002
        return await super().handle_query(replace(input, args=[]))

    def handle_update_validator(self, input: HandleUpdateInput) -> None:  # noqa: A002
        if len(input.args) != 1:
            message = f"the update {input.update} takes one input and was given {len(input.args)}"
            raise ApplicationError(message, type=Reason.TASK_INVALID, non_retryable=True)
        super().handle_update_validator(input)
