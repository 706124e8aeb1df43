"""`anima sessions` and `anima session`: what Tasks continue, and what they would refuse."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

from anima.cli.command import command
from anima.cli.options import DEFAULT_NAMESPACE, AllNamespaces, Namespace, Output, OutputForm, label

if TYPE_CHECKING:
    from anima.gateway import Gateway
    from anima.model.session import SessionRecord

SessionName = Annotated[str, typer.Argument(metavar="NAME", callback=label, help="The Session's name.")]

_STDIN = Path("-")
_PIECE = 64 * 1024
_PAGE = 50

app = typer.Typer(help="Show, move and delete one Session.", no_args_is_help=True, rich_markup_mode=None)


def register(root: typer.Typer) -> None:
    """Add the commands of this module."""
    root.command()(sessions)
    root.add_typer(app, name="session")


@command
async def sessions(
    namespace: Namespace = DEFAULT_NAMESPACE,
    all_namespaces: AllNamespaces = False,
    limit: Annotated[int, typer.Option("--limit", min=1, max=500, help="How many at most.")] = 100,
    output: OutputForm = Output.TABLE,
) -> None:
    """List Sessions, the last used first."""
    from anima.cli.connection import open_gateway
    from anima.cli.output import emit
    from anima.cli.session_tables import show_sessions

    async with open_gateway() as gateway:
        found = await gateway.sessions(None if all_namespaces else namespace, limit)
    if output is Output.TABLE:
        show_sessions(found)
    else:
        emit([session.to_json() for session in found], output)


@app.command()
@command
async def show(
    name: SessionName,
    namespace: Namespace = DEFAULT_NAMESPACE,
    limit: Annotated[int, typer.Option("--limit", min=1, max=200, help="How many of the last messages.")] = 20,
    contains: Annotated[str | None, typer.Option("--contains", help="Only messages with this text.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every message, whatever --limit says.")] = False,
    output: OutputForm = Output.TABLE,
) -> None:
    """Show how a Session stands, and its last messages."""
    from anima.cli.connection import open_gateway
    from anima.cli.output import emit
    from anima.cli.session_tables import show_messages, show_session

    async with open_gateway() as gateway:
        session = await gateway.session(namespace, name)
        last = None if everything else limit
        pages = _pages(gateway, namespace, name, contains, last)
        if output is Output.TABLE:
            show_session(session)
            async for page in pages:
                show_messages(page)
        else:
            messages = [record.to_json() async for page in pages for record in page]
            emit({"session": session.to_json(), "messages": messages}, output)


@app.command()
@command
async def export(
    name: SessionName,
    namespace: Namespace = DEFAULT_NAMESPACE,
    file: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", dir_okay=False, help="Where to; else standard output."),
    ] = None,
) -> None:
    """Write a Session's messages, one a line, as JSON.

    A file is complete, or is not written at all.  Neither the Session's identity nor
    the reasons of turns that failed are in it.
    """
    from contextlib import aclosing

    from anima.cli.connection import open_gateway
    from anima.cli.session_files import print_lines, whole_file

    if file is not None and file.exists() and not file.is_file():
        raise typer.BadParameter(f"{file} is no regular file; leave --output out, and redirect")
    async with open_gateway() as gateway, aclosing(gateway.export_session(namespace, name)) as lines:
        if file is None:
            await print_lines(lines)
        else:
            with whole_file(file.resolve()) as written:
                async for piece in lines:
                    written.write(piece)
            typer.echo(f"Session {namespace}/{name} exported to {file}", err=True)


@app.command("import")
@command
async def import_(
    name: SessionName,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="- is standard input.")],
    namespace: Namespace = DEFAULT_NAMESPACE,
    output: OutputForm = Output.TABLE,
) -> None:
    """Begin a Session with messages, one a line.

    They have no identity, so that a soul cannot join them.  All of them are imported, or none.
    """
    import sys

    from anima.cli.output import emit

    if file == _STDIN:
        begun = await _import(name, namespace, sys.stdin.buffer, "standard input")
    else:
        with file.open("rb") as opened:
            begun = await _import(name, namespace, opened, str(file))
    if output is Output.TABLE:
        typer.echo(f"Session {namespace}/{name} begun with {begun['messages']} messages")
    else:
        emit(begun, output)


@app.command()
@command
async def delete(
    name: SessionName, namespace: Namespace = DEFAULT_NAMESPACE, output: OutputForm = Output.TABLE
) -> None:
    """Delete a Session that is not in use."""
    from anima.cli.connection import open_gateway
    from anima.cli.output import emit

    async with open_gateway() as gateway:
        await gateway.delete_session(namespace, name)
    if output is Output.TABLE:
        typer.echo(f"Session {namespace}/{name} deleted")
    else:
        emit({"kind": "Session", "namespace": namespace, "name": name, "change": "deleted"}, output)


@app.command()
@command
async def why(
    name: SessionName,
    namespace: Namespace = DEFAULT_NAMESPACE,
    agent: Annotated[str | None, typer.Option("--agent", callback=label, help="Only this Agent.")] = None,
    output: OutputForm = Output.TABLE,
) -> None:
    """Tell what a Session is pinned to, and what it refuses."""
    from anima.cli.connection import open_gateway
    from anima.cli.output import emit
    from anima.cli.session_tables import show_explanation

    async with open_gateway() as gateway:
        found = await gateway.explain_session(namespace, name, agent)
    if output is Output.TABLE:
        show_explanation(found)
    else:
        emit(found.to_json(), output)


async def _pages(
    gateway: "Gateway", namespace: str, name: str, contains: str | None, last: int | None
) -> AsyncIterator["list[SessionRecord]"]:
    """Yield the last messages; all of them, page by page, if it is not said how many."""
    if last is not None:
        yield list(await gateway.records(namespace, name, limit=last, contains=contains, newest=True))
        return
    after = 0
    while page := list(await gateway.records(namespace, name, after=after, limit=_PAGE, contains=contains)):
        yield page
        after = page[-1].sequence


async def _import(name: str, namespace: str, file: BinaryIO, source: str) -> dict[str, Any]:
    from anima.cli.connection import open_gateway
    from anima.manifests import LocatedProblem
    from anima.model.errors import Refusal

    async with open_gateway() as gateway:
        try:
            return (await gateway.import_session(namespace, name, _pieces(file))).to_json()
        except Refusal as refusal:
            problems = [LocatedProblem(item.path, item.message, item.remedy, source) for item in refusal.problems]
            raise Refusal(refusal.reason, refusal.message, problems) from None


async def _pieces(file: BinaryIO) -> AsyncIterator[bytes]:
    while piece := file.read(_PIECE):
        yield piece
