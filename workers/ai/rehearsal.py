"""The offline provider: a fixed answer to the user's words, and no model anywhere."""

from collections.abc import Iterator

from anima.model.digests import digest_bytes

_QUOTED_CHARACTERS = 200


def rehearse(user_prompt: str, earlier: int | None = None) -> Iterator[str]:
    """Yield the answer in a few pieces; the same input always gives the same answer.

    It knows nothing of the system text, so it cannot echo any of it.

    Args:
        user_prompt: the user's words.
        earlier: how many messages of a Session came with them; none without a Session.
    """
    first_line = next(line for line in [*user_prompt.strip().splitlines(), ""])
    quoted = first_line[:_QUOTED_CHARACTERS] + ("…" if len(first_line) > _QUOTED_CHARACTERS else "")
    yield "This is a rehearsal: no model was asked. "
    yield f'The prompt begins "{quoted}", '
    yield f"has {len(user_prompt.encode())} bytes and the digest {digest_bytes(user_prompt.encode())}. "
    if earlier is not None:
        yield f"Of the Session, {earlier} earlier messages came with it. "
    yield "Give the Agent another Provider for a real answer.\n"
