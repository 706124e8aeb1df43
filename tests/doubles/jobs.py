"""Jobs that do what a test tells them, so that a workflow's time can be skipped."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from anima.model.attempts import AttemptKey, Report
from anima.model.errors import Refusal, Unavailable
from anima.model.jobs import JobObservation, JobPhase, JobSpec
from anima.model.persona import SensitiveText
from anima.model.reasons import Reason
from anima.stores.ports import JobRecord, Ledger

Behaviour = Callable[["ScriptedJob"], Awaitable[None]]


@dataclass
class ScriptedJob:
    """One Job: what it is, what it was given, how it is now."""

    spec: JobSpec
    environment: Mapping[str, SensitiveText]
    ledger: Ledger
    observation: JobObservation = field(default_factory=lambda: JobObservation(phase=JobPhase.RUNNING))
    deleted: bool = False

    async def answer(self, text: str) -> None:
        """Report an answer and end."""
        await self.ledger.report(self.spec.key, Report(answer=text))
        self.exit(0)

    async def fail(self, reason: Reason) -> None:
        """Report a failure and end."""
        await self.ledger.report(self.spec.key, Report(reason=reason, message=f"scripted {reason}"))
        self.exit(1)

    def exit(self, code: int) -> None:
        """End without a word."""
        self.observation = JobObservation(phase=JobPhase.ENDED, exit_code=code)


class ScriptedJobs:
    """The Jobs port in memory.  `behave` runs when a Job is created."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.jobs: dict[str, ScriptedJob] = {}
        self.fenced: set[str] = set()
        self.behave: Behaviour | None = None
        self.out_of_reach = False

    @property
    def names(self) -> list[str]:
        return list(self.jobs)

    async def create(self, spec: JobSpec, environment: Mapping[str, SensitiveText]) -> str:
        self._answer_or_fail()
        if spec.name in self.fenced:
            raise Refusal(Reason.JOB_IDENTITY_CONFLICT, f"Job {spec.name} is fenced")
        if spec.name not in self.jobs:
            job = self.jobs[spec.name] = ScriptedJob(spec, environment, self._ledger)
            if self.behave:
                await self._ledger.started(spec.key)
                await self.behave(job)
        return f"uid-of-{spec.name}"

    async def observe(self, namespace: str, name: str) -> JobObservation:
        self._answer_or_fail()
        job = self.jobs.get(name)
        return job.observation if job else JobObservation(phase=JobPhase.ABSENT)

    async def delete(self, spec_key: AttemptKey, namespace: str, name: str) -> None:
        self._answer_or_fail()
        self.fenced.add(name)
        if name in self.jobs:
            self.jobs[name].deleted = True
            self.jobs[name].exit(137)

    async def retire(self, namespace: str, name: str) -> None:
        pass

    async def log(self, namespace: str, name: str, limit: int = 65536) -> bytes:
        return b""

    async def records(self) -> Sequence[JobRecord]:
        self._answer_or_fail()
        return [JobRecord(job.spec, f"uid-of-{name}") for name, job in self.jobs.items()]

    async def ended(self) -> AsyncIterator[JobSpec]:
        for job in list(self.jobs.values()):
            yield job.spec

    def _answer_or_fail(self) -> None:
        if self.out_of_reach:
            raise Unavailable("the Jobs of this test are out of reach")
