"""`anima suspend`, `resume`, `cancel` and `wait`: steer a Task through Temporal."""

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
    for function in (suspend, resume, cancel, wait):
        app.command()(function)


@command
async def suspend(
    task: TaskName,
    namespace: Namespace = DEFAULT_NAMESPACE,
    by: By = None,
    reason: Why = None,
    output: OutputForm = Output.TABLE,
) -> None:
    """Hold a Task before its next Job; a running Job goes on."""
    from anima.cli.connection import open_client

    async with open_client() as (client, _):
        handle = client.handle(namespace, task)
        await handle.suspend(by, reason)
        await _confirm(handle, "suspended before its next Job", output)


@command
async def resume(
    task: TaskName,
    namespace: Namespace = DEFAULT_NAMESPACE,
    by: By = None,
    reason: Why = None,
    output: OutputForm = Output.TABLE,
) -> None:
    """Clear the operator's hold; a hold in the Task's spec stays."""
    from anima.cli.connection import open_client

    async with open_client() as (client, _):
        handle = client.handle(namespace, task)
        await handle.resume(by, reason)
        held = "spec" in (await handle.status()).holds
        await _confirm(handle, "is still held by its spec: " + _EDIT if held else "resumed", output)


@command
async def cancel(
    task: TaskName,
    namespace: Namespace = DEFAULT_NAMESPACE,
    by: By = None,
    reason: Why = None,
    output: OutputForm = Output.TABLE,
) -> None:
    """End a Task and its Job."""
    from anima.cli.connection import open_client

    async with open_client() as (client, _):
        handle = client.handle(namespace, task)
        await handle.cancel(by, reason)
        await _confirm(handle, "is being cancelled", output)


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


async def _confirm(handle: "TaskHandle", what: str, output: Output) -> None:
    from anima.cli.output import emit

    if output is Output.TABLE:
        typer.echo(f"Task {handle.namespace}/{handle.name} {what}")
    else:
        emit((await handle.status()).to_json(), output)
