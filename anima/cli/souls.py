"""`anima soul`: digests, checks, publication and previews of souls."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from anima.cli.command import command
from anima.cli.options import DEFAULT_NAMESPACE, Namespace, Output, OutputForm, label

if TYPE_CHECKING:
    from anima.model.resources import ConfigMap

KEY = "SOUL.md"
_DIGEST_IN_NAME = 12
_MOST_BYTES = 4 * 1024 * 1024
"""More than any soul has; enough to say how many too many."""

SoulFile = Annotated[Path, typer.Argument(metavar="FILE", dir_okay=False, exists=True)]

app = typer.Typer(help="Digest, check, publish and show souls.", no_args_is_help=True, rich_markup_mode=None)
overview = typer.Typer(help="Tell which souls are in use.", no_args_is_help=True, rich_markup_mode=None)


def register(root: typer.Typer) -> None:
    """Add the commands of this module."""
    root.add_typer(app, name="soul")
    root.add_typer(overview, name="souls")


@overview.callback()
def _overview() -> None:
    """Tell which souls are in use."""


@overview.command()
@command
async def in_use(namespace: Namespace = DEFAULT_NAMESPACE, output: OutputForm = Output.TABLE) -> None:
    """List every revision in use, and what is under it.

    A revision is an Agent of one generation with one soul and one role.
    """
    from anima.cli.connection import open_gateway
    from anima.cli.output import emit
    from anima.cli.session_tables import show_in_use

    async with open_gateway() as gateway:
        found = await gateway.revisions(namespace)
    if output is Output.TABLE:
        show_in_use(found)
    else:
        emit(found.to_json(), output)


@app.command()
@command
def digest(file: SoulFile, output: OutputForm = Output.TABLE) -> None:
    """Print the digest of a file's exact bytes, as `sha256sum` would."""
    from anima.model.digests import digest_bytes

    _show(output, {"digest": digest_bytes(_content(file))}, lambda body: body["digest"])


@app.command()
@command
def check(file: SoulFile, output: OutputForm = Output.TABLE) -> None:
    """Check that a file can be a soul, and print its digest and size."""
    from anima.model.persona import MAX_SOUL_BYTES, persona_from_bytes

    persona = persona_from_bytes(_content(file), str(file))
    body = {"digest": persona.digest, "bytes": len(persona.encode()), "limit": MAX_SOUL_BYTES}
    _show(output, body, lambda body: f"{body['digest']}  {body['bytes']} of {body['limit']} bytes  valid")


@app.command()
@command
async def publish(
    file: SoulFile,
    name: Annotated[str, typer.Option("--name", metavar="BASE", callback=label, help="Begins the ConfigMap's name.")],
    namespace: Namespace = DEFAULT_NAMESPACE,
    output: OutputForm = Output.TABLE,
) -> None:
    """Store a soul as an immutable ConfigMap and print its reference.

    The ConfigMap's name ends with the soul's digest; the `soul:` block that is
    printed belongs in an Agent's spec.
    """
    from anima.cli.connection import open_gateway
    from anima.cli.output import emit
    from anima.model.persona import persona_from_bytes

    persona = persona_from_bytes(_content(file), str(file))
    config_map = _config_map(name, namespace, persona.digest, persona.reveal())
    async with open_gateway() as gateway:
        applied = await gateway.apply(config_map)
    typer.echo(f"ConfigMap {namespace}/{config_map.name} {applied.change}", err=True)
    reference = {"name": config_map.name, "key": KEY}
    block = {"soul": {"configMapRef": reference, "digest": persona.digest}}
    emit(block, Output.YAML if output is Output.TABLE else output)


@app.command("show")
@command
async def show_soul(
    agent: Annotated[str, typer.Argument(metavar="AGENT", callback=label)],
    namespace: Namespace = DEFAULT_NAMESPACE,
    text: Annotated[bool, typer.Option("--text", help="Print the whole system prompt, byte for byte.")] = False,
    output: OutputForm = Output.TABLE,
) -> None:
    """Show digests and sizes of what a Task of an Agent would be given."""
    from anima.cli.connection import open_gateway
    from anima.cli.output import emit, emit_bytes, emit_fields
    from anima.cli.tables import prompt_fields

    async with open_gateway() as gateway:
        prompt = await gateway.prompt(namespace, agent, text=text)
    if output is not Output.TABLE:
        emit(prompt, output)
    elif text:
        emit_bytes(str(prompt["text"]).encode())
    else:
        emit_fields([("Agent", f"{namespace}/{agent}"), *prompt_fields(prompt)])


def _content(file: Path) -> bytes:
    """Return the bytes of a file; a device that never ends is refused as any long file is."""
    from anima.model.errors import Refusal
    from anima.model.reasons import Reason

    with file.open("rb") as opened:
        data = opened.read(_MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        raise Refusal(Reason.SOUL_TOO_LARGE, f"{file} has more than {_MOST_BYTES} bytes")
    return data


def _config_map(base: str, namespace: str, digest: str, text: str) -> "ConfigMap":
    from anima.model.manifest import parse_resource
    from anima.model.resources import ConfigMap

    name = f"{base}-{digest.removeprefix('sha256:')[:_DIGEST_IN_NAME]}"
    parsed = parse_resource(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": namespace},
            "immutable": True,
            "data": {KEY: text},
        }
    )
    assert isinstance(parsed, ConfigMap)
    return parsed


def _show(output: Output, body: dict[str, Any], line: Any) -> None:
    from anima.cli.output import emit

    if output is Output.TABLE:
        typer.echo(line(body))
    else:
        emit(body, output)
