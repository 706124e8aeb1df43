"""`anima apply`, `get`, `describe` and `delete`: resources, through the gateway."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from anima.cli.command import command
from anima.cli.options import DEFAULT_NAMESPACE, AllNamespaces, Namespace, Output, OutputForm, label

if TYPE_CHECKING:
    from anima.gateway import Gateway
    from anima.model.manifest import Kind
    from anima.model.resources import Resource

KindName = Annotated[str, typer.Argument(metavar="KIND", help="agent, provider, task, configmap or secret.")]
ObjectName = Annotated[str, typer.Argument(metavar="NAME", callback=label)]
_SHORT = {"cm": "configmap"}
# What others refer to comes first, so that an Agent is ready once it is there.
_ORDER = ("Secret", "ConfigMap", "Provider", "Agent", "Task")


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    for function in (apply, get, describe, delete):
        app.command()(function)


@command
async def apply(
    files: Annotated[list[str], typer.Option("--filename", "-f", metavar="FILE|DIR|-", help="Manifests.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only validate, here and at the gateway.")] = False,
    namespace: Annotated[str | None, typer.Option("--namespace", "-n", callback=label)] = None,
    output: OutputForm = Output.TABLE,
) -> None:
    """Create or replace what is in manifests, and submit their Tasks.

    Everything is validated first: nothing is applied if anything is invalid.
    """
    import sys

    from anima.manifests import load_manifests
    from anima.model.errors import NotFound

    found = sorted(load_manifests(files, sys.stdin.buffer, namespace), key=lambda item: _ORDER.index(item.kind))
    if not found:
        raise NotFound(f"there is no manifest in {', '.join(files)}")
    changes: list[dict[str, str]] = []
    try:
        await _apply(found, changes, dry_run=dry_run)
    finally:
        # What was done is told, also if the rest could not be.
        if changes:
            _show_changes(changes, output)


async def _apply(found: "list[Resource]", changes: list[dict[str, str]], *, dry_run: bool) -> None:
    from anima.cli.connection import connect_client, open_gateway
    from anima.model.task import Task

    resources = [item for item in found if not isinstance(item, Task)]
    tasks = [item for item in found if isinstance(item, Task)]
    async with open_gateway() as gateway:
        client = await connect_client(gateway) if tasks and not dry_run else None
        for item in resources:
            await gateway.apply(item, dry_run=True)
        if dry_run:
            changes += [_change(item, "validated") for item in found]
            return
        for item in resources:
            changes.append(_change(item, (await gateway.apply(item)).change))
        if client is not None:
            for task in tasks:
                await client.submit(task)
                changes.append(_change(task, "submitted"))


def _change(resource: "Resource", change: str) -> dict[str, str]:
    return {"kind": resource.kind, "namespace": resource.namespace, "name": resource.name, "change": change}


def _show_changes(changes: list[dict[str, str]], output: Output) -> None:
    from anima.cli.output import emit

    if output is not Output.TABLE:
        emit(changes, output)
        return
    for change in changes:
        typer.echo(f"{change['kind']} {change['namespace']}/{change['name']} {change['change']}")


@command
async def get(
    kind: KindName,
    name: Annotated[str | None, typer.Argument(metavar="NAME", callback=label)] = None,
    namespace: Namespace = DEFAULT_NAMESPACE,
    all_namespaces: AllNamespaces = False,
    output: OutputForm = Output.TABLE,
) -> None:
    """Show objects of a kind, or one of them."""
    from anima.cli.connection import open_gateway
    from anima.cli.output import emit
    from anima.cli.tables import show_table

    known = kind_named(kind)
    async with open_gateway() as gateway:
        if name is not None:
            found = [await _one(gateway, known, namespace, name)]
        else:
            found = await _all(gateway, known, None if all_namespaces else namespace)
    if output is Output.TABLE:
        show_table(known, found)
    else:
        emit(found if name is None else found[0], output)


@command
async def describe(
    kind: KindName, name: ObjectName, namespace: Namespace = DEFAULT_NAMESPACE, output: OutputForm = Output.TABLE
) -> None:
    """Show one object; an Agent with readiness, a Task with attempts."""
    from anima.cli.connection import open_gateway
    from anima.cli.listing import current
    from anima.cli.output import emit
    from anima.cli.tables import show_agent

    known = kind_named(kind)
    async with open_gateway() as gateway:
        found = await gateway.describe(known, namespace, name)
        if known.name == "Task":
            found |= (await current(gateway, namespace, name)).to_json()
    if output is Output.TABLE and known.name == "Agent":
        show_agent(found)
    else:
        emit(found, Output.YAML if output is Output.TABLE else output)


@command
async def delete(
    kind: KindName, name: ObjectName, namespace: Namespace = DEFAULT_NAMESPACE, output: OutputForm = Output.TABLE
) -> None:
    """Delete one object; of a Task, its record once it is closed."""
    from anima.cli.connection import open_gateway

    known = kind_named(kind)
    async with open_gateway() as gateway:
        if known.name == "Task":
            await gateway.delete_task(namespace, name)
        else:
            await gateway.delete(known, namespace, name)
    _show_changes([{"kind": known.name, "namespace": namespace, "name": name, "change": "deleted"}], output)


def kind_named(text: str) -> "Kind":
    """Find a kind by its name, its plural or its short name.

    Raises:
        Refusal: `ResourceInvalid`, with the nearest known kind.
    """
    from anima.model.errors import Refusal
    from anima.model.manifest import KINDS, near_kind
    from anima.model.problems import Problem
    from anima.model.reasons import Reason

    given = _SHORT.get(text.lower(), text.lower())
    for kind in KINDS.values():
        if given in (kind.name.lower(), kind.plural):
            return kind
    problem = Problem("kind", "is not a known kind", near_kind(text))
    raise Refusal(Reason.RESOURCE_INVALID, f"{text!r} is not a known kind; {problem.remedy}", [problem])


async def _one(gateway: "Gateway", kind: "Kind", namespace: str, name: str) -> dict[str, Any]:
    from anima.cli.listing import current

    if kind.name == "Task":
        return (await current(gateway, namespace, name)).to_json()
    return await gateway.get(kind, namespace, name)


async def _all(gateway: "Gateway", kind: "Kind", namespace: str | None) -> list[dict[str, Any]]:
    from anima.cli.listing import up_to_date

    if kind.name == "Task":
        return [status.to_json() for status in await up_to_date(gateway, await gateway.tasks(namespace), namespace)]
    return list(await gateway.list(kind, namespace))
