"""The worker's end of the gateway's attempt routes."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType, TracebackType
from typing import Self

import httpx2
from pydantic import ValidationError

from anima.model.attempts import AttemptInput, ProgressEvent, Report
from anima.model.errors import Refusal, Unavailable
from anima.model.problems import problems_of, summary
from anima.model.reasons import Reason
from workers.ai.environment import JobEnvironment
from workers.ai.retries import Retries, RetryLimits
from workers.ai.tls import tls_context

_TIMEOUT = httpx2.Timeout(30.0, connect=10.0)
# These may pass: the gateway is starting, busy, or behind a proxy that is.
_PASSING = frozenset({408, 425, 429})
# What an answer to an event says of the attempt; any other refusal is about the event.
_OVER = frozenset({401, 403, 410})
_JSON = {"Content-Type": "application/json"}


class AttemptOver(Exception):
    """The gateway wants nothing of this attempt: it is decided, or the token is dead.

    Args:
        status: the HTTP status of its answer.
    """

    def __init__(self, status: int) -> None:
        super().__init__(f"HTTP {status}")
        self.status = status


class AttemptGateway:
    """Fetches the input, sends events, and delivers the report.

    Args:
        environment: names the gateway, the attempt and its token.
        input_limits: how long to wait for the input.
        report_limits: how long to insist on the report.
        trace: the headers that carry the current trace.
        transport: replaces the network, to warm up without one.
    """

    def __init__(
        self,
        environment: JobEnvironment,
        *,
        input_limits: RetryLimits,
        report_limits: RetryLimits,
        trace: Mapping[str, str] = MappingProxyType({}),
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        self._input_limits = input_limits
        self._report_limits = report_limits
        # The gateway is never behind the proxy that a Task's environment may name.
        self._http = httpx2.AsyncClient(
            base_url=f"{environment.gateway.rstrip('/')}/v1/attempts/{environment.key.path}/",
            headers={**trace, "Authorization": f"Bearer {environment.token.reveal()}"},
            timeout=_TIMEOUT,
            trust_env=False,
            transport=transport,
            verify=tls_context(),
        )

    async def __aenter__(self) -> Self:
        await self._http.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, stack: TracebackType | None
    ) -> None:
        await self._http.__aexit__(kind, error, stack)

    async def input(self) -> AttemptInput:
        """Return what is to be done.

        Raises:
            AttemptOver: the attempt is decided, or the token is not good for it.
            Unavailable: the gateway did not answer within the limits.
            Refusal: `PromptDigestMismatch` for an input of another release.
        """
        response = await self._insist(lambda: self._http.get("input"), self._input_limits)
        try:
            return AttemptInput.model_validate_json(response.content)
        except ValidationError as error:
            problems = summary(problems_of(error, AttemptInput))
            raise Refusal(
                Reason.PROMPT_DIGEST_MISMATCH, f"this worker cannot read the attempt's input: {problems}"
            ) from None

    async def send(self, event: ProgressEvent) -> None:
        """Send one progress event, once.  One that the gateway refuses is dropped.

        Raises:
            AttemptOver: the attempt is decided.
            Unavailable: it was not accepted; the same event may be sent again.
        """
        body = event.model_dump_json(by_alias=True)
        try:
            await _checked(self._http.post("events", content=body, headers=_JSON))
        except AttemptOver as over:
            if over.status in _OVER:
                raise

    async def report(self, report: Report) -> None:
        """Deliver the report, again and again until it is accepted.

        Raises:
            AttemptOver: the attempt was decided otherwise, or the report is refused.
            Unavailable: the gateway did not answer within the limits.
        """
        body = report.model_dump_json(by_alias=True, exclude_none=True)
        await self._insist(lambda: self._http.post("report", content=body, headers=_JSON), self._report_limits)

    async def _insist(self, call: Callable[[], Awaitable[httpx2.Response]], limits: RetryLimits) -> httpx2.Response:
        retries = Retries(limits, time.monotonic)
        while True:
            try:
                return await _checked(call())
            except Unavailable:
                delay = retries.next_delay()
                if delay is None:
                    raise
            await asyncio.sleep(delay)


async def _checked(call: Awaitable[httpx2.Response]) -> httpx2.Response:
    try:
        response = await call
    except httpx2.TransportError as error:
        raise Unavailable(f"the gateway does not answer ({type(error).__name__})") from error
    if response.is_success:
        return response
    if response.status_code in _PASSING or not response.is_client_error:
        raise Unavailable(f"the gateway answered HTTP {response.status_code}")
    raise AttemptOver(response.status_code)
