"""The gateway's process: settings, keys, stores and the server around the routes.

Exit codes are those of `anima.exits`; a port in use is `UNAVAILABLE`.
"""

import errno
import logging
import os
import signal
import socket
import sys
import uuid
from datetime import UTC, datetime
from functools import partial

import uvicorn
from temporalio.client import Client

from activities.drivers import Drivers
from activities.providers import ProviderResolver
from activities.readiness import AgentInspector
from activities.revisions import RevisionInspector
from activities.souls import SoulResolver
from activities.transcripts import TranscriptReader
from anima.exits import Exit
from anima.model.attempts import AttemptKey
from anima.model.errors import Unavailable
from anima.stores.ports import TaskRecord
from anima.stores.processes.jobs import LocalJobs
from anima.stores.sql import SqlCatalog, SqlConversations, SqlLedger, SqlRevisionUses, SqlSessions
from anima.telemetry.metrics import temporal_runtime
from workers.gateway.app import create_app
from workers.gateway.services import Services
from workers.orchestrator.bell import nudge
from workers.program import Ground, ground, run, service
from workers.settings import Settings

NAME = "gateway"

_BACKLOG = 2048
_GRACE_SECONDS = 5
"""For requests under way when the process is told to end."""

log = logging.getLogger(__name__)


def main() -> int:
    """Serve until SIGTERM or SIGINT; return the exit status."""
    # The server raises the signal again once it has shut down.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(Exit.OK))
    return run(NAME, _serve)


def listen(host: str, port: int) -> socket.socket:
    """Open the listening socket before anything else is touched.

    Raises:
        Unavailable: the port is in use, or the address is not this machine's.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise Unavailable(
                f"port {port} on {host} is in use; end what holds it, or set ANIMA_GATEWAY_PORT"
            ) from None
        raise Unavailable(f"cannot listen on {host}, port {port}: {error.strerror}; check ANIMA_GATEWAY_HOST") from None
    # Connections inherit it.  The event loop sets it only where the protocol is named, and
    # without it the body of an answer waits 40 ms for the client to acknowledge its head.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def server_of(services: Services, host: str) -> uvicorn.Server:
    """Return the server; nothing of it logs an address with its query, a header or a body."""
    app = create_app(services, host, new_id=_random_id, ending=lambda: server.should_exit)
    config = uvicorn.Config(
        app,
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        lifespan="off",
        ws="none",
        timeout_graceful_shutdown=_GRACE_SECONDS,
    )
    server = uvicorn.Server(config)
    return server


async def _serve(settings: Settings) -> None:
    with listen(settings.gateway_host, settings.gateway_port) as listener:
        async with ground(NAME, settings) as own:
            temporal = await Client.connect(
                **settings.temporal,
                lazy=True,
                interceptors=own.traces.interceptors,
                runtime=temporal_runtime(service(NAME), os.environ),
            )
            log.info("listening on %s, port %d", *listener.getsockname()[:2])
            await server_of(_services(settings, own, temporal), settings.gateway_host).serve(sockets=[listener])


def _services(settings: Settings, own: Ground, temporal: Client) -> Services:
    clock = partial(datetime.now, UTC)
    catalog = SqlCatalog(own.engine, clock, _random_id)
    souls, providers = SoulResolver(catalog), ProviderResolver(catalog, settings.model_url)
    sessions = SqlSessions(own.engine, clock, _random_id)

    async def notify(record: TaskRecord, key: AttemptKey) -> None:
        await nudge(temporal, record.namespace, record.name, key.path)

    return Services(
        catalog=catalog,
        ledger=SqlLedger(own.engine, clock),
        sessions=sessions,
        conversations=SqlConversations(own.engine, clock, _random_id),
        transcripts=TranscriptReader(sessions),
        keys=own.keys,
        inspector=AgentInspector(souls, providers, clock),
        revisions=RevisionInspector(catalog, souls, sessions, SqlRevisionUses(own.engine)),
        # Never entered: it only reads logs here, and starts no Job.
        job_log=LocalJobs(settings.home, clock, fork=False).log,
        notify=notify,
        wake=Drivers(temporal, settings.task_queue).wake,
        traces=own.traces,
        metrics=own.metrics,
    )


def _random_id() -> str:
    return str(uuid.uuid4())
