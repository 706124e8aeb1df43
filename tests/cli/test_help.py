"""`anima --help`: quick, complete, and honest about exit codes."""

import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from anima.cli import EPILOG, app
from anima.exits import Exit

HEAVY = ("temporalio", "pydantic", "httpx2", "rich", "ruamel", "asyncio")


# Typer itself takes pydantic to convert the arguments of a command that was named.
@pytest.mark.parametrize(
    ("arguments", "allowed"),
    [
        (["--help"], []),
        (["soul", "--help"], ["pydantic"]),
        (["run", "--help"], ["pydantic"]),
        (["session", "--help"], ["pydantic"]),
    ],
)
def test_help_imports_nothing_heavy(arguments: list[str], allowed: list[str]):
    program = (
        "import json, sys; sys.argv[1:] = json.loads(sys.argv[1])\n"
        "import anima.cli\n"
        "try: anima.cli.app()\n"
        "except SystemExit: pass\n"
        f"sys.stderr.write('LOADED ' + json.dumps([name for name in {HEAVY!r} if name in sys.modules]))"
    )
    command = [sys.executable, "-c", program, json.dumps(arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(done.stderr.rpartition("LOADED ")[2]) == allowed


def test_every_command_is_listed_with_a_line_of_help():
    output = CliRunner().invoke(app, ["--help"]).stdout
    commands = (
        "apply get describe delete run tasks status logs result suspend resume cancel wait rerun chat "
        "soul souls sessions session dev demo"
    )
    for name in commands.split():
        assert f"\n  {name} " in output


@pytest.mark.parametrize("arguments", [[], ["soul"], ["souls"], ["session"]])
def test_no_line_of_a_list_of_commands_is_cut_in_a_narrow_terminal(arguments: list[str]):
    output = CliRunner().invoke(app, [*arguments, "--help"], env={"COLUMNS": "80"}).stdout
    assert "..." not in output.partition("Commands:")[2]


def test_every_exit_code_is_in_the_help():
    for code in Exit:
        assert f"{code.value} " in EPILOG


def test_a_command_that_does_not_exist_is_wrong_usage():
    result = CliRunner().invoke(app, ["nonsense"])
    assert result.exit_code == Exit.INVALID
    assert "No such command" in result.stderr


@pytest.mark.parametrize("arguments", [["dev", "--help"], ["demo", "--help"]])
def test_forwarded_commands_show_their_own_help(arguments: list[str]):
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0
    assert "--gateway-port" in result.stdout
    assert f"Usage: anima {arguments[0]}" in result.stdout


def test_forwarded_commands_refuse_unknown_options():
    assert CliRunner().invoke(app, ["dev", "--nonsense"]).exit_code == Exit.INVALID
