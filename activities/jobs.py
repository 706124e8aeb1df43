"""Creating and deleting the Job of an attempt."""

from collections.abc import Callable, Mapping
from decimal import Decimal

from temporalio import activity

from activities.heartbeat import heartbeats
from activities.providers import ProviderResolver
from activities.souls import Resolved, SoulResolver
from activities.transcripts import TranscriptReader
from anima.model.attempts import AttemptInput, AttemptKey, ProviderSettings, TranscriptReference
from anima.model.binding import check_binding
from anima.model.composition import ENVELOPE_VERSION
from anima.model.digests import digest_bytes
from anima.model.inputs import check_inputs
from anima.model.jobs import JobPhase, JobSpec
from anima.model.persona import SensitiveText
from anima.model.resources import ResourceRequirements
from anima.model.steps import CreateJob, DeleteJob, JobCreated
from anima.model.transcript import budget_of
from anima.model.wire import BINDING_SCHEMA, JobVariable, Step
from anima.stores.ports import Jobs, Ledger, TaskRecord


class JobActivities:
    """`job.create` and `job.delete`.

    Args:
        souls: composes the prompt again, in this process, to hand it over.
        providers: finds the model and its key.
        ledger: knows what was planned and decided.
        jobs: starts and ends Jobs.
        transcripts: tells what an attempt is given of its Session.
        token: derives the attempt's credential.
        gateway: the address at which a Job reaches the gateway.
        trace: the environment that carries the current trace into the Job.
    """

    def __init__(
        self,
        souls: SoulResolver,
        providers: ProviderResolver,
        ledger: Ledger,
        jobs: Jobs,
        transcripts: TranscriptReader,
        *,
        token: Callable[[AttemptKey], str],
        gateway: str,
        trace: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        self._souls = souls
        self._providers = providers
        self._ledger = ledger
        self._jobs = jobs
        self._transcripts = transcripts
        self._token = token
        self._gateway = gateway
        self._trace = trace

    @activity.defn(name=Step.CREATE)
    async def create(self, request: CreateJob) -> JobCreated:
        """Create the attempt's Job under exactly the planned prompt.

        Raises:
            Refusal: by reason, if the Agent or the inputs have drifted since the plan.
        """
        record = await self._ledger.task(request.key.task_uid)
        bound = record.binding
        if bound is not None:
            check_inputs(bound, record.spec)
        version = bound.envelope_version if bound else ENVELOPE_VERSION
        resolved = await self._souls.resolve(record.namespace, record.spec, version)
        if bound is not None:
            check_binding(bound, resolved.revision)
        elif resolved.prompt.digest != request.prompt_digest:
            return await self._changed(record, request)
        await self._start(record, resolved, request)
        return JobCreated()

    async def _changed(self, record: TaskRecord, request: CreateJob) -> JobCreated:
        # Without a soul an edit of the Agent counts from the next Job on; a Job
        # that an earlier, unanswered try has created is this attempt's all the same.
        observed = await self._jobs.observe(record.namespace, request.job_name)
        if observed.phase is JobPhase.ABSENT:
            return JobCreated(stale=True)
        await self._ledger.started(request.key)
        return JobCreated()

    async def _start(self, record: TaskRecord, resolved: Resolved, request: CreateJob) -> None:
        provider = await self._providers.provider(resolved.agent, record.spec)
        settings = self._providers.settings(provider, resolved.agent, record.spec)
        secrets = await self._providers.environment(provider, record.spec)
        transcript = await self._transcript(request, resolved, settings)
        await self._ledger.intend(
            request.key, request.job_name, _attempt_input(record, resolved, request.key, settings, transcript)
        )
        environment = secrets | self._job_environment(resolved, request.key)
        async with heartbeats():
            await self._jobs.create(_job_spec(record, resolved, request), environment)
        await self._ledger.started(request.key)

    async def _transcript(
        self, request: CreateJob, resolved: Resolved, settings: ProviderSettings
    ) -> TranscriptReference | None:
        if request.lock is None:
            return None
        budget = budget_of(resolved.agent.spec.model.transcript_bytes, settings.type)
        return await self._transcripts.reference(request.lock, budget)

    def _job_environment(self, resolved: Resolved, key: AttemptKey) -> dict[str, SensitiveText]:
        plain = {
            JobVariable.GATEWAY: self._gateway,
            JobVariable.ATTEMPT: key.path,
            JobVariable.TOKEN: self._token(key),
            JobVariable.PROMPT_DIGEST: resolved.prompt.digest,
            JobVariable.ENVELOPE_VERSION: str(resolved.prompt.envelope_version),
            JobVariable.BINDING_SCHEMA: BINDING_SCHEMA,
            **self._trace(),
        }
        environment = {str(name): SensitiveText(value) for name, value in plain.items()}
        return environment | {str(JobVariable.SYSTEM_PROMPT): resolved.prompt.text}

    @activity.defn(name=Step.DELETE)
    async def delete(self, request: DeleteJob) -> None:
        """Fence and end a Job; return when it is proven gone."""
        record = await self._ledger.task(request.key.task_uid)
        async with heartbeats():
            await self._jobs.delete(request.key, record.namespace, request.job_name)


def _attempt_input(
    record: TaskRecord,
    resolved: Resolved,
    key: AttemptKey,
    settings: ProviderSettings,
    transcript: TranscriptReference | None,
) -> AttemptInput:
    prompt = record.spec.user_prompt
    return AttemptInput(
        namespace=record.namespace,
        task=record.name,
        key=key,
        user_prompt=prompt,
        user_prompt_digest=digest_bytes(prompt.encode()),
        system_prompt_digest=resolved.prompt.digest,
        envelope_version=resolved.prompt.envelope_version,
        provider=settings,
        transcript_ref=transcript,
    )


def _job_spec(record: TaskRecord, resolved: Resolved, request: CreateJob) -> JobSpec:
    return JobSpec(
        name=request.job_name,
        namespace=record.namespace,
        task=record.name,
        key=request.key,
        prompt_digest=resolved.prompt.digest,
        command=resolved.agent.spec.execution.command,
        timeout=record.spec.timeout,
        memory_limit=_memory_limit(record.spec.resources) or _memory_limit(resolved.agent.spec.resources),
    )


def _memory_limit(resources: ResourceRequirements | None) -> Decimal | None:
    return resources.limits.memory if resources and resources.limits else None
