"""`anima suspend`, `resume`, `cancel` and `wait`: steer a Task through Temporal."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated

import typer

from anima.cli.command import command
from anima.cli.options import DEFAULT_NAMESPACE, Namespace, Output, OutputForm, TaskName, WaitTime

if TYPE_CHECKING:
    from anima.handle import TaskHandle

By = Annotated[str | None, typer.Option("--by", help="Who asks for it; a hint, not an identity.")]
Why = Annotated[str | None, typer.Option("--reason", help="Why; a hint, too.")]
_EDIT = "send the whole spec, with `suspend` false, as the workflow's update `edit`"


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    for steer in (suspend, resume, cancel):
        app.command(steer.__name__, help=steer.__doc__)(_steering(steer))
    app.command()(wait)


async def suspend(handle: "TaskHandle", by: str | None, reason: str | None) -> str:
    """Hold a Task before its next Job; a running Job goes on."""
    await handle.suspend(by, reason)
    return "suspended before its next Job"


async def resume(handle: "TaskHandle", by: str | None, reason: str | None) -> str:
    """Clear the operator's hold; a hold in the Task's spec stays."""
    await handle.resume(by, reason)
    return f"is still held by its spec: {_EDIT}" if "spec" in (await handle.status()).holds else "resumed"


async def cancel(handle: "TaskHandle", by: str | None, reason: str | None) -> str:
    """End a Task and its Job."""
    await handle.cancel(by, reason)
    return "is being cancelled"


def _steering(steer: Callable[["TaskHandle", str | None, str | None], Awaitable[str]]) -> Callable[..., None]:
    """Make a command of what steers a Task and says what became of it."""

    @command
    async def run(
        task: TaskName,
        namespace: Namespace = DEFAULT_NAMESPACE,
        by: By = None,
        reason: Why = None,
        output: OutputForm = Output.TABLE,
    ) -> None:
        from anima.cli.connection import open_client
        from anima.cli.output import emit

        async with open_client() as (client, _):
            handle = client.handle(namespace, task)
            done = await steer(handle, by, reason)
            if output is Output.TABLE:
                typer.echo(f"Task {namespace}/{task} {done}")
            else:
                emit((await handle.status()).to_json(), output)

    return run


@command
async def wait(
    task: TaskName,
    namespace: Namespace = DEFAULT_NAMESPACE,
    timeout: WaitTime = None,  # noqa: ASYNC109 (the name of the option)
    output: OutputForm = Output.TABLE,
) -> None:
    """Wait for a Task's end; exit with 1 unless it succeeded."""
    from anima.cli.connection import open_client
    from anima.cli.ending import show_end, until_end

    async with open_client() as (client, gateway):
        handle = client.handle(namespace, task)
        show_end(await until_end(handle, gateway, timeout, quiet=output is not Output.TABLE), output)
