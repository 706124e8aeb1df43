"""The gateway's application: all routes on one set of services."""

from collections.abc import Callable

from fastapi import FastAPI
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware

import anima
from workers.gateway import attempts, catalog, conversations, sessions, tasks
from workers.gateway.errors import Boundary, install_handlers
from workers.gateway.security import allowed_hosts
from workers.gateway.services import Services


def create_app(
    services: Services,
    host: str,
    new_id: Callable[[], str],
    ending: Callable[[], bool] = lambda: False,
) -> FastAPI:
    """Return the application.

    Args:
        services: what the routes work on.
        host: the configured host; requests for any other but loopback are refused.
        new_id: names a request.
        ending: tells whether streams should end, because the process does.
    """
    app = FastAPI(
        # The pages would load scripts from elsewhere.
        openapi_url=None,
        redirect_slashes=False,
        # Its log records would hold the messages of exceptions.
        telemetry={
            "tracer_provider": services.traces.provider,
            "meter_provider": services.metrics.provider,
            "logs": False,
            "operation_spans": False,
            "auto_configure": False,
        },
        middleware=[
            Middleware(TrustedHostMiddleware, allowed_hosts=allowed_hosts(host), www_redirect=False),
            Middleware(Boundary, new_id=new_id),
        ],
    )
    app.state.services = services
    app.state.ending = ending
    install_handlers(app)
    app.add_api_route("/healthz", _health, methods=["GET"])
    app.add_api_route("/v1/version", _version, methods=["GET"])
    app.include_router(attempts.router)
    app.include_router(tasks.router)
    app.include_router(conversations.router)
    app.include_router(sessions.router)
    # Last, as it takes any plural.
    app.include_router(catalog.router)
    return app


async def _health() -> dict[str, str]:
    return {"status": "ok"}


async def _version() -> dict[str, str]:
    return {"version": anima.__version__}
