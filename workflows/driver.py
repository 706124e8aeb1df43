"""What the workflows share that only see to it that something in the database moves.

Queue, lock and messages are rows; such a workflow asks for them, acts, and rests.  So its
memory and its history do not grow with them, and a run that is killed, terminated or
reset has nothing to lose.
"""

from datetime import timedelta

from temporalio import workflow
from temporalio.common import SearchAttributeKey
from temporalio.exceptions import ApplicationError

with workflow.unsafe.imports_passed_through():
    from anima.model.names import names_in
    from anima.model.reasons import Reason
    from anima.model.wire import SearchAttribute
    from workflows.steps import Steps, Trouble

_FIRST_REST = timedelta(seconds=30)
_LONGEST_REST = timedelta(minutes=5)


class Driver:
    """Rests until it is woken, or for a while that grows; shows what goes on.

    Args:
        prefix: of the workflow's id, ``prefix/<namespace>/<name>``.
    """

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._details = ""
        self._rest = _FIRST_REST
        self.steps = Steps(workflow.sleep, self._retrying)
        self.woken = False
        """Set false before the database is read, so that no wake is missed."""

    def begin(self) -> tuple[str, str]:
        """Return namespace and name, and let the workflow be found by them."""
        found = names_in(workflow.info().workflow_id, self._prefix)
        if found is None:
            message = f"the workflow id must be {self._prefix}/<namespace>/<name>, in DNS labels"
            raise ApplicationError(message, type=Reason.REQUEST_REFUSED, non_retryable=True)
        values = zip((SearchAttribute.NAMESPACE, SearchAttribute.SESSION), found, strict=True)
        workflow.upsert_search_attributes(
            [SearchAttributeKey.for_keyword(name).value_set(value) for name, value in values]
        )
        return found

    def show(self, details: str) -> None:
        """Show in the Temporal UI what goes on."""
        self._details = details
        workflow.set_current_details(details)

    def look_sooner(self) -> None:
        """Something has moved: the next rest is short again."""
        self._rest = _FIRST_REST

    async def rest(self, summary: str) -> bool:
        """Wait for a wake or for the next look, and tell whether it was a wake.

        Here a run ends whose history has become long; the next one begins as this one did.
        """
        if workflow.info().is_continue_as_new_suggested():
            workflow.continue_as_new()
        try:
            await workflow.wait_condition(lambda: self.woken, timeout=self._rest, timeout_summary=summary)
        except TimeoutError:
            self._rest = min(self._rest * 2, _LONGEST_REST)
            return False
        self.look_sooner()
        return True

    def _retrying(self, trouble: Trouble | None) -> None:
        text = f"\n- trying again: {trouble}" if trouble else ""
        workflow.set_current_details(self._details + text)
