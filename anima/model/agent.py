"""Agent: a role, a soul, a model and the way it is run."""

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from anima.model.base import Int, Model
from anima.model.digests import Digest
from anima.model.persona import PersonaText, SensitiveText
from anima.model.resources import (
    KeyReference,
    Reference,
    Resource,
    ResourceRequirements,
    check_no_nul,
)
from anima.model.transcript import MAX_BUDGET, MIN_BUDGET

RuntimeType = Literal["codex", "claude", "copilot", "opencode"]


class TextSource(Model):
    """The role: text given here, or one key of a ConfigMap."""

    inline: SensitiveText | None = None
    config_map_ref: KeyReference | None = None

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.inline is None) == (self.config_map_ref is None):
            raise ValueError("must have exactly one source", "give inline or configMapRef")
        return self


class SoulSource(Model):
    """The persona: exactly one source; a ConfigMap needs the expected digest."""

    inline: PersonaText | None = None
    config_map_ref: KeyReference | None = None
    digest: Digest | None = None

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.inline is None) == (self.config_map_ref is None):
            raise ValueError("must have exactly one source", "give inline or configMapRef")
        if self.config_map_ref is not None and self.digest is None:
            raise ValueError(
                "needs a digest, because its source is a ConfigMap",
                "`anima soul publish FILE` prints the whole block",
            )
        return self


class ModelSettings(Model):
    """Which model answers, and how."""

    name: Annotated[str, Field(min_length=1, max_length=253)] | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    max_tokens: Annotated[Int, Field(ge=1)] | None = None
    transcript_bytes: Annotated[Int, Field(ge=MIN_BUDGET, le=MAX_BUDGET)] | None = None
    """How much of its Session the model is given; none for what suits the Provider."""


class Runtime(Model):
    """A built-in coding agent."""

    type: RuntimeType


_Argument = Annotated[str, Field(max_length=4096), AfterValidator(check_no_nul)]


def _program(command: list[str]) -> list[str]:
    if not command[0]:
        raise ValueError("begins with an empty text", "begin with a program")
    return command


class Execution(Model):
    """How a Job of this Agent is started."""

    image: Annotated[str, Field(min_length=1, max_length=1024)] | None = None
    command: Annotated[list[_Argument], Field(min_length=1, max_length=64), AfterValidator(_program)] | None = None


class AgentSpec(Model):
    """What an Agent is.  Any change of it raises the generation."""

    system_prompt: TextSource | None = None
    soul: SoulSource | None = None
    provider_ref: Reference | None = None
    model: ModelSettings = ModelSettings()
    runtime: Runtime | None = None
    runtime_ref: Reference | None = None
    resources: ResourceRequirements | None = None
    execution: Execution = Execution()

    @model_validator(mode="after")
    def _runtime(self) -> Self:
        if self.runtime is not None and self.runtime_ref is not None:
            raise ValueError("has both runtime and runtimeRef", "keep one of them")
        if self.soul is not None and self.runtime_ref is not None:
            raise ValueError(
                "has a soul and an external runtimeRef, which cannot deliver it",
                "remove soul, or use a built-in runtime",
            )
        return self


class Agent(Resource):
    """A named agent in a namespace."""

    api_version: Literal["anima.dev/v1alpha1"]
    kind: Literal["Agent"]
    spec: AgentSpec
