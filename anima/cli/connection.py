"""Which stack the command talks to, and the clients for it."""

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from anima.client import AnimaClient
from anima.gateway import Gateway
from anima.home import DEFAULT_GATEWAY, Home
from anima.keys import load
from anima.model.errors import NotFound, Unavailable
from anima.stack import running_stack
from anima.telemetry.traces import configure_traces


@dataclass(frozen=True, slots=True)
class Connection:
    """Addresses; Temporal's are none where its own configuration counts."""

    gateway: str
    temporal: str | None
    temporal_namespace: str | None


def find_connection(home: Home, environ: Mapping[str, str]) -> Connection:
    """Take what the environment names, else the running stack, else the defaults.

    Sources: ANIMA_GATEWAY_URL and TEMPORAL_ADDRESS, or ``run/stack.json`` that
    `anima dev` writes in its home.
    """
    stack = running_stack(home)
    own_temporal = "TEMPORAL_ADDRESS" in environ or stack is None
    default = stack.gateway if stack else DEFAULT_GATEWAY
    return Connection(
        gateway=environ.get("ANIMA_GATEWAY_URL") or default,
        temporal=None if own_temporal or stack is None else stack.temporal,
        temporal_namespace=None if own_temporal or stack is None else stack.namespace,
    )


@asynccontextmanager
async def open_gateway() -> AsyncIterator[Gateway]:
    """Open the gateway with the user's token.

    Raises:
        Unavailable: there is no token, so nothing was ever started here.
    """
    home = Home.from_environment()
    token = os.environ.get("ANIMA_TOKEN") or _token(home)
    async with Gateway(find_connection(home, os.environ).gateway, token) as gateway:
        yield gateway


@asynccontextmanager
async def open_client() -> AsyncIterator[tuple[AnimaClient, Gateway]]:
    """Open Temporal and the gateway; a Task's trace begins here."""
    async with open_gateway() as gateway:
        traces = configure_traces("anima-cli", os.environ)
        try:
            yield await connect_client(gateway, interceptors=traces.interceptors), gateway
        finally:
            traces.shutdown()


async def connect_client(gateway: Gateway, **options: Any) -> AnimaClient:
    """Connect to the stack's Temporal, with more options of `Client.connect`."""
    found = find_connection(Home.from_environment(), os.environ)
    return await AnimaClient.connect(found.temporal, found.temporal_namespace, gateway, **options)


def _token(home: Home) -> str:
    try:
        return load(home.user_token)
    except NotFound:
        raise Unavailable(f"there is no gateway token in {home.user_token}; is `anima dev` running?") from None
