"""Refusing a workflow that was started with more than one input.

The SDK would call the run method with all of them, fail, and try again for ever.
"""

from typing import Any

from temporalio import workflow
from temporalio.exceptions import ApplicationError
from temporalio.worker import (
    ExecuteWorkflowInput,
    Interceptor,
    WorkflowInboundInterceptor,
    WorkflowInterceptorClassInput,
)

with workflow.unsafe.imports_passed_through():
    from anima.model.reasons import Reason


class OneInput(Interceptor):
    """Every workflow of ours takes one input."""

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
