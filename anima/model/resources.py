"""The envelope of every resource, as Kubernetes writes it."""

import re
from datetime import datetime
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, WithJsonSchema, model_validator

from anima.model.base import Int, Model
from anima.model.names import Name
from anima.model.persona import SensitiveText
from anima.model.units import Quantity

API_VERSION = "anima.dev/v1alpha1"
DEFAULT_NAMESPACE = "default"
RESERVED_ENV_PREFIX = "ANIMA_"
MAX_ENV_BYTES = 64 * 1024
"""Half of what one environment string may be on Linux (MAX_ARG_STRLEN)."""

_KEY = re.compile(r"[-._a-zA-Z0-9]{1,253}")

Labels = Annotated[dict[str, str], Field(default_factory=dict, max_length=64)]


class ObjectMeta(Model):
    """Who an object is.  `uid` and what follows are the store's to set."""

    name: Name
    namespace: Name = DEFAULT_NAMESPACE
    labels: Labels
    annotations: Labels
    uid: str | None = None
    generation: Int | None = None
    resource_version: str | None = None
    creation_timestamp: Annotated[datetime | None, Field(strict=False)] = None


class Resource(Model):
    """An object with a name.  Subclasses fix `apiVersion` and `kind`."""

    api_version: str
    kind: str
    metadata: ObjectMeta

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def namespace(self) -> str:
        return self.metadata.namespace

    @property
    def uid(self) -> str:
        """The store's identity of this object; set once it was stored."""
        return self.metadata.uid or ""

    @property
    def generation(self) -> int:
        return self.metadata.generation or 0

    def content(self) -> dict[str, Any]:
        """Return what the generation counts: the object without its metadata."""
        body = self.to_json()
        return {key: body[key] for key in body if key not in ("apiVersion", "kind", "metadata", "status")}


class Reference(Model):
    """The name of another object in the same namespace."""

    name: Name


def _key(text: str) -> str:
    if not _KEY.fullmatch(text):
        raise ValueError("must be a key", "use up to 253 letters, digits, hyphens, underscores and dots")
    return text


Key = Annotated[str, AfterValidator(_key), WithJsonSchema({"type": "string", "pattern": _KEY.pattern})]
"""What Kubernetes takes as a key of a ConfigMap or a Secret."""


class KeyReference(Model):
    """One key of a ConfigMap or Secret in the same namespace."""

    name: Name
    key: Key


class ResourceList(Model):
    """Amounts of cpu (cores) and memory (bytes)."""

    cpu: Quantity | None = None
    memory: Quantity | None = None


class ResourceRequirements(Model):
    """What a Job asks for and may use; a Task's value wins over its Agent's."""

    requests: ResourceList | None = None
    limits: ResourceList | None = None


def check_no_nul(text: str) -> str:
    """Return `text` if the system can hand it to a process.

    Raises:
        ValueError: with the fault and the remedy as its two arguments.
    """
    if "\0" in text:
        raise ValueError("has a NUL, which no process can be given", "remove it")
    return text


def _environment_sized(text: str) -> str:
    if len(text.encode()) > MAX_ENV_BYTES:
        raise ValueError(f"must be at most {MAX_ENV_BYTES} bytes", "put long text into the prompt")
    return text


def _unreserved(name: str) -> str:
    if name.startswith(RESERVED_ENV_PREFIX):
        raise ValueError("is reserved for the system", f"use a name that does not begin with {RESERVED_ENV_PREFIX}")
    return name


_Value = Annotated[
    str, Field(max_length=MAX_ENV_BYTES), AfterValidator(_environment_sized), AfterValidator(check_no_nul)
]


class EnvironmentVariable(Model):
    """One variable of the Job: a literal value, or a key of a Secret."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,127}$"), AfterValidator(_unreserved)]
    value: _Value | None = None
    secret_key_ref: KeyReference | None = None

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.value is None) == (self.secret_key_ref is None):
            raise ValueError("must have exactly one source", "give value or secretKeyRef")
        return self


class ConfigMap(Resource):
    """Plain configuration; with `immutable` its data never changes again."""

    api_version: Literal["v1"]
    kind: Literal["ConfigMap"]
    immutable: bool = False
    # A ConfigMap may hold a soul, so its values stay out of every repr.
    data: Annotated[dict[Key, SensitiveText], Field(default_factory=dict, max_length=256)]


class Secret(Resource):
    """Credentials.  Write-only: reading one back gives its key names."""

    api_version: Literal["v1"]
    kind: Literal["Secret"]
    type: str = "Opaque"
    string_data: Annotated[
        dict[Key, SensitiveText],
        Field(default_factory=dict, max_length=64),
        WithJsonSchema({"type": "object", "additionalProperties": {"type": "string", "writeOnly": True}}),
    ]
