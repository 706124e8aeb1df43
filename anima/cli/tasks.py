"""`anima run`, `tasks`, `status`, `logs`, `result` and `rerun`."""

from typing import Annotated

import typer

from anima.cli.command import command
from anima.cli.options import (
    DEFAULT_NAMESPACE,
    AllNamespaces,
    Namespace,
    Output,
    OutputForm,
    TaskName,
    WaitTime,
    label,
)


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    for function in (run, tasks, status, logs, result, rerun):
        app.command()(function)


@command
async def run(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="AGENT PROMPT", help="An Agent's name, and the prompt in quotes; - reads the prompt."),
    ] = None,
    file: Annotated[str | None, typer.Option("--filename", "-f", help="A Task's manifest, or -.")] = None,
    agent: Annotated[
        str | None, typer.Option("--agent", callback=label, help="The Agent, if only the prompt is an argument.")
    ] = None,
    name: Annotated[str | None, typer.Option("--name", callback=label, help="The Task's name; else made up.")] = None,
    namespace: Annotated[str | None, typer.Option("--namespace", "-n", callback=label)] = None,
    session: Annotated[str | None, typer.Option("--session", callback=label, help="The Session to continue.")] = None,
    no_append: Annotated[bool, typer.Option("--no-append", help="Read the Session, and add nothing to it.")] = False,
    wait: Annotated[bool, typer.Option("--wait/--detach", help="Wait for the answer, or only submit.")] = True,
    timeout: WaitTime = None,  # noqa: ASYNC109 (the name of the option)
    output: OutputForm = Output.TABLE,
) -> None:
    """Run a Task, show its progress, and print its answer.

    The answer alone goes to standard output, all else to standard error.
    """
    from anima.cli.connection import open_client
    from anima.cli.ending import show_answer, until_end
    from anima.cli.output import emit
    from anima.cli.submission import task_from_file, task_from_prompt

    if file is not None and session is not None:
        raise typer.BadParameter("a file names the Session itself, in spec.sessionRef; leave --session out")
    if no_append and session is None:
        raise typer.BadParameter("--no-append goes with --session NAME")
    match file, agent, words or []:
        case str(), None, []:
            task = task_from_file(file, namespace, name)
        case (None, str(who), [prompt]) | (None, None, [who, prompt]):
            task = task_from_prompt(who, prompt, namespace, name, session, append=not no_append)
        case _:
            raise typer.BadParameter(
                'give an Agent and a prompt in quotes, as in `anima run AGENT "PROMPT"`, or -f FILE'
            )
    async with open_client() as (client, gateway):
        handle = await client.submit(task)
        typer.echo(f"Task {task.namespace}/{task.name} submitted", err=True)
        if wait:
            quiet = output is not Output.TABLE
            await show_answer(await until_end(handle, gateway, timeout, quiet=quiet), gateway, output)
        elif output is Output.TABLE:
            typer.echo(task.name)
        else:
            emit({"namespace": task.namespace, "name": task.name, "workflowId": handle.workflow_id}, output)


@command
async def tasks(
    namespace: Namespace = DEFAULT_NAMESPACE,
    all_namespaces: AllNamespaces = False,
    limit: Annotated[int, typer.Option("--limit", min=1, max=500, help="How many at most.")] = 100,
    output: OutputForm = Output.TABLE,
) -> None:
    """List Tasks, newest first."""
    from anima.cli.connection import open_gateway
    from anima.cli.listing import up_to_date
    from anima.cli.output import emit
    from anima.cli.tables import show_tasks

    where = None if all_namespaces else namespace
    async with open_gateway() as gateway:
        found = [status.to_json() for status in await up_to_date(gateway, await gateway.tasks(where, limit), where)]
    if output is Output.TABLE:
        show_tasks(found)
    else:
        emit(found, output)


@command
async def status(task: TaskName, namespace: Namespace = DEFAULT_NAMESPACE, output: OutputForm = Output.TABLE) -> None:
    """Show where a Task stands: phase, attempt, soul digest and more."""
    from anima.cli.connection import open_client
    from anima.cli.output import emit
    from anima.cli.tables import show_status

    async with open_client() as (client, _):
        found = (await client.handle(namespace, task).status()).to_json()
    if output is Output.TABLE:
        show_status(found)
    else:
        emit(found, output)


@command
async def logs(
    task: TaskName,
    namespace: Namespace = DEFAULT_NAMESPACE,
    attempt: Annotated[int | None, typer.Option("--attempt", min=1, help="From 1; the latest if not given.")] = None,
    tail: Annotated[int | None, typer.Option("--tail", min=1, help="How many bytes at most.")] = None,
    output: OutputForm = Output.TABLE,
) -> None:
    """Print the end of what an attempt's Job wrote, byte for byte."""
    from anima.cli.connection import open_gateway
    from anima.cli.output import emit, emit_bytes

    async with open_gateway() as gateway:
        log = await gateway.logs(namespace, task, attempt=attempt, tail=tail)
    if output is Output.TABLE:
        emit_bytes(log)
    else:
        emit({"log": log.decode(errors="replace")}, output)


@command
async def result(task: TaskName, namespace: Namespace = DEFAULT_NAMESPACE, output: OutputForm = Output.TABLE) -> None:
    """Print a Task's answer, byte for byte; exit with 1 if it failed."""
    from anima.cli.connection import open_gateway
    from anima.cli.ending import show_answer
    from anima.model.errors import NotFound

    async with open_gateway() as gateway:
        found = await gateway.task(namespace, task)
        if not found.phase.final:
            raise NotFound(f"Task {namespace}/{task} has no result yet; it is {found.phase}")
        await show_answer(found, gateway, output)


@command
async def rerun(
    task: TaskName,
    namespace: Namespace = DEFAULT_NAMESPACE,
    name: Annotated[str | None, typer.Option("--name", callback=label, help="The new name; else made up.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what has changed.")] = False,
    output: OutputForm = Output.TABLE,
) -> None:
    """Submit the spec of a Task anew, and show what has changed since."""
    from anima.cli.connection import open_client, open_gateway
    from anima.cli.output import emit
    from anima.cli.submission import changes_since, made_up, named

    async with open_gateway() as gateway:
        old = await gateway.spec(namespace, task)
        new = named(old.spec, namespace, name or made_up(task))
        changes = await changes_since(old, gateway, namespace)
    if not dry_run:
        async with open_client() as (client, _):
            await client.submit(new)
    if output is not Output.TABLE:
        submitted = {} if dry_run else {"namespace": namespace, "name": new.name}
        emit({"changes": [change.to_json() for change in changes], "submitted": submitted}, output)
        return
    for change in changes:
        typer.echo(str(change))
    if old.binding is None:
        typer.echo(f"Task {namespace}/{task} was never bound to a soul, so its Agent is not compared")
    typer.echo("nothing was submitted" if dry_run else f"Task {namespace}/{new.name} submitted")
