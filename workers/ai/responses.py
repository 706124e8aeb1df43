"""A bound on what one response of a provider may bring: its libraries have none."""

from collections.abc import AsyncIterator

import httpx2

# An answer of the largest size, streamed in small pieces, stays well below.
MAX_RESPONSE_BYTES = 128 * 1024 * 1024


class ResponseTooLarge(Exception):
    """A provider sends without end."""


async def bound_response(response: httpx2.Response) -> None:
    """Make reading `response` fail once it exceeds its bound; an httpx2 event hook."""
    assert isinstance(response.stream, httpx2.AsyncByteStream)
    response.stream = _Bounded(response.stream)


class _Bounded(httpx2.AsyncByteStream):
    def __init__(self, stream: httpx2.AsyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for chunk in self._stream:
            size += len(chunk)
            if size > MAX_RESPONSE_BYTES:
                raise ResponseTooLarge(f"over {MAX_RESPONSE_BYTES} bytes")
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()
