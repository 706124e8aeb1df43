"""The soul's text: what is valid, and how it is kept out of every log.

Source of the rules: agent-soul, "Inline persona" and "ConfigMap-backed SOUL.md".
"""

from typing import Any, NoReturn, Self

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from anima.model.digests import digest_bytes
from anima.model.errors import Refusal
from anima.model.reasons import Reason

MAX_SOUL_BYTES = 8192


class SensitiveText:
    """Text that shows itself only when asked: `repr`, `str` and logs see a size.

    It has no `__format__`, `__iter__` or `__len__` of its own, so an f-string, a
    traceback with locals or a debugger's summary reveals nothing.
    """

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """Return the text itself.  Callers keep it out of Temporal and logs."""
        return self._text

    def encode(self) -> bytes:
        """Return the exact UTF-8 bytes."""
        return self._text.encode()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SensitiveText) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {len(self._text)} characters>"

    __str__ = __repr__

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError("sensitive text is not pickled, so that no cache or queue holds it")

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(
            cls._parse,
            core_schema.union_schema(
                [core_schema.str_schema(strict=True), core_schema.is_instance_schema(cls)],
                custom_error_type="text_type",
                custom_error_message="must be text in valid Unicode",
            ),
            serialization=core_schema.plain_serializer_function_ser_schema(cls.reveal),
        )

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"type": "string"}

    @classmethod
    def _parse(cls, value: str | Self) -> Self:
        if not isinstance(value, str):
            return value
        if any("\ud800" <= character <= "\udfff" for character in value):
            raise ValueError("is not valid Unicode: it has a lone surrogate", "write the text as UTF-8")
        return cls(value)


class PersonaText(SensitiveText):
    """The exact text of a soul.  Never trimmed, normalised or truncated."""

    __slots__ = ()

    @property
    def digest(self) -> str:
        """The SHA-256 that ``sha256sum SOUL.md`` prints, with its prefix."""
        return digest_bytes(self.encode())


def persona_from_text(text: str, where: str) -> PersonaText:
    """Validate the text of a soul.

    Args:
        text: as it came out of YAML, JSON or a ConfigMap.
        where: the path of the field, for messages.

    Raises:
        Refusal: `SoulSourceInvalid` or `SoulTooLarge`.
    """
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise Refusal(Reason.SOUL_SOURCE_INVALID, f"{where} is not valid Unicode: it has a lone surrogate") from None
    # An editor saves an empty file as a byte order mark alone.
    if not text.removeprefix("\ufeff").strip():
        raise Refusal(Reason.SOUL_SOURCE_INVALID, f"{where} is blank")
    if "\0" in text:
        raise Refusal(Reason.SOUL_SOURCE_INVALID, f"{where} has a NUL byte")
    if size > MAX_SOUL_BYTES:
        raise Refusal(Reason.SOUL_TOO_LARGE, f"{where} has {size} bytes, the limit is {MAX_SOUL_BYTES}")
    return PersonaText(text)


def persona_from_bytes(data: bytes, where: str) -> PersonaText:
    """Validate a soul read from a file; its bytes must be UTF-8.

    Raises:
        Refusal: `SoulSourceInvalid` or `SoulTooLarge`.
    """
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise Refusal(Reason.SOUL_SOURCE_INVALID, f"{where} is not UTF-8 at byte {error.start}") from None
    return persona_from_text(text, where)


def check_expected(persona: PersonaText, expected: str | None, where: str) -> None:
    """Compare the text with the digest that its author announced.

    Raises:
        Refusal: `SoulDigestMismatch`.
    """
    if expected is not None and persona.digest != expected:
        raise Refusal(
            Reason.SOUL_DIGEST_MISMATCH,
            f"{where} has digest {persona.digest}, spec.soul.digest expects {expected}",
        )
