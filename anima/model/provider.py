"""Provider: where a model is served, and with which key."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from anima.model.base import Model
from anima.model.resources import KeyReference, Resource

HttpAddress = Annotated[str, Field(pattern=r"^https?://[^\s/]+\S*$", max_length=2048)]
ProviderType = Literal["anthropic", "openai", "openai-compatible", "local", "rehearsal"]


class ProviderSpec(Model):
    """`local` is the small model on the CPU; `rehearsal` answers without a model."""

    type: ProviderType
    base_url: Annotated[HttpAddress | None, Field(alias="baseURL")] = None
    secret_ref: KeyReference | None = None
    default_model: Annotated[str, Field(min_length=1, max_length=253)] | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.type == "openai-compatible" and self.base_url is None:
            raise ValueError("of type openai-compatible needs a baseURL", "add baseURL")
        if self.type in ("local", "rehearsal") and (self.base_url or self.secret_ref):
            raise ValueError(f"of type {self.type} takes no baseURL and no secretRef", "remove them")
        return self


class Provider(Resource):
    """A named model provider in a namespace."""

    api_version: Literal["anima.dev/v1alpha1"]
    kind: Literal["Provider"]
    spec: ProviderSpec
