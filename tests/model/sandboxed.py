"""A workflow that loads the whole model inside the sandbox, and uses it there."""

import importlib
from datetime import timedelta
from typing import Any

from temporalio import workflow

from anima.model.errors import Refusal
from anima.model.manifest import parse_task
from tests.model.samples import MODULES, instances

for _module in MODULES:
    importlib.import_module(_module)


@workflow.defn(name="Sandboxed", sandboxed=True)
class SandboxedWorkflow:
    """Validate a Task, whatever it is, and say what came of it."""

    @workflow.run
    async def run(self, payload: Any) -> list[str]:
        try:
            task = parse_task(payload, "birds", "review")
        except Refusal as refusal:
            return [str(refusal.reason), *map(str, refusal.problems)]
        assert all(type(each).model_validate_json(each.model_dump_json()) == each for each in instances())
        # The time of an attempt's pause comes from the model, too.
        await workflow.sleep(task.spec.retry_policy.delay_after(1000) + timedelta(hours=1))
        return [task.spec.user_prompt, str(workflow.unsafe.in_sandbox())]
