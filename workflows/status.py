"""What a Task shows of itself: status, search attributes, current details."""

from typing import Any, Literal

from temporalio import workflow
from temporalio.common import SearchAttributeKey, SearchAttributeUpdate

with workflow.unsafe.imports_passed_through():
    from anima.model.binding import SoulBinding
    from anima.model.task import Condition, TaskStatus
    from anima.model.wire import INT_ATTRIBUTES, SearchAttribute

_PROGRESS = ("attempt", "iteration", "total_attempts", "start_time", "job_name")

ConditionType = Literal["Bound", "Suspended", "Retrying", "Complete", "Failed"]


class StatusBoard:
    """Keeps the status of one Task and publishes it to Temporal on each change."""

    def __init__(self, status: TaskStatus) -> None:
        self.status = status
        self._published: dict[SearchAttribute, str | int] = {}
        self._waits_for = ""

    def note(self, **update: Any) -> None:
        """Change fields that nobody watches from outside."""
        self.status = self.status.model_copy(update=update)

    def resume(self, progress: TaskStatus) -> None:
        """Go on from how far an earlier run of the Task came."""
        self.note(**{name: getattr(progress, name) for name in _PROGRESS})
        self.bound(progress.soul_binding)

    def bound(self, binding: SoulBinding | None) -> None:
        """Show the Task's binding, if it has one."""
        if binding is not None:
            conditions = self.condition("Bound", True, "SoulBound", binding.soul_digest)
            self.note(soul_binding=binding, conditions=conditions)

    def adopt(self, status: TaskStatus) -> None:
        """Take over and publish a status that was stored."""
        self.status = status
        self.change()

    def change(self, waits_for: str = "", **update: Any) -> None:
        """Change fields of the status and publish it.

        Args:
            waits_for: what has to happen next, for a person who watches.
            update: fields of `TaskStatus`.
        """
        self.note(**update)
        self._upsert()
        self._waits_for = waits_for
        self._show()

    def held(self, by: list[str]) -> None:
        """Show who holds the Task now; what it waits for is not changed by that."""
        self.note(holds=by)
        self._show()

    def condition(self, kind: ConditionType, holds: bool, reason: str = "", message: str = "") -> list[Condition]:
        """Return the conditions with one replaced; its time moves only on a change."""
        others = [c for c in self.status.conditions if c.type != kind]
        before = next((c for c in self.status.conditions if c.type == kind), None)
        status: Literal["True", "False"] = "True" if holds else "False"
        since = before.last_transition_time if before and before.status == status else workflow.now()
        return [
            *others,
            Condition(type=kind, status=status, reason=reason, message=message, last_transition_time=since),
        ]

    def _show(self) -> None:
        workflow.set_current_details(_details(self.status, self._waits_for))

    def _upsert(self) -> None:
        values = _attributes(self.status)
        changed = {name: value for name, value in values.items() if self._published.get(name) != value}
        if changed:
            workflow.upsert_search_attributes([_update(name, value) for name, value in changed.items()])
            self._published |= changed


def _attributes(status: TaskStatus) -> dict[SearchAttribute, str | int]:
    values: dict[SearchAttribute, str | int] = {
        SearchAttribute.NAMESPACE: status.namespace,
        SearchAttribute.AGENT: status.agent,
        SearchAttribute.PHASE: status.phase,
        SearchAttribute.ATTEMPT: status.attempt,
        SearchAttribute.ITERATION: status.iteration,
    }
    if status.session:
        values[SearchAttribute.SESSION] = status.session
    if status.reason:
        values[SearchAttribute.REASON] = status.reason
    if status.soul_binding:
        values[SearchAttribute.SOUL_DIGEST] = status.soul_binding.soul_digest
    return values


def _update(name: SearchAttribute, value: str | int) -> SearchAttributeUpdate[Any]:
    if name in INT_ATTRIBUTES:
        return SearchAttributeKey.for_int(name).value_set(int(value))
    return SearchAttributeKey.for_keyword(name).value_set(str(value))


def _details(status: TaskStatus, waits_for: str) -> str:
    unbound = "none" if status.total_attempts else "not bound yet"
    soul = status.soul_binding.soul_digest if status.soul_binding else unbound
    lines = [
        f"**{status.phase}**" + (f" ({status.reason})" if status.reason else ""),
        f"- Agent: `{status.agent}`",
        f"- attempt: {status.attempt}, started in all: {status.total_attempts}, iteration: {status.iteration}",
        f"- soul: `{soul}`",
    ]
    lines += [f"- Session: `{status.session}`"] if status.session else []
    lines += [f"- Job: `{status.job_name}`"] if status.job_name else []
    lines += [f"- held by: {', '.join(status.holds)}"] if status.holds else []
    lines += [f"- waits for: {waits_for}"] if waits_for else []
    lines += [f"- {status.message}"] if status.message else []
    return "\n".join(lines)
