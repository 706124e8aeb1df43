"""A small workflow in place of the Task workflow, to test who talks to it."""

from typing import Any

from temporalio import workflow
from temporalio.common import SearchAttributeKey
from temporalio.exceptions import ApplicationError

from anima.model.wire import TASK_WORKFLOW, SearchAttribute


@workflow.defn(name=TASK_WORKFLOW, sandboxed=False)
class StandIn:
    """Ends as the prompt says, and remembers every signal."""

    def __init__(self) -> None:
        self._signals: list[Any] = []
        self._phase = "Running"
        self._holds: list[str] = []

    @workflow.run
    async def run(self, manifest: dict[str, Any]) -> dict[str, Any]:
        spec = manifest["spec"]
        self._holds = ["spec"] if spec.get("suspend") else []
        workflow.upsert_search_attributes(
            [
                SearchAttributeKey.for_keyword(SearchAttribute.NAMESPACE).value_set(manifest["metadata"]["namespace"]),
                SearchAttributeKey.for_keyword(SearchAttribute.PHASE).value_set("Running"),
            ]
        )
        match spec["prompt"]:
            case "fail":
                self._phase = "Failed"
                status = {**self.status(), "reason": "JobFailed", "message": "exit code 3"}
                raise ApplicationError("exit code 3", status, type="JobFailed", non_retryable=True)
            case "conflict":
                self._phase = "Failed"
                reason = {SearchAttribute.PHASE: "Failed", SearchAttribute.REASON: "TaskConflict"}
                workflow.upsert_search_attributes(
                    [SearchAttributeKey.for_keyword(key).value_set(value) for key, value in reason.items()]
                )
                status = {**self.status(), "reason": "TaskConflict", "message": "the name is taken"}
                raise ApplicationError("the name is taken", status, type="TaskConflict", non_retryable=True)
            case "hold":
                await workflow.wait_condition(lambda: any(name == "cancel" for name, _ in self._signals))
        self._phase = "Succeeded"
        return self.status()

    @workflow.signal(name="suspend")
    def suspend(self, hint: Any = None) -> None:
        self._signals.append(("suspend", hint))

    @workflow.signal(name="resume")
    def resume(self, hint: Any = None) -> None:
        self._signals.append(("resume", hint))

    @workflow.signal(name="cancel")
    def cancel(self, hint: Any = None) -> None:
        self._signals.append(("cancel", hint))

    @workflow.query(name="status")
    def status(self) -> dict[str, Any]:
        _, namespace, name = workflow.info().workflow_id.split("/")
        body = {"namespace": namespace, "name": name, "uid": workflow.info().run_id, "phase": self._phase}
        return {**body, "holds": self._holds, "message": str(self._signals)}

    @workflow.update(name="edit")
    async def edit(self, spec: dict[str, Any]) -> dict[str, Any]:
        if spec["prompt"] == "frozen":
            raise ApplicationError("prompt is frozen", type="FrozenInputDrift", non_retryable=True)
        return self.status()
