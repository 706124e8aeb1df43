"""Resolving an Agent's soul, freezing it for a Task, and checking it again.

Source of the rules: agent-soul, "Revisions, retries, and Sessions".
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from temporalio import activity

from activities.keys import read_key
from activities.providers import ProviderResolver
from anima.model.agent import Agent, SoulSource, TextSource
from anima.model.attempts import AttemptKey, AttemptRecord
from anima.model.binding import Revision, SoulBinding, check_binding
from anima.model.composition import ENVELOPE_VERSION, ComposedPrompt, DeliveryPath, check_delivery, compose
from anima.model.errors import NotFound, Refusal
from anima.model.inputs import INPUTS_VERSION, check_inputs, inputs_digest
from anima.model.jobs import JobPhase
from anima.model.names import job_name
from anima.model.persona import PersonaText, check_expected, persona_from_text
from anima.model.reasons import Reason
from anima.model.resources import ConfigMap, KeyReference
from anima.model.steps import AttemptPlan, Bind
from anima.model.task import TaskSpec
from anima.model.wire import Step
from anima.stores.ports import Catalog, Jobs, Ledger, TaskRecord


@dataclass(frozen=True, slots=True)
class Resolved:
    """An Agent with its composed prompt.  Stays in the process that resolved it."""

    agent: Agent
    prompt: ComposedPrompt
    revision: Revision


class SoulResolver:
    """Reads an Agent's sources, uncached, and composes its prompt.

    Execution, readiness and previews share it, so they cannot disagree.
    """

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    async def resolve(self, namespace: str, spec: TaskSpec, envelope_version: int = ENVELOPE_VERSION) -> Resolved:
        """Resolve what a Task would be given now.

        Args:
            namespace: the Task's.
            spec: the Task's spec; its role prompt wins over the Agent's.
            envelope_version: of the binding, for a Task that has one.

        Raises:
            Refusal: by the reason of whatever is missing, invalid or too large.
        """
        try:
            agent = await self._catalog.get(Agent, namespace, spec.agent_ref.name)
        except NotFound:
            raise Refusal(
                Reason.AGENT_MISSING, f"Agent {namespace}/{spec.agent_ref.name} (spec.agentRef) does not exist"
            ) from None
        _check_runtime(agent, spec.type)
        return await self.resolve_agent(agent, spec.ai.system_prompt, envelope_version)

    async def resolve_agent(
        self, agent: Agent, role: str | None = None, envelope_version: int = ENVELOPE_VERSION
    ) -> Resolved:
        """Compose an Agent's prompt, with another role if one is given."""
        if role is None:
            role = await self._role(agent)
        persona = await self._persona(agent)
        prompt = compose(role, persona, envelope_version)
        check_delivery(prompt, delivery_path(agent))
        revision = Revision(
            agent_uid=agent.uid,
            agent_generation=agent.generation,
            soul_digest=persona.digest if persona else None,
            prompt_digest=prompt.digest,
            envelope_version=envelope_version,
        )
        return Resolved(agent, prompt, revision)

    async def _role(self, agent: Agent) -> str:
        source = agent.spec.system_prompt
        if source is None:
            return ""
        if source.inline is not None:
            return source.inline.reveal()
        text = await read_key(
            self._catalog,
            ConfigMap,
            agent.namespace,
            _reference(source),
            "spec.systemPrompt",
            Reason.ROLE_SOURCE_INVALID,
        )
        return text.reveal()

    async def _persona(self, agent: Agent) -> PersonaText | None:
        soul = agent.spec.soul
        if soul is None:
            return None
        if soul.inline is not None:
            return inline_persona(soul)
        reference = _reference(soul)
        where = f"key {reference.key} of ConfigMap {agent.namespace}/{reference.name}"
        text = await read_key(
            self._catalog, ConfigMap, agent.namespace, reference, "spec.soul", Reason.SOUL_SOURCE_MISSING
        )
        persona = persona_from_text(text.reveal(), where)
        check_expected(persona, soul.digest, where)
        return persona


