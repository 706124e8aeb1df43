"""What is printed for programs is what was there."""

import io
import json
from contextlib import redirect_stdout
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anima.cli.options import Output
from anima.cli.output import emit, emit_table, printable
from anima.cli.progress import Progress
from anima.documents import read_documents
from anima.model.attempts import ProgressEvent

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
SCALARS = (
    TEXT
    | st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
)


def printed(data: Any, output: Output) -> str:
    with redirect_stdout(io.StringIO()) as stdout:
        emit(data, output)
    return stdout.getvalue()


@given(st.dictionaries(TEXT, SCALARS | st.lists(SCALARS), min_size=1))
def test_yaml_is_read_back_as_it_was(data: dict[str, Any]):
    (document,) = read_documents(printed(data, Output.YAML))
    assert document.problems == []
    assert document.data == data


@pytest.mark.parametrize(
    "text", ["no", "0755", "1e3", "~", "2026-12-01", "a\r\nb", "\ufeffa", "<<", "=", "0o7", "\x85", ""]
)
def test_yaml_keeps_text_that_looks_like_something_else(text: str):
    (document,) = read_documents(printed({"a": text}, Output.YAML))
    assert document.data == {"a": text}


def test_a_list_is_one_object_in_json_and_many_documents_in_yaml():
    assert json.loads(printed([{"a": 1}], Output.JSON)) == {"items": [{"a": 1}]}
    assert [document.data for document in read_documents(printed([{"a": 1}, {"b": 2}], Output.YAML))] == [
        {"a": 1},
        {"b": 2},
    ]


@given(TEXT)
def test_nothing_printed_for_programs_can_steer_a_terminal(text: str):
    for output in (Output.JSON, Output.YAML):
        assert all(character.isprintable() or character == "\n" for character in printed({"a": text}, output))
    assert json.loads(printed({"a": text}, Output.JSON)) == {"a": text}


def test_nothing_printed_for_people_can_steer_a_terminal():
    assert printable("a\x1b[2Jb\n") == "a\ufffd[2Jb\n"
    with redirect_stdout(io.StringIO()) as stdout:
        emit_table(["A"], [["\x1b]0;x\x07[bold]"]])
    assert "\x1b" not in stdout.getvalue()
    assert "[bold]" in stdout.getvalue()


@pytest.mark.parametrize(
    ("data", "line"),
    [
        ({"messages": 0, "leftOut": 0}, ""),
        ({"messages": 4, "leftOut": 0}, "with 4 earlier messages of its Session"),
        ({"messages": 4, "leftOut": 9}, "with 4 earlier messages of its Session, without 9 older ones"),
        ({"messages": 0, "leftOut": 9}, "with 0 earlier messages of its Session, without 9 older ones"),
    ],
)
def test_what_a_model_is_given_of_its_session_is_told(
    data: dict[str, Any], line: str, capsys: pytest.CaptureFixture[str]
):
    progress = Progress(None, None)  # type: ignore[arg-type]
    progress.show(ProgressEvent(sequence=0, kind="transcript", data=data))
    assert capsys.readouterr().err.strip() == line
