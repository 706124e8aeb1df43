"""The gateway, with triggers before each route acts, and before its answer is sent."""

import sys
from typing import Any

from fastapi import FastAPI
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tests.e2e.trigger import reached
from workers.gateway import process

create_app = process.create_app


class Triggers:
    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        point = scope.get("path", "").rpartition("/")[2]

        async def answered(message: Message) -> None:
            reached(point, "after")
            await send(message)

        reached(point, "before")
        await self._app(scope, receive, answered)


def _with_triggers(*args: Any, **options: Any) -> FastAPI:
    app = create_app(*args, **options)
    app.add_middleware(Triggers)
    return app


if __name__ == "__main__":
    process.create_app = _with_triggers
    sys.exit(process.main())
