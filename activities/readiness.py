"""An Agent's readiness and previews, by the validators that execution uses."""

from collections.abc import Callable
from datetime import datetime

from activities.providers import ProviderResolver
from activities.souls import SoulResolver, delivery_path
from anima.model.agent import Agent
from anima.model.base import Int, Model
from anima.model.composition import DELIVERY_LIMITS, delivered_size
from anima.model.errors import Refusal
from anima.model.reasons import Reason
from anima.model.task import Condition


class DeliverySize(Model):
    """The size of a prompt on one path, against its limit, in bytes."""

    path: str
    form: str
    size: Int
    limit: Int
    fits: bool


class PromptPreview(Model):
    """What a Task of an Agent would be given.  The text only on request."""

    agent_uid: str
    agent_generation: Int
    soul_digest: str | None
    prompt_digest: str
    envelope_version: Int
    role_bytes: Int
    soul_bytes: Int
    path: str
    deliveries: list[DeliverySize]
    text: str | None = None


class AgentInspector:
    """Says whether an Agent is ready, and what its Tasks would be given."""

    def __init__(self, souls: SoulResolver, providers: ProviderResolver, clock: Callable[[], datetime]) -> None:
        self._souls = souls
        self._providers = providers
        self._clock = clock

    async def readiness(self, agent: Agent) -> list[Condition]:
        """Return the `Ready` condition, with the reason why it does not hold."""
        try:
            await self._souls.resolve_agent(agent)
            if agent.spec.provider_ref is not None:
                self._providers.settings(await self._providers.provider(agent), agent)
            if agent.spec.runtime_ref is not None:
                raise Refusal(Reason.RUNTIME_UNSUPPORTED, "an external runtimeRef cannot be run by this release")
        except Refusal as refusal:
            return [self._ready(refusal)]
        return [self._ready(None)]

    async def preview(self, agent: Agent, *, text: bool) -> PromptPreview:
        """Compose an Agent's prompt as a Task would get it.

        Raises:
            Refusal: what a Task would be refused for.
        """
        resolved = await self._souls.resolve_agent(agent)
        prompt = resolved.prompt
        return PromptPreview(
            agent_uid=agent.uid,
            agent_generation=agent.generation,
            soul_digest=resolved.revision.soul_digest,
            prompt_digest=prompt.digest,
            envelope_version=prompt.envelope_version,
            role_bytes=prompt.role_bytes,
            soul_bytes=prompt.soul_bytes,
            path=delivery_path(agent),
            deliveries=[
                DeliverySize(
                    path=path,
                    form=limit.form,
                    size=(size := delivered_size(prompt, path)),
                    limit=limit.limit,
                    fits=size <= limit.limit,
                )
                for path, limit in DELIVERY_LIMITS.items()
            ],
            text=prompt.text.reveal() if text else None,
        )

    def _ready(self, refusal: Refusal | None) -> Condition:
        return Condition(
            type="Ready",
            status="False" if refusal else "True",
            reason=refusal.reason if refusal else "Ready",
            message=refusal.message if refusal else "",
            last_transition_time=self._clock(),
        )
