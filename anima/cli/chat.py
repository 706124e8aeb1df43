"""`anima chat`: hold a conversation in the terminal."""

import sys
from collections.abc import Iterable, Iterator
from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from anima.cli.command import command
from anima.cli.options import DEFAULT_NAMESPACE, Namespace, Output, OutputForm, label

if TYPE_CHECKING:
    import asyncio

    from anima.cli.dialogue import Dialogue

QUIT = "/quit"
WHY = "/why"


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command()(chat)


@command
def chat(
    name: Annotated[
        str, typer.Argument(metavar="NAME", callback=label, help="The conversation; new, or one there is.")
    ],
    agent: Annotated[
        str | None, typer.Option("--agent", callback=label, help="Who answers; the same as before if not given.")
    ] = None,
    namespace: Namespace = DEFAULT_NAMESPACE,
    message: Annotated[
        list[str] | None, typer.Option("--message", "-m", help="Ask this and exit; give it again for more.")
    ] = None,
    output: OutputForm = Output.TABLE,
) -> None:
    """Talk to an Agent, line by line.

    Each line is a message, and its answer is shown as it comes.  Ctrl-D or /quit ends it,
    /why tells which revision the conversation is pinned to.  Answers go to standard
    output, all else to standard error.  With --message, or lines from a pipe, it ends
    after the last answer, with 1 if one of them failed.
    """
    import asyncio

    from anima.cli.connection import open_gateway
    from anima.cli.dialogue import Dialogue

    at_terminal = not message and sys.stdin.isatty()
    if at_terminal and output is not Output.TABLE:
        raise typer.BadParameter("a conversation at the terminal has no other form; give --message, or a pipe")
    # Lines are read outside of the event loop: nothing else could end a read with Ctrl-C.
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        try:
            gateway = runner.run(stack.enter_async_context(open_gateway()))
            live, quiet = sys.stdout.isatty(), output is not Output.TABLE
            dialogue = Dialogue(gateway, namespace, name, agent, live=live, quiet=quiet)
            if at_terminal:
                _converse(runner, dialogue)
            else:
                _ask_all(runner, dialogue, message or _lines(""), output)
        finally:
            runner.run(stack.aclose())


def _converse(runner: "asyncio.Runner", dialogue: "Dialogue") -> None:
    with suppress(ImportError):
        # Lines can be edited then, and called back.
        import readline  # noqa: F401
    runner.run(dialogue.resume())
    for line in _lines("> "):
        runner.run(dialogue.survive(dialogue.why if line == WHY else partial(dialogue.ask, line)))


def _ask_all(runner: "asyncio.Runner", dialogue: "Dialogue", lines: Iterable[str], output: Output) -> None:
    from anima.cli.output import emit
    from anima.exits import Exit

    exchanges = [runner.run(dialogue.ask(line)) for line in lines]
    if output is not Output.TABLE:
        emit([exchange.to_json() for exchange in exchanges], output)
    if any(exchange.answer is None or exchange.answer.reason for exchange in exchanges):
        raise typer.Exit(Exit.TASK_FAILED)


def _lines(prompt: str) -> Iterator[str]:
    """Yield what is typed or piped, line by line, blank ones left out."""
    from anima.model.errors import Refusal
    from anima.model.reasons import Reason

    while True:
        try:
            line = input(prompt)
        except EOFError:
            return
        except UnicodeDecodeError as error:
            raise Refusal(Reason.REQUEST_REFUSED, f"standard input is not UTF-8 at byte {error.start}") from None
        if line == QUIT:
            return
        if line.strip():
            yield line
