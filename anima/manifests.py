"""Manifest files: YAML or JSON text to resources, with all faults at once."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from anima.documents import Document, read_documents
from anima.model.errors import NotFound, Refusal
from anima.model.manifest import parse_resource
from anima.model.problems import Problem, summary
from anima.model.reasons import Reason
from anima.model.resources import DEFAULT_NAMESPACE, Resource

MAX_FILE_BYTES = 4 * 1024 * 1024
SUFFIXES = frozenset({".yaml", ".yml", ".json"})
STDIN = "-"


@dataclass(frozen=True, slots=True)
class LocatedProblem(Problem):
    """A problem with the file, the document (from 1) and the line it is in."""

    source: str = ""
    document: int = 0
    line: int | None = None

    def __str__(self) -> str:
        line = f":{self.line}" if self.line else ""
        document = f" (document {self.document})" if self.document else ""
        return f"{self.source}{line}{document}: {Problem.__str__(self)}"


@dataclass(frozen=True, slots=True)
class _Fault:
    reason: Reason
    problem: LocatedProblem


@dataclass(frozen=True, slots=True)
class _Found:
    """A valid resource and where it was given."""

    resource: Resource
    source: str
    document: Document

    @property
    def identity(self) -> tuple[str, str, str]:
        return self.resource.kind, self.resource.namespace, self.resource.name


def load_manifests(places: Iterable[str], stdin: BinaryIO, namespace: str | None = None) -> list[Resource]:
    """Read and validate every manifest in files, directories or standard input.

    A directory gives its ``*.yaml``, ``*.yml`` and ``*.json`` files, not those in
    directories below it.

    Args:
        places: paths; ``-`` is standard input.
        stdin: read for ``-`` only.
        namespace: for manifests that name none; one that names another is refused.

    Raises:
        NotFound: there is no such file.
        Refusal: one for all faults of all documents, each a `LocatedProblem`.
    """
    found: list[_Found] = []
    faults: list[_Fault] = []
    for source, data in _contents(places, stdin):
        if isinstance(data, LocatedProblem):
            faults.append(_Fault(Reason.RESOURCE_INVALID, data))
        else:
            _load(source, data, namespace, found, faults)
    faults += _repeated(found)
    if faults:
        raise _refusal(faults)
    return [item.resource for item in found]


def load_text(data: bytes, source: str, namespace: str | None = None) -> list[Resource]:
    """Read and validate every manifest in one text; see `load_manifests`."""
    found: list[_Found] = []
    faults: list[_Fault] = []
    _load(source, data, namespace, found, faults)
    faults += _repeated(found)
    if faults:
        raise _refusal(faults)
    return [item.resource for item in found]


def _contents(places: Iterable[str], stdin: BinaryIO) -> Iterator[tuple[str, bytes | LocatedProblem]]:
    for place in places:
        if place == STDIN:
            yield "standard input", stdin.read(MAX_FILE_BYTES + 1)
            continue
        for path in _files(Path(place)):
            try:
                with path.open("rb") as file:
                    yield str(path), file.read(MAX_FILE_BYTES + 1)
            except OSError as error:
                yield str(path), LocatedProblem("", f"cannot be read: {error.strerror}", source=str(path))


def _files(place: Path) -> list[Path]:
    if not place.is_dir():
        if not place.exists():
            raise NotFound(f"there is no file or directory {place}; check the path given to -f")
        return [place]
    files = sorted(path for path in place.iterdir() if path.suffix in SUFFIXES and path.is_file())
    if not files:
        raise NotFound(f"the directory {place} has no {', '.join(sorted(SUFFIXES))} file")
    return files


def _load(source: str, data: bytes, namespace: str | None, found: list[_Found], faults: list[_Fault]) -> None:
    for document in _documents(source, data, faults):
        located = [_located(source, document, problem) for problem in document.problems]
        faults += [_Fault(Reason.RESOURCE_INVALID, problem) for problem in located]
        if document.data is None:
            continue
        try:
            resource = parse_resource(document.data, namespace or DEFAULT_NAMESPACE)
        except Refusal as refusal:
            known = {problem.path for problem in located}
            problems = [problem for problem in refusal.problems if problem.path not in known]
            faults += [_Fault(refusal.reason, _located(source, document, problem)) for problem in problems]
            continue
        found.append(_Found(resource, source, document))
        if namespace and resource.namespace != namespace:
            problem = Problem("metadata.namespace", f"is not {namespace}, as -n says", "remove one of them")
            faults.append(_Fault(Reason.RESOURCE_INVALID, _located(source, document, problem)))


def _documents(source: str, data: bytes, faults: list[_Fault]) -> list[Document]:
    if len(data) > MAX_FILE_BYTES:
        problem = LocatedProblem("", f"is larger than {MAX_FILE_BYTES} bytes", "split it", source)
        faults.append(_Fault(Reason.RESOURCE_INVALID, problem))
        return []
    try:
        return read_documents(data.decode())
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        problem = LocatedProblem("", f"is not UTF-8 at byte {error.start}", "save it as UTF-8", source, 0, line)
        faults.append(_Fault(Reason.RESOURCE_INVALID, problem))
        return []


def _located(source: str, document: Document, problem: Problem) -> LocatedProblem:
    line = document.line(problem.path)
    return LocatedProblem(problem.path, problem.message, problem.remedy, source, document.number, line)


def _repeated(found: list[_Found]) -> Iterator[_Fault]:
    first: dict[tuple[str, str, str], _Found] = {}
    for item in found:
        other = first.setdefault(item.identity, item)
        if other is not item:
            kind, namespace, name = item.identity
            where = f"{other.source} (document {other.document.number})"
            problem = Problem("metadata.name", f"{kind} {namespace}/{name} is given in {where} already", "keep one")
            yield _Fault(Reason.RESOURCE_INVALID, _located(item.source, item.document, problem))


def _refusal(faults: list[_Fault]) -> Refusal:
    reasons = {fault.reason for fault in faults}
    reason = reasons.pop() if len(reasons) == 1 else Reason.RESOURCE_INVALID
    problems = [fault.problem for fault in faults]
    return Refusal(reason, summary(problems), problems)
