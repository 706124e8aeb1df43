"""The credential of one attempt, derived from one secret so that none is stored.

A token names its attempt and proves it: a retried creation of a Job derives the
same token, and the gateway can tell a forged one from another attempt's.
"""

import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode

from anima.model.attempts import AttemptKey

_DOMAIN = b"anima.attempt-token/1\n"
MAX_TOKEN_CHARACTERS = 512


def attempt_token(secret: bytes, key: AttemptKey) -> str:
    """Derive an attempt's token: its path and the HMAC-SHA256 of it, in base64url.

    Args:
        secret: the installation's attempt key; at least 32 bytes.
        key: the attempt that the token is for.
    """
    path = key.path.encode()
    return f"{_encode(path)}.{_encode(_mac(secret, path))}"


def verified_key(secret: bytes, token: str) -> AttemptKey | None:
    """Return the attempt that a token was derived for; none if it is not ours.

    The comparison takes the same time wherever the two differ.
    """
    named, _, proof = token.partition(".")
    if len(token) > MAX_TOKEN_CHARACTERS or not token.isascii():
        return None
    try:
        path = urlsafe_b64decode(named + "=" * (-len(named) % 4))
        # One token has one spelling: the proof is compared as it was written.
        if not hmac.compare_digest(proof, _encode(_mac(secret, path))) or named != _encode(path):
            return None
        return AttemptKey.parse(path.decode())
    except ValueError:
        return None


def _mac(secret: bytes, path: bytes) -> bytes:
    return hmac.digest(secret, _DOMAIN + path, "sha256")


def _encode(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()
