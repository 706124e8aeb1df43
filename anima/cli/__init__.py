"""The `anima` command.

Nothing heavy is imported before a command runs, so `anima --help` is quick:
each command imports what it needs in its own body.
"""

from typing import Any

import typer

from anima.cli import chat, resources, sessions, souls, steering, tasks
from anima.cli.command import command
from anima.termination import leave

EPILOG = (
    "Exit codes: 0 done; 1 the Task failed or was cancelled; 2 wrong usage or input that was refused; "
    "3 no such object; 4 conflict; 5 something needed does not answer; 130 interrupted.\n\n"
    "Set ANIMA_HOME to use another home than ~/.anima, and ANIMA_GATEWAY_URL, ANIMA_TOKEN and "
    "TEMPORAL_ADDRESS to use another stack than the one `anima dev` runs."
)
# The forwarded command has options of its own.
_FORWARD = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}

app = typer.Typer(
    name="anima",
    help="Run AI-agent Tasks durably on Temporal, each under one frozen soul.",
    epilog=EPILOG,
    no_args_is_help=True,
    # Rich would cost most of the time that --help takes, and show locals in tracebacks.
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


@app.command(context_settings=_FORWARD)
@command
def dev(context: typer.Context) -> None:
    """Start everything here and keep it running until Ctrl-C."""
    from anima.cli.dev import dev

    _forward(dev, context)


@app.command(context_settings=_FORWARD)
@command
def demo(context: typer.Context) -> None:
    """Run one Task under an example Agent's soul and print its answer."""
    from anima.cli.dev import demo

    _forward(demo, context)


def _forward(function: Any, context: typer.Context) -> None:
    inner = typer.Typer(rich_markup_mode=None, add_completion=False)
    inner.command()(function)
    program = typer.main.get_command(inner)
    code = program.main(args=context.args, prog_name=context.command_path, standalone_mode=False)
    raise typer.Exit(code or 0)


resources.register(app)
souls.register(app)
tasks.register(app)
sessions.register(app)
steering.register(app)
chat.register(app)


def main() -> None:
    """Run the command."""
    leave(app)
