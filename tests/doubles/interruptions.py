"""A store whose answers get lost, before or after what it was asked to do."""

from collections import defaultdict
from enum import StrEnum
from typing import Any

from anima.model.errors import Unavailable


class Interruption(StrEnum):
    BEFORE = "before"
    """Nothing was done."""
    AFTER = "after"
    """It was done, and nobody was told."""


class Interrupted:
    """Wraps a store: `next[method]` holds what befalls its next calls, `calls` what was called."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.next: dict[str, list[Interruption]] = defaultdict(list)
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)

        async def call(*args: Any, **kwargs: Any) -> Any:
            self.calls.append(name)
            interruption = self.next[name].pop(0) if self.next[name] else None
            if interruption is Interruption.BEFORE:
                raise Unavailable("the database of this test does not answer")
            result = await method(*args, **kwargs)
            if interruption is Interruption.AFTER:
                raise Unavailable("the answer of this test's database got lost")
            return result

        return call
