"""What went wrong at a provider, said without its words: they may quote a prompt."""

from collections.abc import Iterator
from contextlib import contextmanager

import httpx2

from anima.model.attempts import ProviderSettings
from anima.model.errors import AnimaError
from workers.ai.models import host_of

_PASSING_STATUSES = frozenset({408, 409, 425, 429})


class ProviderFailure(AnimaError):
    """A provider gave no answer.

    Args:
        message: names type, host and status; never the key or a prompt.
        may_pass: whether asking again soon may help.
        retry_after: seconds that the provider asked to wait.
    """

    def __init__(self, message: str, *, may_pass: bool, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.may_pass = may_pass
        self.retry_after = retry_after


@contextmanager
def provider_failures(provider: ProviderSettings) -> Iterator[None]:
    """Turn whatever a provider's library raises into a `ProviderFailure`."""
    where = f"{provider.type} provider at {host_of(provider)}"
    try:
        yield
    except AnimaError:
        raise
    except httpx2.TransportError as error:
        raise ProviderFailure(f"{where}: connection lost ({type(error).__name__})", may_pass=True) from error
    except Exception as error:
        raise _failure(where, error) from error


def _failure(where: str, error: Exception) -> ProviderFailure:
    from pydantic_ai import exceptions as ai

    retry_after = error.retry_after if isinstance(error, ai.ModelAPIError) else None
    match error:
        case ai.ModelHTTPError(status_code=status):
            message, may_pass = f"{where}: HTTP {status}{_hint(error)}", _status_may_pass(status)
        case ai.ModelTimeoutError():
            message, may_pass = f"{where}: no answer in time", True
        case ai.ModelConnectionError():
            message, may_pass = f"{where}: cannot be reached, or broke off", True
        case ai.ModelRateLimitError() | ai.ModelUnavailableError() | ai.ModelServerError():
            message, may_pass = f"{where}: it reported an error of its own", True
        case ai.ModelRequestRejectedError() | ai.ModelQuotaExceededError():
            message, may_pass = f"{where}: it rejected the request{_hint(error)}", False
        case ai.ModelAPIError() if 300 <= getattr(error.__cause__, "status_code", 0) < 400:
            status = error.__cause__.status_code  # type: ignore[union-attr]
            message, may_pass = f"{where}: HTTP {status}, a redirect: give the final address as baseURL", False
        case _:
            # Garbage where an answer belongs fails in as many ways as there are libraries.
            message, may_pass = f"{where}: what it sent is not a whole answer ({type(error).__name__})", False
    if isinstance(error, ai.ModelQuotaExceededError):
        may_pass = False
    elif may_pass and retry_after:
        message += f", it asks to wait {retry_after:.0f} s"
    return ProviderFailure(message, may_pass=may_pass, retry_after=retry_after)


def _status_may_pass(status: int) -> bool:
    return status in _PASSING_STATUSES or status >= 500


def _hint(error: Exception) -> str:
    from pydantic_ai import exceptions as ai

    match error:
        case ai.ModelQuotaExceededError():
            return ": the account's quota is used up"
        case ai.ModelAuthenticationError():
            return ": check the Provider's key (secretRef)"
        case ai.ModelNotFoundError():
            return ": check the model's name and the Provider's baseURL"
        case ai.ModelContextWindowExceededError():
            return ": the prompt does not fit the model's context window"
        case _:
            return ""
