"""Provider: where a model is served, and with which key."""

from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, WithJsonSchema, model_validator

from anima.model.base import Model
from anima.model.resources import KeyReference, Resource


def _reachable(address: str) -> str:
    """Refuse what no client could ask, and what would put a key where it can be read."""
    try:
        parts = urlsplit(address)
        usable = parts.scheme in ("http", "https") and parts.hostname and (parts.port is None or parts.port > 0)
    except ValueError:
        usable = False
    if not usable or any(character.isspace() or not character.isprintable() for character in address):
        raise ValueError("must be an address of HTTP", "write https://host:port/path")
    if "@" in parts.netloc:
        raise ValueError("has a user or a password in it", "put the key into a Secret and name it in secretRef")
    return address


HttpAddress = Annotated[
    str, Field(max_length=2048), AfterValidator(_reachable), WithJsonSchema({"type": "string", "format": "uri"})
]
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
