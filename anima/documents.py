"""YAML 1.2 and JSON text as plain data, with the line of every field.

Values follow the core schema of YAML 1.2: `no` is text, `0755` is decimal, and
a timestamp is text.  YAML itself turns CRLF inside a block scalar into LF;
write `"\\r\\n"` in double quotes to keep it.  Only parser events are used, so no
tag can construct anything and an alias costs nothing before it was counted.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError
from ruamel.yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)
from ruamel.yaml.parser import Parser
from ruamel.yaml.reader import ReaderError
from ruamel.yaml.tag import Tag

from anima.core_schema import resolve
from anima.model.plain import MAX_DEPTH, parse_integer
from anima.model.problems import Problem, child_path

MAX_NODES = 100_000
"""Values in one document, each alias counted as often as it is used."""
MAX_CHARACTERS = 16 * 1024 * 1024
"""Characters in one document, each alias counted as often as it is used."""
MAX_TAG = 256
"""Characters of a tag, with what its handle stands for; those of the core schema have up to 23."""

_CORE = "tag:yaml.org,2002:"
_BREAKS = re.compile("[\x85\u2028\u2029]")


@dataclass
class Document:
    """One document of a file, as far as it could be read."""

    number: int
    data: Any = None
    lines: dict[str, int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def line(self, path: str) -> int | None:
        """Return the line of a field, or of the nearest one around it, from 1."""
        while path and path not in self.lines:
            path = path[: max(path.rfind("."), path.rfind("["), 0)]
        return self.lines.get(path)


class _Unreadable(Exception):
    """The rest of the file cannot be read."""

    def __init__(self, path: str, line: int | None, message: str, remedy: str) -> None:
        super().__init__(message)
        self.problem = Problem(path, message, remedy)
        self.line = line


def read_documents(text: str) -> list[Document]:
    """Read every document that is not empty; faults are listed in each.

    Args:
        text: the file's text; a byte order mark at its start is not part of it.
    """
    text = text.removeprefix("\ufeff")
    if text.lstrip()[:1] == "{":
        try:
            return [_read_json(text)]
        except json.JSONDecodeError:
            pass  # A flow mapping of YAML may begin like this, too.
    return _read_yaml(text)


def _read_json(text: str) -> Document:
    document = Document(1)
    try:
        pairs = json.loads(text, object_pairs_hook=_Pairs, parse_int=parse_integer)
        document.data = _from_json(pairs, "", document, 1)
    except RecursionError:
        document.problems.append(_too_deep(""))
    return document


class _Pairs(list[tuple[str, Any]]):
    """A JSON object before its keys were checked."""


def _from_json(value: Any, path: str, document: Document, depth: int) -> Any:
    if isinstance(value, list) and depth > MAX_DEPTH:
        document.problems.append(_too_deep(path))
        return None
    if isinstance(value, _Pairs):
        result: dict[str, Any] = {}
        for key, item in value:
            where = child_path(path, key)
            if key in result:
                document.problems.append(Problem(where, "is given twice", "keep one of them"))
            result[key] = _from_json(item, where, document, depth + 1)
        return result
    if isinstance(value, list):
        return [_from_json(item, child_path(path, i), document, depth + 1) for i, item in enumerate(value)]
    return value


def _too_deep(path: str) -> Problem:
    return Problem(path, f"is nested deeper than {MAX_DEPTH} levels", "flatten it")


def _read_yaml(text: str) -> list[Document]:
    documents: list[Document] = []
    try:
        _refuse_odd_breaks(text)
        yaml = YAML(typ="safe", pure=True)
        yaml.Parser = _Parser
        events = yaml.parse(text)
        for event in events:
            if isinstance(event, DocumentStartEvent):
                documents.append(Document(len(documents) + 1))
                _Builder(events, documents[-1]).build(event)
    except _Unreadable as error:
        _stop(documents, error)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else None
        # Only `problem` is used: the rest quotes the file, which may hold a soul.
        _stop(documents, _Unreadable("", line, f"is not YAML: {error.problem}", "correct it"))
    except ReaderError as error:
        message = f"has the character U+{error.character:04X}, which YAML does not allow as it is"
        remedy = "write it as an escape in double quotes"
        _stop(documents, _Unreadable("", text.count("\n", 0, error.position) + 1, message, remedy))
    return [document for document in documents if document.data is not None or document.problems]


def _stop(documents: list[Document], error: _Unreadable) -> None:
    if not documents:
        documents.append(Document(1))
    documents[-1].problems.append(error.problem)
    if error.line is not None:
        documents[-1].lines[error.problem.path] = error.line


def _refuse_odd_breaks(text: str) -> None:
    # The parser would turn these into plain line feeds, and so change a soul.
    if match := _BREAKS.search(text):
        line = text.count("\n", 0, match.start()) + 1
        message = f"has the line separator U+{ord(match[0]):04X}, which YAML does not keep"
        raise _Unreadable("", line, message, "write it as an escape in double quotes")


class _Parser(Parser):
    """Refuses a long tag unread: to decode one takes the square of its length."""

    def select_tag_transform(self, tag: Tag) -> None:
        """Settle how a tag is read, before anything reads it."""
        if len(tag.suffix) + len(tag.handles.get(tag.handle, "")) > MAX_TAG:
            line = self.scanner.reader.get_mark().line + 1
            raise _Unreadable("", line, f"has a tag of more than {MAX_TAG} characters", "remove the tag")
        super().select_tag_transform(tag)


@dataclass(frozen=True, slots=True)
class _Node:
    """A value with its cost: how many values, characters and levels it has."""

    value: Any
    count: int = 1
    characters: int = 0
    height: int = 0


class _Builder:
    """Builds one document from parser events."""

    def __init__(self, events: Iterator[Any], document: Document) -> None:
        self._events = events
        self._document = document
        self._anchors: dict[str, _Node | None] = {}
        self._count = 0
        self._characters = 0

    def build(self, start: Any) -> None:
        if start.version not in (None, (1, 2)):
            raise _Unreadable("", start.start_mark.line + 1, "is not YAML 1.2", "remove the %YAML directive")
        self._document.data = self._node(next(self._events), "", 1).value

    def _node(self, event: Any, path: str, depth: int) -> _Node:
        line = event.start_mark.line + 1
        self._document.lines.setdefault(path, line)
        if isinstance(event, AliasEvent):
            return self._alias(event.anchor, path, line, depth)
        if event.anchor is not None:
            self._anchors[event.anchor] = None
        node = self._content(event, path, line, depth)
        if event.anchor is not None:
            self._anchors[event.anchor] = node
        return node

    def _content(self, event: Any, path: str, line: int, depth: int) -> _Node:
        if isinstance(event, ScalarEvent):
            self._spend(1, len(event.value), path, line)
            return _Node(self._scalar(event, path), characters=len(event.value))
        self._check_tag(event, path, "map" if isinstance(event, MappingStartEvent) else "seq")
        self._check_depth(depth, path, line)
        self._spend(1, 0, path, line)
        if isinstance(event, MappingStartEvent):
            return self._mapping(path, depth)
        assert isinstance(event, SequenceStartEvent)
        return self._sequence(path, depth)

    def _alias(self, anchor: str, path: str, line: int, depth: int) -> _Node:
        if anchor not in self._anchors:
            raise _Unreadable(
                path, line, "refers to an anchor that is not defined before it", "define it, or repeat it"
            )
        node = self._anchors[anchor]
        if node is None:
            raise _Unreadable(path, line, "refers to itself", "write the value out")
        self._check_depth(depth + node.height - 1, path, line)
        self._spend(node.count, node.characters, path, line)
        return node

    def _mapping(self, path: str, depth: int) -> _Node:
        result: dict[str, Any] = {}
        children: list[_Node] = []
        while not isinstance(event := next(self._events), MappingEndEvent):
            line = event.start_mark.line + 1
            key = self._node(event, path, depth + 1)
            where = child_path(path, key.value if isinstance(key.value, str) else str(key.value)[:64])
            self._check_key(key.value, event, where, line, result)
            item = self._node(next(self._events), where, depth + 1)
            children += (key, item)
            if isinstance(key.value, str):
                result[key.value] = item.value
        return _sum(result, children)

    def _check_key(self, key: Any, event: Any, where: str, line: int, seen: dict[str, Any]) -> None:
        if not isinstance(key, str):
            self._report(where, "is a key that is not text", "put the key in quotes")
        elif key == "<<" and getattr(event, "style", None) is None:
            self._report(where, "is a merge key, which YAML 1.2 does not have", "write the fields out")
        elif key in seen:
            first = self._document.lines.get(where)
            self._report(where, f"is given twice, in lines {first} and {line}", "keep one of them")

    def _sequence(self, path: str, depth: int) -> _Node:
        children: list[_Node] = []
        while not isinstance(event := next(self._events), SequenceEndEvent):
            children.append(self._node(event, child_path(path, len(children)), depth + 1))
        return _sum([child.value for child in children], children)

    def _scalar(self, event: ScalarEvent, path: str) -> Any:
        text: str = event.value
        if event.tag is None:
            return resolve(text) if event.style is None else text
        value = resolve(text)
        if event.tag == f"{_CORE}float" and type(value) is int:
            value = float(value)
        if event.tag in ("!", f"{_CORE}str"):
            return text
        self._check_tag(event, path, _NAMES[type(value)])
        return value

    def _check_tag(self, event: Any, path: str, allowed: str) -> None:
        if event.tag not in (None, "!", _CORE + allowed):
            self._report(path, "has a tag that does not belong here", "remove the tag")

    def _check_depth(self, depth: int, path: str, line: int) -> None:
        if depth > MAX_DEPTH:
            problem = _too_deep(path)
            raise _Unreadable(path, line, problem.message, problem.remedy)

    def _spend(self, count: int, characters: int, path: str, line: int) -> None:
        self._count += count
        self._characters += characters
        if self._count > MAX_NODES or self._characters > MAX_CHARACTERS:
            message = f"makes the document larger than {MAX_NODES} values or {MAX_CHARACTERS} characters"
            raise _Unreadable(path, line, message, "use fewer aliases, or split the file")

    def _report(self, path: str, message: str, remedy: str) -> None:
        self._document.problems.append(Problem(path, message, remedy))


_NAMES: dict[type, str] = {type(None): "null", bool: "bool", int: "int", float: "float", str: "str"}


def _sum(value: Any, children: list[_Node]) -> _Node:
    return _Node(
        value,
        1 + sum(child.count for child in children),
        sum(child.characters for child in children),
        1 + max((child.height for child in children), default=0),
    )
