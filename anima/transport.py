"""HTTP to a gateway: requests, downloads, streams of events, and every failure as one of Anima's errors."""

from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from types import TracebackType
from typing import Any, Self

import httpx2
from pydantic import ValidationError

from anima.model.api import END_EVENT, EVENT_STREAM, ErrorBody, ErrorDetail
from anima.model.errors import AnimaError, Conflict, NotFound, Refusal, Unavailable
from anima.model.problems import Problem
from anima.model.reasons import Reason

_TIMEOUT = httpx2.Timeout(30, connect=5)
_PATIENT = httpx2.Timeout(None, connect=5)
_MAX_EVENT_BYTES = 8 * 1024 * 1024
"""An answer of 1 MiB is at most six times that as JSON."""
Params = Mapping[str, str | int | bool | None]


class Transport:
    """The connections to one gateway; close it, or use it in ``async with``.

    Every method raises `Refusal` for what is permanent, `NotFound`, `Conflict`,
    and `Unavailable` if the gateway does not answer or cannot now.

    Args:
        address: such as ``http://127.0.0.1:8420``.
        token: of the user routes, from `Home.user_token`.
        transport: in place of the network, for a gateway in the same process.
    """

    def __init__(self, address: str, token: str, transport: httpx2.AsyncBaseTransport | None = None) -> None:
        self._address = address
        try:
            self._http = httpx2.AsyncClient(
                base_url=address,
                headers={"Authorization": f"Bearer {token}"},
                timeout=_TIMEOUT,
                transport=transport,
                # A proxy of the environment has no way to this machine's loopback.
                trust_env=False,
                verify=address.startswith("https:"),
            )
        except httpx2.InvalidURL as error:
            raise Refusal(Reason.SETTING_INVALID, f"{address!r} is no address of a gateway: {error}") from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def send(
        self,
        method: str,
        path: str,
        params: Params | None = None,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> httpx2.Response:
        """Send one request, with a body of JSON if any, and return its answer if that is no error."""
        sent = {"Content-Type": "application/json"} if body is not None else {}
        sent |= headers or {}
        try:
            response = await self._http.request(method, path, params=_given(params), content=body, headers=sent)
        except httpx2.RequestError as error:
            raise self._unreachable(error) from None
        return self._checked(response)

    async def json(self, method: str, path: str, params: Params | None = None, body: bytes | None = None) -> Any:
        """Send one request and return what its answer holds, as plain data."""
        response = await self.send(method, path, params, body)
        try:
            return response.json()
        except ValueError:
            raise Unavailable(f"what answers at {self._address} is no Anima gateway; check the address") from None

    async def upload(self, path: str, body: AsyncIterable[bytes], content_type: str) -> httpx2.Response:
        """Post a body while it comes; the gateway may take its time to store it."""
        headers = {"Content-Type": content_type}
        try:
            response = await self._http.post(path, content=body, headers=headers, timeout=_PATIENT)
        except httpx2.RequestError as error:
            raise self._unreachable(error) from None
        return self._checked(response)

    async def download(self, path: str, params: Params | None = None) -> AsyncGenerator[bytes]:
        """Yield an answer as it comes.

        Raises:
            Unavailable: also if it broke off; what was yielded is not whole then.
        """
        async with self._opened(path, params, {}, _TIMEOUT) as response:
            try:
                async for chunk in response.aiter_bytes():
                    yield chunk
            except httpx2.RequestError as error:
                raise Unavailable(
                    f"the gateway at {self._address} broke its answer off ({type(error).__name__}); ask again"
                ) from None

    async def stream(
        self, path: str, params: Params | None = None, headers: Mapping[str, str] | None = None
    ) -> AsyncGenerator[httpx2.ServerSentEvent]:
        """Yield the events of a stream until the gateway says that nothing follows.

        Raises:
            Unavailable: also if the stream ended without that word; ask for the rest.
        """
        wanted = {"Accept": EVENT_STREAM, **(headers or {})}
        async with self._opened(path, params, wanted, _PATIENT) as response:
            async for event in httpx2.EventSource(response, _MAX_EVENT_BYTES):
                if event.event == END_EVENT:
                    return
                yield event
        raise Unavailable(f"the gateway at {self._address} ended the stream of events; follow it again")

    @asynccontextmanager
    async def _opened(
        self, path: str, params: Params | None, headers: Mapping[str, str], patience: httpx2.Timeout
    ) -> AsyncIterator[httpx2.Response]:
        request = self._http.build_request("GET", path, params=_given(params), headers=headers, timeout=patience)
        try:
            response = await self._http.send(request, stream=True)
            async with aclosing(response):
                if not response.is_success:
                    await response.aread()
                yield self._checked(response)
        except httpx2.RequestError as error:
            raise self._unreachable(error) from None

    def _checked(self, response: httpx2.Response) -> httpx2.Response:
        """Return an answer that is no error; raise the one that the gateway's own code raised, as far as HTTP tells."""
        if response.is_success:
            return response
        detail = _detail(response)
        if response.status_code == httpx2.codes.UNAUTHORIZED:
            message = f"{detail.message}; another home's stack may answer at {self._address}"
            raise Refusal(Reason.REQUEST_REFUSED, message)
        raise _error(response.status_code, detail)

    def _unreachable(self, error: httpx2.RequestError) -> Unavailable:
        return Unavailable(
            f"the gateway at {self._address} does not answer ({type(error).__name__}); `anima dev` starts one"
        )


def _given(params: Params | None) -> dict[str, str | int | bool]:
    return {name: value for name, value in (params or {}).items() if value is not None}


def _detail(response: httpx2.Response) -> ErrorDetail:
    try:
        return ErrorBody.model_validate_json(response.content).error
    except ValidationError:
        return ErrorDetail(reason="", message=f"the gateway answered with HTTP status {response.status_code}")


def _error(status: int, error: ErrorDetail) -> AnimaError:
    if status == httpx2.codes.NOT_FOUND:
        return NotFound(error.message)
    if status == httpx2.codes.CONFLICT:
        return Conflict(error.message)
    if status >= httpx2.codes.INTERNAL_SERVER_ERROR:
        return Unavailable(error.message)
    # A newer gateway may know reasons that this client does not.
    known = error.reason in Reason.__members__.values()
    reason = Reason(error.reason) if known else Reason.REQUEST_REFUSED
    problems = [Problem(problem.path, problem.message, problem.remedy) for problem in error.problems]
    return Refusal(reason, error.message, problems)
