"""All Jobs of one home, as their directories tell; every call may block on the disk."""

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from anima.model.attempts import AttemptKey
from anima.model.errors import Conflict, Refusal
from anima.model.jobs import JobPhase, JobSpec
from anima.model.names import check_label
from anima.model.reasons import Reason
from anima.stores.ports import JobRecord
from anima.stores.processes.directory import SPEC, JobDirectory
from anima.stores.processes.observation import observe, record

_REMOVED = ".removed"


@dataclass(frozen=True, slots=True)
class Registry:
    """Admits, fences, lists and removes Jobs; starts and stops none.

    Args:
        root: holds ``<namespace>/<name>``.
        clock: the time that is noted for lost Jobs.
        new_uid: makes the identity of a new Job.
    """

    root: Path
    clock: Callable[[], datetime]
    new_uid: Callable[[], str]

    def open(self) -> None:
        """Create the root, and remove what an interrupted removal has left."""
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        shutil.rmtree(self.root / _REMOVED, ignore_errors=True)

    def directory(self, namespace: str, name: str) -> JobDirectory:
        """Return the directory of a Job, whether it exists or not."""
        return JobDirectory(self.root / check_label(namespace) / check_label(name))

    def admit(self, spec: JobSpec) -> str:
        """Write down what the Job is, or compare with what was written; return its uid.

        Raises:
            Refusal: `JobIdentityConflict` if it was deleted or has another digest.
        """
        directory = self._made(spec.namespace, spec.name)
        if directory.deleted() is not None:
            raise fenced(spec.namespace, spec.name)
        stored = directory.read(SPEC)
        if stored is None:
            directory.publish(SPEC, {"uid": self.new_uid(), "digest": spec.digest, "spec": spec.to_json()})
            stored = directory.read(SPEC)
        if stored is None or stored["digest"] != spec.digest:
            raise _conflict(spec.namespace, spec.name, "exists with another spec")
        return str(stored["uid"])

    def fence(self, key: AttemptKey, namespace: str, name: str) -> timedelta:
        """Make sure that the Job never starts from now on; return its grace.

        Raises:
            Refusal: `JobIdentityConflict` if it is another attempt's.
        """
        directory = self._made(namespace, name)
        known = record(directory)
        owner = known.spec.key.path if known else directory.deleted()
        if owner is not None and owner != key.path:
            raise _conflict(namespace, name, f"is of attempt {owner}, not {key.path}")
        directory.bury(key.path)
        return known.spec.grace if known else timedelta(0)

    def records(self) -> list[JobRecord]:
        """Return every Job that was created and not deleted."""
        found = [record(directory) for directory in self._all() if directory.deleted() is None]
        return [job for job in found if job is not None]

    def ended(self) -> list[JobSpec]:
        """Return every Job that has ended or was lost."""
        found = [self.confirm_ended(directory.namespace, directory.name) for directory in self._all()]
        return [job for job in found if job is not None]

    def confirm_ended(self, namespace: str, name: str) -> JobSpec | None:
        """Return the Job if there is such a one and it has ended or was lost."""
        directory = self.directory(namespace, name)
        known = record(directory)
        over = observe(directory, self.clock()).phase in (JobPhase.ENDED, JobPhase.LOST)
        return known.spec if known and over else None

    def log(self, namespace: str, name: str, limit: int) -> bytes:
        """Return the last `limit` bytes of the Job's output; none of a Job that has none."""
        try:
            with self.directory(namespace, name).log.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(size - limit, 0))
                return file.read(limit)
        except FileNotFoundError:
            return b""

    def remove(self, namespace: str, name: str) -> None:
        """Remove all that is known of a Job; its name is free again.

        Raises:
            Conflict: it still runs.
        """
        directory = self.directory(namespace, name)
        if directory.holder() is not None:
            raise Conflict(f"Job {namespace}/{name} still runs; delete it first")
        if directory.path.exists():
            # Moved first, so that no half of it is ever taken for a Job.
            removed = self.root / _REMOVED / self.new_uid()
            removed.parent.mkdir(mode=0o700, exist_ok=True)
            directory.path.rename(removed)
            shutil.rmtree(removed)

    def _made(self, namespace: str, name: str) -> JobDirectory:
        directory = self.directory(namespace, name)
        for path in (directory.path.parent, directory.path):
            path.mkdir(mode=0o700, exist_ok=True)
        return directory

    def _all(self) -> Iterator[JobDirectory]:
        for spec in sorted(self.root.glob(f"[!.]*/*/{SPEC}")):
            yield JobDirectory(spec.parent)


def fenced(namespace: str, name: str) -> Refusal:
    """Say that a deleted Job is not created again."""
    return _conflict(namespace, name, "was deleted, and its name is not used again")


def _conflict(namespace: str, name: str, why: str) -> Refusal:
    return Refusal(Reason.JOB_IDENTITY_CONFLICT, f"Job {namespace}/{name} {why}")
