"""What activities ask of Temporal: that a workflow wakes, or whether it is there."""

from temporalio.client import Client, WorkflowExecutionStatus

from anima.client import AnimaClient
from anima.model.errors import NotFound
from anima.model.names import conversation_workflow_id, session_workflow_id
from anima.model.session import Claimant
from anima.model.task import Task
from anima.model.wire import CONVERSATION_WORKFLOW, SESSION_WORKFLOW, Signal
from anima.stores.sessions import SessionKey
from anima.temporal import temporal_errors


class Drivers:
    """The workflows that hand Sessions on, and the Tasks that they serve.

    Args:
        client: connected to Temporal.
        task_queue: where the workflows run.
    """

    def __init__(self, client: Client, task_queue: str) -> None:
        self._client = client
        self._task_queue = task_queue

    async def wake(self, key: SessionKey) -> None:
        """Have the workflow of a Session or a conversation look at the database; start it if need be."""
        workflow = CONVERSATION_WORKFLOW if key.conversation else SESSION_WORKFLOW
        subject = f"{workflow} {key.namespace}/{key.name}"
        with temporal_errors(self._client, subject):
            await self._client.start_workflow(
                workflow,
                id=_driver_id(key),
                task_queue=self._task_queue,
                start_signal=Signal.WAKE,
                static_summary=subject,
            )

    async def is_driving(self, key: SessionKey) -> bool:
        """Tell whether the workflow of a Session or a conversation is open."""
        return await self._open_run(_driver_id(key)) is not None

    async def granted(self, holder: Claimant) -> bool:
        """Tell a Task that a Session may be its own; false if no workflow of that id is open."""
        try:
            with temporal_errors(self._client, f"Task {holder.task}"):
                await self._client.get_workflow_handle(holder.workflow_id).signal(Signal.GRANTED)
        except NotFound:
            return False
        return True

    async def is_open(self, claimant: Claimant) -> bool:
        """Tell whether a Task's workflow is open; another Task of the same name does not count."""
        return await self._open_run(claimant.workflow_id) == claimant.task_uid

    async def start_task(self, task: Task) -> None:
        """Start a Task, or join it if it is there with the same content.

        Raises:
            Refusal: `TaskConflict` if its name is taken.
        """
        await AnimaClient(self._client).submit(task)

    async def _open_run(self, workflow_id: str) -> str | None:
        """Return the first run id of the open workflow of this id."""
        try:
            with temporal_errors(self._client, workflow_id):
                described = await self._client.get_workflow_handle(workflow_id).describe()
        except NotFound:
            return None
        if described.status is not WorkflowExecutionStatus.RUNNING:
            return None
        return described.raw_description.workflow_execution_info.first_run_id


def _driver_id(key: SessionKey) -> str:
    make = conversation_workflow_id if key.conversation else session_workflow_id
    return make(key.namespace, key.name)