class SoulActivities:
    """`soul.bind`: freeze a Task's soul once, and compare ever after."""

    def __init__(
        self,
        resolver: SoulResolver,
        providers: ProviderResolver,
        ledger: Ledger,
        jobs: Jobs,
        clock: Callable[[], datetime],
    ) -> None:
        self._resolver = resolver
        self._providers = providers
        self._ledger = ledger
        self._jobs = jobs
        self._clock = clock

    @activity.defn(name=Step.BIND)
    async def bind(self, request: Bind) -> AttemptPlan:
        """Plan the next attempt under the Task's one soul.

        Raises:
            Refusal: by reason, if the Agent or the Task's inputs are not what the
                Task was bound to, or a soul appeared after it had started.
        """
        record = await self._ledger.task(request.key.task_uid)
        attempts = await self._ledger.attempts(record.uid)
        decided = next((a.outcome for a in attempts if a.key == request.key and a.outcome), None)
        bound = record.binding
        if decided is None:
            resolved = await self._current(record, bound)
            # A Provider that is missing establishes nothing: look before binding.
            provider = await self._providers.provider(resolved.agent, record.spec)
            self._providers.settings(provider, resolved.agent, record.spec)
            bound = bound or await self._bind(record, resolved.revision, attempts)
            prompt_digest = resolved.revision.prompt_digest
        else:
            prompt_digest = (await self._ledger.input(request.key)).system_prompt_digest
        return _plan(record, request.key, bound, prompt_digest, attempts)

    async def _current(self, record: TaskRecord, bound: SoulBinding | None) -> Resolved:
        if bound is None:
            return await self._resolver.resolve(record.namespace, record.spec)
        # First, so that a changed agentRef is told as what it is.
        check_inputs(bound, record.spec)
        resolved = await self._resolver.resolve(record.namespace, record.spec, bound.envelope_version)
        check_binding(bound, resolved.revision)
        return resolved

    async def _bind(
        self, record: TaskRecord, revision: Revision, attempts: Sequence[AttemptRecord]
    ) -> SoulBinding | None:
        if revision.soul_digest is None:
            return None
        if await self._has_started(record, attempts):
            raise Refusal(
                Reason.SOUL_INTRODUCED_LATE,
                f"Task {record.namespace}/{record.name} has started without a soul and its Agent has one now",
            )
        stored = await self._ledger.bind(
            SoulBinding(
                agent_uid=revision.agent_uid,
                agent_generation=revision.agent_generation,
                task_uid=record.uid,
                soul_digest=revision.soul_digest,
                prompt_digest=revision.prompt_digest,
                inputs_digest=inputs_digest(record.spec),
                inputs_version=INPUTS_VERSION,
                envelope_version=revision.envelope_version,
                bound_at=self._clock(),
            )
        )
        check_inputs(stored, record.spec)
        check_binding(stored, revision)
        return stored

    async def _has_started(self, record: TaskRecord, attempts: Sequence[AttemptRecord]) -> bool:
        for attempt in attempts:
            if attempt.started_at is not None:
                return True
            # Its creation may have succeeded without an answer: ask the Jobs.
            observed = await self._jobs.observe(record.namespace, attempt.job_name)
            if observed.phase is not JobPhase.ABSENT:
                return True
        return False


def inline_persona(soul: SoulSource) -> PersonaText:
    """Validate an inline soul and its digest, if one is announced."""
    assert soul.inline is not None
    persona = persona_from_text(soul.inline.reveal(), "spec.soul.inline")
    check_expected(persona, soul.digest, "spec.soul.inline")
    return persona


def delivery_path(agent: Agent) -> DeliveryPath:
    """Return how this Agent's prompt is delivered."""
    return agent.spec.runtime.type if agent.spec.runtime else "ai"


def _check_runtime(agent: Agent, task_type: str) -> None:
    where = f"Agent {agent.namespace}/{agent.name}"
    if agent.spec.runtime_ref is not None:
        raise Refusal(Reason.RUNTIME_UNSUPPORTED, f"{where} has an external runtimeRef, which this release cannot run")
    if agent.spec.runtime is not None or task_type == "agent":
        raise Refusal(
            Reason.RUNTIME_UNSUPPORTED, f"{where} is to be run as a coding agent, which this release cannot do"
        )


def _reference(source: SoulSource | TextSource) -> KeyReference:
    assert source.config_map_ref is not None
    return source.config_map_ref


def _plan(
    record: TaskRecord,
    key: AttemptKey,
    bound: SoulBinding | None,
    prompt_digest: str,
    attempts: Sequence[AttemptRecord],
) -> AttemptPlan:
    mine = next((a for a in attempts if a.key == key), None)
    return AttemptPlan(
        binding=bound,
        job_name=job_name(record.name, record.uid, key.iteration, key.attempt),
        prompt_digest=prompt_digest,
        decided=mine.outcome if mine else None,
        total_attempts=sum(a.started_at is not None for a in attempts if a.key != key),
        timeout=record.spec.timeout,
        deadline=record.spec.deadline,
        retry_policy=record.spec.retry_policy,
    )
