"""What the long-running programs share: their end, their telemetry, their stores."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from sqlalchemy.ext.asyncio import AsyncEngine

from anima.exits import Exit, exit_of
from anima.keys import Keys
from anima.model.errors import AnimaError
from anima.stores.migrations import migrate
from anima.stores.sql import open_engine
from anima.telemetry.logs import configure_logs
from anima.telemetry.metrics import Metrics, configure_metrics
from anima.telemetry.traces import Traces, configure_traces
from workers.settings import Settings


def run(name: str, serve: Callable[[Settings], Coroutine[Any, Any, None]]) -> int:
    """Serve until told to end; return the exit status.

    Args:
        name: of the program, in its log and its messages.
        serve: returns when the program is to end.
    """
    configure_logs(service(name))
    try:
        asyncio.run(serve(Settings.from_environment()))
    except AnimaError as error:
        sys.stderr.write(f"{name}: {error}\n")
        return exit_of(error)
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    return Exit.OK


def service(name: str) -> str:
    """Return how telemetry calls a program."""
    return f"anima-{name}"


@dataclass(frozen=True, slots=True)
class Ground:
    """What a program stands on while it runs."""

    keys: Keys
    engine: AsyncEngine
    traces: Traces
    metrics: Metrics


@asynccontextmanager
async def ground(name: str, settings: Settings) -> AsyncIterator[Ground]:
    """Open keys, telemetry and the migrated database of a program; close them after it."""
    traces = configure_traces(service(name), os.environ)
    metrics = configure_metrics(service(name), os.environ)
    engine = None
    try:
        keys = Keys.load_or_create(settings.home)
        engine = open_engine(settings.database)
        await migrate(engine)
        yield Ground(keys, engine, traces, metrics)
    finally:
        if engine is not None:
            await engine.dispose()
        # They block until what is left is sent.
        for provider in (metrics, traces):
            await asyncio.to_thread(provider.shutdown)
