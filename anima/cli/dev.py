"""`anima dev` and `anima demo`: everything on this machine."""

import asyncio
import shlex
import shutil
import signal
import sys
from collections.abc import Coroutine
from typing import Annotated, Any

import typer

from anima.cli.demo import demonstrate
from anima.exits import Exit
from anima.home import Home
from anima.stack import Addresses, Ports, Stack, running_stack

_DEFAULT = Ports()

GatewayPort = Annotated[int, typer.Option(envvar="ANIMA_GATEWAY_PORT", min=0, max=65535, help="0 chooses a free one.")]
TemporalPort = Annotated[int, typer.Option(envvar="ANIMA_TEMPORAL_PORT", min=0, max=65535, help="Of its gRPC API.")]
UiPort = Annotated[int, typer.Option(envvar="ANIMA_UI_PORT", min=0, max=65535, help="Of Temporal's web pages.")]
ModelPort = Annotated[int, typer.Option(envvar="ANIMA_MODEL_PORT", min=0, max=65535, help="Of the small model.")]


def dev(
    gateway_port: GatewayPort = _DEFAULT.gateway,
    temporal_port: TemporalPort = _DEFAULT.temporal,
    ui_port: UiPort = _DEFAULT.ui,
    model_port: ModelPort = _DEFAULT.model,
) -> None:
    """Start everything here and keep it running until Ctrl-C."""
    try:
        _run(_stay(Ports(gateway_port, temporal_port, ui_port, model_port)))
    except asyncio.CancelledError:
        typer.echo("Stopped. Tasks go on where they were when it is started again.")


def demo(
    keep: Annotated[bool, typer.Option("--keep", help="Leave the stack running, as `anima dev` does.")] = False,
    gateway_port: GatewayPort = _DEFAULT.gateway,
    temporal_port: TemporalPort = _DEFAULT.temporal,
    ui_port: UiPort = _DEFAULT.ui,
    model_port: ModelPort = _DEFAULT.model,
) -> None:
    """Run one Task under an example Agent's soul and print its answer.

    Uses the running stack, or starts one for as long as it takes; a port that is
    taken is then replaced by a free one.
    """
    ports = Ports(gateway_port, temporal_port, ui_port, model_port)
    try:
        succeeded = _run(_show(ports, keep))
    except asyncio.CancelledError:
        raise typer.Exit(Exit.INTERRUPTED) from None
    if not succeeded:
        raise typer.Exit(Exit.TASK_FAILED)


async def _stay(ports: Ports) -> None:
    home = Home.from_environment()
    async with Stack(home, ports, typer.echo) as addresses:
        _welcome(home, addresses)
        await asyncio.Event().wait()


async def _show(ports: Ports, keep: bool) -> bool:
    home = Home.from_environment()
    if running := running_stack(home):
        typer.echo(f"Using the stack that runs on {home.root}.")
        return await demonstrate(home, running)
    chosen = ports.free().claim()
    async with Stack(home, chosen, typer.echo) as addresses:
        succeeded = await demonstrate(home, addresses)
        if keep:
            _welcome(home, addresses)
            await asyncio.Event().wait()
    typer.echo(f"\nThe stack has stopped. To look at this Task in Temporal, start it again:\n  {_again(home, chosen)}")
    return succeeded


def _again(home: Home, ports: Ports) -> str:
    program = "anima" if shutil.which("anima") else sys.argv[0]
    command = shlex.join([program, "dev", *ports.options()])
    return command if home == Home.from_environment({}) else f"ANIMA_HOME={shlex.quote(str(home.root))} {command}"


def _export(home: Home) -> str:
    return "" if home == Home.from_environment({}) else f"  export ANIMA_HOME={shlex.quote(str(home.root))}\n"


def _welcome(home: Home, addresses: Addresses) -> None:
    typer.echo(
        f"\nAnima runs on {home.root}\n"
        f"  Temporal UI   {addresses.ui}\n"
        f"  Temporal      {addresses.temporal}, namespace {addresses.namespace}\n"
        f"  gateway       {addresses.gateway}\n"
        f"  small model   {addresses.model or 'not installed'}\n"
        f"  logs          {home.logs}\n\n"
        f"Next, in another terminal:\n{_export(home)}"
        "  anima apply -f examples/reviewer\n"
        '  anima run --agent reviewer "Is division by zero a bug?"\n\n'
        "Ctrl-C stops it."
    )


def _run(main: Coroutine[Any, Any, Any]) -> Any:
    """Run to the end, or until a signal; parts are stopped in either case.

    A second signal kills the part that is slow to stop.
    """

    async def interruptible() -> Any:
        task = asyncio.current_task()
        assert task is not None
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, task.cancel)
        return await main

    return asyncio.run(interruptible())
