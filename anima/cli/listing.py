"""Tasks as they are now: the gateway's records, with what Temporal knows of open ones."""

from collections.abc import Sequence

from anima.cli.connection import connect_client
from anima.client import ListedTask
from anima.gateway import Gateway
from anima.model.errors import Unavailable
from anima.model.task import TaskStatus


async def up_to_date(gateway: Gateway, found: Sequence[TaskStatus], namespace: str | None) -> list[TaskStatus]:
    """Give open Tasks the phase that Temporal lists; a server that is away is no reason to fail."""
    if all(status.phase.final for status in found):
        return list(found)
    try:
        listed = await (await connect_client(gateway)).list(namespace)
    except Unavailable:
        return list(found)
    live = {(item.namespace, item.name): item for item in listed}
    return [_updated(status, live.get((status.namespace, status.name))) for status in found]


async def current(gateway: Gateway, namespace: str, name: str) -> TaskStatus:
    """Return a Task's status as its workflow has it; its record if Temporal is away."""
    recorded = await gateway.task(namespace, name)
    if recorded.phase.final:
        return recorded
    try:
        client = await connect_client(gateway)
    except Unavailable:
        return recorded
    return await client.handle(namespace, name).status()


def _updated(status: TaskStatus, live: ListedTask | None) -> TaskStatus:
    if live is None or status.phase.final:
        return status
    return status.model_copy(update={"phase": live.phase, "reason": live.reason})
