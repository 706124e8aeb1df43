"""Data on standard output: a table for people, JSON or YAML for programs."""

import io
import json
import sys
from collections.abc import Callable, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text
from ruamel.yaml import YAML
from ruamel.yaml.representer import SafeRepresenter

from anima.cli.options import Output

_NEVER_FOLD = 1_000_000


def printable(text: str) -> str:
    """Return text without characters that could steer a terminal."""
    return "".join(character if character.isprintable() or character in "\n\t" else "\ufffd" for character in text)


def printable_json(text: str) -> str:
    """Return the same JSON without characters that could steer a terminal: it has them in strings only."""
    return _escaped(text, lambda character: json.dumps(character)[1:-1])


def emit(data: Any, output: Output) -> None:
    """Print plain data as JSON, or as YAML with a document for each item of a list.

    It is read back as it was, and nothing in it steers a terminal.
    """
    if output is Output.JSON:
        body = {"items": data} if isinstance(data, list) else data
        sys.stdout.write(printable_json(json.dumps(body, indent=2, ensure_ascii=False)) + "\n")
        return
    yaml = YAML(typ="safe", pure=True)
    yaml.Representer = _Representer
    yaml.default_flow_style = False
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
    yaml.width = _NEVER_FOLD
    written = io.StringIO()
    yaml.dump_all(data if isinstance(data, list) else [data], written)
    # The representer puts what is not printable between double quotes.
    sys.stdout.write(_escaped(written.getvalue(), lambda character: f"\\U{ord(character):08x}"))


def _escaped(text: str, escape: Callable[[str], str]) -> str:
    return "".join(
        character if character.isprintable() or character == "\n" else escape(character) for character in text
    )


class _Representer(SafeRepresenter):
    """Writes text so that it is read back as it was."""

    def represent_str(self, text: str) -> Any:
        # Left to itself, the dumper writes some characters so that no reader gets them back.
        odd = text == "<<" or not text.replace("\n", "").isprintable()
        style = '"' if odd else "|" if "\n" in text else None
        return self.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Representer.add_representer(str, _Representer.represent_str)


def emit_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print aligned columns, whole: a narrow terminal folds a line, and nothing is cut."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, no_wrap=True)
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    Console(highlight=False, width=_NEVER_FOLD).print(table)


def emit_fields(fields: Sequence[tuple[str, str]]) -> None:
    """Print names and values, one a line; those without a value are left out."""
    width = max(len(name) for name, _ in fields) + 2
    for name, value in fields:
        if value:
            sys.stdout.write(f"{name:<{width}}{printable(value)}\n")


def emit_bytes(data: bytes) -> None:
    """Print exact bytes; a terminal gets a last line feed if there is none."""
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    if sys.stdout.isatty() and not data.endswith(b"\n"):
        sys.stdout.buffer.write(b"\n")
    sys.stdout.buffer.flush()
