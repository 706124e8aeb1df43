"""The `Jobs` port with child processes."""

import asyncio
import contextlib
import sys
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Self
from weakref import WeakValueDictionary

from anima.home import Home
from anima.model.attempts import AttemptKey
from anima.model.errors import Refusal, Unavailable
from anima.model.jobs import JobObservation, JobSpec
from anima.model.persona import SensitiveText
from anima.model.reasons import Reason
from anima.stores.ports import JobRecord
from anima.stores.processes import supervisor
from anima.stores.processes.directory import JobDirectory
from anima.stores.processes.events import Announcements
from anima.stores.processes.launch import Launch
from anima.stores.processes.nursery import Nursery, NurseryGoneError
from anima.stores.processes.observation import observe
from anima.stores.processes.registry import Registry, fenced
from anima.stores.processes.stopping import stop, tell

_LINGER = timedelta(seconds=10)
_STARTS = 3
_DELETE_MARGIN = timedelta(seconds=30)


def _random_uid() -> str:
    return str(uuid.uuid4())


class LocalJobs:
    """Runs each Job under a supervisor of its own; enter it with `async with`.

    Args:
        home: where the Jobs' directories and the socket are.
        clock: the time that is noted for lost Jobs.
        entrypoint: the module of the built-in worker: ``main()`` returns its exit
            code; ``preload()``, if there is one, imports ahead what it needs.
        fork: fork the built-in worker from a preloaded process, instead of
            starting an interpreter for each; by default where that is safe.
        linger: how long a Job may run on after it was retired.
        new_uid: makes the identity of a new Job.
    """

    def __init__(
        self,
        home: Home,
        clock: Callable[[], datetime],
        entrypoint: str = "workers.ai",
        fork: bool | None = None,
        linger: timedelta = _LINGER,
        new_uid: Callable[[], str] = _random_uid,
    ) -> None:
        self._home = home
        self._clock = clock
        self._entrypoint = entrypoint
        self._linger = linger
        self._registry = Registry(home.jobs, clock, new_uid)
        self._announcements = Announcements(home.run)
        self._executing = Nursery()
        # The system libraries of macOS do not survive a fork.
        self._forking = Nursery(entrypoint) if (sys.platform != "darwin" if fork is None else fork) else None
        self._creating: WeakValueDictionary[Path, asyncio.Lock] = WeakValueDictionary()

    async def __aenter__(self) -> Self:
        with _operational(self._home.root):
            await asyncio.to_thread(self._registry.open)
            self._announcements.open()
            await self._open_nurseries()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._announcements.close()
        await self._executing.close()
        if self._forking:
            await self._forking.close()

    async def _open_nurseries(self) -> None:
        await self._executing.open()
        if self._forking:
            await self._forking.open()

    async def preloaded(self) -> bool:
        """Wait until Jobs can be forked; return False if they cannot."""
        return self._forking is not None and await self._forking.preloaded()

    async def create(self, spec: JobSpec, environment: Mapping[str, SensitiveText]) -> str:
        """Start the Job, or adopt the one of that name with the same digest.

        A command that cannot be started makes a Job that ends with exit code 127
        or 126 and a message, so that a repeated call has the same effect.

        Raises:
            Refusal: `JobIdentityConflict` if the name is another's or fenced,
                `JobFailed` if the system cannot carry the environment.
            Unavailable: it could not be started now.
        """
        variables = _variables(spec, environment)
        directory = self._registry.directory(spec.namespace, spec.name)
        lock = self._creating.setdefault(directory.path, asyncio.Lock())
        async with lock:
            with _operational(directory.path):
                uid = await asyncio.to_thread(self._registry.admit, spec)
                await self._start(directory, spec, variables)
        return uid

    async def _start(self, directory: JobDirectory, spec: JobSpec, variables: Mapping[str, str]) -> None:
        for _ in range(_STARTS):
            if await _is_claimed(directory, spec):
                return
            await self._open_nurseries()
            forking = self._forking if self._forking and self._forking.ready and not spec.command else None
            launch = self._launch(directory, spec, fresh=forking is None)
            with contextlib.suppress(NurseryGoneError):
                await (forking or self._executing).launch(launch, variables)
        if not await _is_claimed(directory, spec):
            raise Unavailable(
                f"cannot start Job {spec.namespace}/{spec.name}: the process that starts Jobs keeps dying"
            )

    def _launch(self, directory: JobDirectory, spec: JobSpec, *, fresh: bool) -> Launch:
        return Launch(
            number=0,
            directory=str(directory.path),
            announce=str(self._home.run),
            entrypoint=self._entrypoint,
            command=spec.command,
            fresh=fresh,
            timeout=spec.timeout.total_seconds() if spec.timeout is not None else None,
            grace=spec.grace.total_seconds(),
            linger=self._linger.total_seconds(),
            memory_limit=int(spec.memory_limit) if spec.memory_limit is not None else None,
        )

    async def observe(self, namespace: str, name: str) -> JobObservation:
        """Say how the Job is now.

        A deleted Job stays observable as `Ended` or `Lost`, and as `Absent` if it
        was deleted before it started.
        """
        directory = self._registry.directory(namespace, name)
        with _operational(directory.path):
            return await asyncio.to_thread(observe, directory, self._clock())

    async def delete(self, spec_key: AttemptKey, namespace: str, name: str) -> None:
        """Fence the name, end the Job with grace, and return when it is proven gone.

        Raises:
            Refusal: `JobIdentityConflict` if the Job is not that attempt's.
            Unavailable: its supervisor does not end.
        """
        directory = self._registry.directory(namespace, name)
        with _operational(directory.path):
            grace = await asyncio.to_thread(self._registry.fence, spec_key, namespace, name)
            try:
                async with asyncio.timeout((grace + _DELETE_MARGIN).total_seconds()):
                    await stop(directory, supervisor.DELETE)
            except TimeoutError:
                raise Unavailable(f"the supervisor of Job {namespace}/{name} was told to end and does not") from None
            # If the supervisor was killed, this ends what is left of the Job.
            await asyncio.to_thread(observe, directory, self._clock())

    async def retire(self, namespace: str, name: str) -> None:
        """The attempt is decided: let the Job end by itself, then stop it; do not wait."""
        directory = self._registry.directory(namespace, name)
        with _operational(directory.path):
            await asyncio.to_thread(tell, directory, supervisor.RETIRE)

    async def log(self, namespace: str, name: str, limit: int = 65536) -> bytes:
        """Return the last `limit` bytes of the Job's output, whatever bytes they are."""
        with _operational(self._home.jobs):
            return await asyncio.to_thread(self._registry.log, namespace, name, limit)

    async def records(self) -> Sequence[JobRecord]:
        """Return every Job that was created and not deleted."""
        with _operational(self._home.jobs):
            return await asyncio.to_thread(self._registry.records)

    async def ended(self) -> AsyncIterator[JobSpec]:
        """Yield each Job that has ended or was lost, then each one that ends."""
        with self._announcements.subscription() as queue, _operational(self._home.jobs):
            before = {(job.namespace, job.name): job for job in await asyncio.to_thread(self._registry.ended)}
            for job in before.values():
                yield job
            while True:
                announced = await queue.get()
                if announced not in before:
                    confirmed = await asyncio.to_thread(self._registry.confirm_ended, *announced)
                    if confirmed is not None:
                        yield confirmed

    async def prune(self, namespace: str, name: str) -> None:
        """Remove all that is known of a Job, as of a Task that is closed; its name is free again.

        Raises:
            Conflict: it still runs.
        """
        with _operational(self._home.jobs):
            await asyncio.to_thread(self._registry.remove, namespace, name)


async def _is_claimed(directory: JobDirectory, spec: JobSpec) -> bool:
    claim = await asyncio.to_thread(directory.claim)
    if claim is not None and claim.started_at is None:
        raise fenced(spec.namespace, spec.name)
    return claim is not None


def _variables(spec: JobSpec, environment: Mapping[str, SensitiveText]) -> dict[str, str]:
    """Reveal the environment after a check of what the system can carry."""
    for name, value in environment.items():
        try:
            faulty = not name or "=" in name or b"\0" in name.encode() + value.encode()
        except UnicodeEncodeError:
            faulty = True
        if faulty:
            raise Refusal(
                Reason.JOB_FAILED,
                f"variable {name!r} of Job {spec.namespace}/{spec.name} cannot be set: a name is not empty "
                "and has no '=', and neither name nor value has a NUL or a lone surrogate",
            )
    return {name: value.reveal() for name, value in environment.items()}


@contextlib.contextmanager
def _operational(path: Path) -> Iterator[None]:
    """Turn what the system refuses into `Unavailable`, with the path and the cause."""
    try:
        yield
    except OSError as error:
        raise Unavailable(
            f"cannot use {error.filename or path}: {error.strerror or error}; check its permissions and free space"
        ) from error
