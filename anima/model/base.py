"""The base of every model: strict, camelCase on the wire, silent about input."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

MAX_INT = 2**53 - 1
"""The largest integer that every JSON reader keeps exactly (RFC 8785)."""

Int = Annotated[int, Field(ge=-MAX_INT, le=MAX_INT)]


class Model(BaseModel):
    """A value object: frozen, no unknown fields, no input echoed in errors."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        extra="forbid",
        frozen=True,
        hide_input_in_errors=True,
        populate_by_name=True,
        strict=True,
        serialize_by_alias=True,
    )

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON data with every default applied and no nulls."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)
