"""Resolving a Task's model: where it is served, and with which key."""

from collections.abc import Mapping

from activities.keys import read_key
from anima.model.agent import Agent
from anima.model.attempts import ProviderSettings
from anima.model.errors import NotFound, Refusal
from anima.model.persona import SensitiveText
from anima.model.provider import Provider, ProviderType
from anima.model.reasons import Reason
from anima.model.resources import Secret
from anima.model.task import TaskSpec
from anima.model.wire import JobVariable
from anima.stores.ports import Catalog

_DEFAULT_ADDRESSES: Mapping[ProviderType, str] = {
    "anthropic": "https://api.anthropic.com",
    "openai": "https://api.openai.com/v1",
}
_DEFAULT_MODELS: Mapping[ProviderType, str] = {
    "local": "smollm2-135m-instruct",
    "rehearsal": "rehearsal",
}


class ProviderResolver:
    """Reads Providers and Secrets, uncached.

    Args:
        catalog: where they are.
        local_address: base URL of the small model on this machine; none if it is
            not running.
    """

    def __init__(self, catalog: Catalog, local_address: str | None) -> None:
        self._catalog = catalog
        self._local_address = local_address

    async def provider(self, agent: Agent, spec: TaskSpec | None = None) -> Provider:
        """Return the Provider of a Task, or of an Agent alone.

        Raises:
            Refusal: `ProviderMissing`.
        """
        reference = (spec.ai.provider_ref if spec else None) or agent.spec.provider_ref
        if reference is None:
            raise Refusal(
                Reason.PROVIDER_MISSING,
                f"Agent {agent.namespace}/{agent.name} has no providerRef, and no Task gives one",
            )
        try:
            return await self._catalog.get(Provider, agent.namespace, reference.name)
        except NotFound:
            raise Refusal(
                Reason.PROVIDER_MISSING, f"Provider {agent.namespace}/{reference.name} (providerRef) does not exist"
            ) from None

    def settings(self, provider: Provider, agent: Agent, spec: TaskSpec | None = None) -> ProviderSettings:
        """Return address and model, without the key.

        Raises:
            Refusal: `ProviderInvalid`.
        """
        model = (spec.ai.model if spec else None) or agent.spec.model.name or provider.spec.default_model
        return ProviderSettings(
            type=provider.spec.type,
            base_url=self._address(provider),
            model=model or _default_model(provider),
            temperature=agent.spec.model.temperature,
            max_tokens=agent.spec.model.max_tokens,
        )

    async def environment(self, provider: Provider, spec: TaskSpec) -> dict[str, SensitiveText]:
        """Return the variables that only a Job may see: the Task's own, and the key.

        Raises:
            Refusal: `ProviderInvalid`, or `TaskInvalid` for a variable whose Secret
                is missing.
        """
        environment = {}
        for variable in spec.env:
            if variable.secret_key_ref is not None:
                where = f"spec.env {variable.name}"
                value = await read_key(
                    self._catalog, Secret, provider.namespace, variable.secret_key_ref, where, Reason.TASK_INVALID
                )
            else:
                value = SensitiveText(variable.value or "")
            environment[variable.name] = value
        if provider.spec.secret_ref is not None:
            where = f"Provider {provider.namespace}/{provider.name}"
            key = await read_key(
                self._catalog, Secret, provider.namespace, provider.spec.secret_ref, where, Reason.PROVIDER_INVALID
            )
            environment[JobVariable.PROVIDER_KEY] = key
        return environment

    def _address(self, provider: Provider) -> str | None:
        if provider.spec.type != "local":
            return provider.spec.base_url or _DEFAULT_ADDRESSES.get(provider.spec.type)
        if self._local_address is None:
            raise Refusal(
                Reason.PROVIDER_INVALID,
                f"Provider {provider.namespace}/{provider.name} is of type local, and no small model runs here",
            )
        return self._local_address


def _default_model(provider: Provider) -> str:
    model = _DEFAULT_MODELS.get(provider.spec.type)
    if model is None:
        raise Refusal(
            Reason.PROVIDER_INVALID,
            f"Provider {provider.namespace}/{provider.name} has no defaultModel, and neither Agent nor Task names one",
        )
    return model
