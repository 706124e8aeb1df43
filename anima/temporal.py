"""The connection to Temporal, and its failures as Anima's errors."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from temporalio.client import (
    Client,
    RPCTimeoutOrCancelledError,
    WorkflowQueryFailedError,
    WorkflowQueryRejectedError,
)
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.envconfig import ClientConfig
from temporalio.service import RPCError, RPCStatusCode

from anima.model.errors import Conflict, NotFound, Refusal, Unavailable
from anima.model.reasons import Reason

DEFAULT_ADDRESS = "127.0.0.1:7233"
CONNECT_TIMEOUT = timedelta(seconds=5)


async def connect(address: str | None = None, namespace: str | None = None, **options: Any) -> Client:
    """Connect as Temporal's environment variables and configuration file say.

    Args:
        address: ``host:port`` in place of what is configured.
        namespace: Temporal's, in place of what is configured.
        options: more of `Client.connect`, such as interceptors.

    Raises:
        Refusal: `SettingInvalid` if the configuration cannot be read.
        Unavailable: the server does not answer.
    """
    config = _configured()
    given = {"target_host": address, "namespace": namespace}
    config |= {name: value for name, value in given.items() if value is not None}
    config.setdefault("target_host", DEFAULT_ADDRESS)
    settings = {"data_converter": pydantic_data_converter, "connect_timeout": CONNECT_TIMEOUT, **config, **options}
    try:
        return await Client.connect(**settings)
    except RuntimeError:
        raise unreachable(config["target_host"]) from None


def _configured() -> dict[str, Any]:
    try:
        return dict(ClientConfig.load_client_connect_config())
    except (RuntimeError, ValueError, OSError):
        message = "Temporal's configuration (TEMPORAL_* or its file) cannot be read"
        raise Refusal(Reason.SETTING_INVALID, message) from None


def unreachable(address: str) -> Unavailable:
    """Make the one error for a server that does not answer."""
    return Unavailable(f"the Temporal server at {address} does not answer; is `anima dev` running?")


@contextmanager
def temporal_errors(client: Client, subject: str) -> Iterator[None]:
    """Turn Temporal's errors into Anima's.

    Args:
        client: whose address is named.
        subject: the object that was asked about: ``Task default/review``.

    Raises:
        NotFound: Temporal knows no such workflow, or it is closed.
        Unavailable: the server, or a worker behind it, does not answer.
    """
    try:
        yield
    except RPCError as error:
        raise _translated(error, client.service_client.config.target_host, subject) from None
    except RPCTimeoutOrCancelledError:
        raise _no_worker(subject) from None
    except (WorkflowQueryFailedError, WorkflowQueryRejectedError):
        raise Conflict(f"{subject} cannot answer; its workflow is of another kind, or failed before it began") from None


def _translated(error: RPCError, address: str, subject: str) -> Exception:
    match error.status:
        case RPCStatusCode.NOT_FOUND:
            return NotFound(
                f"Temporal at {address} has no open workflow of {subject}: it is unknown, has ended, or is forgotten"
            )
        case RPCStatusCode.UNAVAILABLE:
            return unreachable(address)
        case RPCStatusCode.DEADLINE_EXCEEDED | RPCStatusCode.CANCELLED | RPCStatusCode.FAILED_PRECONDITION:
            return _no_worker(subject)
        case _:
            return Unavailable(f"Temporal at {address} refused a request about {subject}: {error.status.name}")


def _no_worker(subject: str) -> Unavailable:
    return Unavailable(f"no orchestrator answers for {subject} in time; is `anima dev` running?")
