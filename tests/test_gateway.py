"""The gateway's client: every answer becomes one of Anima's errors."""

import json
import socket
from collections.abc import AsyncIterator

import httpx2
import pytest

from anima.gateway import Gateway
from anima.model.errors import AnimaError, Conflict, NotFound, Refusal, Unavailable
from anima.model.manifest import KINDS
from anima.model.problems import Problem
from anima.model.reasons import Reason

ADDRESS = "http://127.0.0.1:8420"


def answering(status: int, content: bytes = b"", headers: dict[str, str] | None = None) -> Gateway:
    return Gateway(
        ADDRESS, "token", httpx2.MockTransport(lambda _: httpx2.Response(status, content=content, headers=headers))
    )


def error(reason: str, **more: object) -> bytes:
    return json.dumps({"error": {"reason": reason, "message": "what happened", "remedy": "", **more}}).encode()


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (400, Refusal),
        (401, Refusal),
        (404, NotFound),
        (409, Conflict),
        (413, Refusal),
        (500, Unavailable),
        (503, Unavailable),
    ],
)
async def test_a_status_becomes_the_error_that_was_raised(status: int, expected: type[AnimaError]) -> None:
    async with answering(status, error("Whatever")) as gateway:
        with pytest.raises(expected, match="what happened"):
            await gateway.task("default", "review")


async def test_a_refusal_keeps_its_reason_and_problems() -> None:
    problem = {"path": "spec.soul", "message": "is blank", "remedy": "write one"}
    async with answering(422, error("SoulSourceInvalid", problems=[problem])) as gateway:
        with pytest.raises(Refusal) as caught:
            await gateway.get(KINDS["Agent"], "default", "reviewer")
    assert caught.value.reason is Reason.SOUL_SOURCE_INVALID
    assert caught.value.problems == (Problem("spec.soul", "is blank", "write one"),)


async def test_a_reason_of_a_newer_gateway_is_a_refused_request() -> None:
    async with answering(422, error("InventedLater")) as gateway:
        with pytest.raises(Refusal) as caught:
            await gateway.tasks()
    assert caught.value.reason is Reason.REQUEST_REFUSED


async def test_what_is_no_gateway_is_said_to_be_none() -> None:
    for status, content in ((200, b"<html>"), (502, b"<html>")):
        async with answering(status, content) as gateway:
            with pytest.raises(Unavailable):
                await gateway.version()


async def test_a_gateway_that_does_not_answer_is_unavailable() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        async with Gateway(f"http://127.0.0.1:{unused.getsockname()[1]}", "token") as gateway:
            with pytest.raises(Unavailable, match=r"does not answer \(ConnectError\); `anima dev` starts one"):
                await gateway.version()
            with pytest.raises(Unavailable, match="does not answer"):
                _ = [event async for event in gateway.follow("default", "review")]


@pytest.mark.parametrize("address", ["http://127.0.0.1:port", "nonsense", "ftp://127.0.0.1"])
async def test_an_address_that_cannot_be_is_an_anima_error(address: str) -> None:
    with pytest.raises(AnimaError, match=address):
        async with Gateway(address, "token") as gateway:
            await gateway.version()


async def test_a_result_that_is_cut_short_is_not_a_result() -> None:
    async with answering(200, b"half of i", {"Anima-Digest": "sha256:" + "0" * 64}) as gateway:
        with pytest.raises(Unavailable, match="did not arrive whole"):
            await gateway.result("default", "review")


async def test_a_name_cannot_reach_another_route() -> None:
    paths: list[bytes] = []

    def record(request: httpx2.Request) -> httpx2.Response:
        paths.append(request.url.raw_path)
        return httpx2.Response(200, json={})

    async with Gateway(ADDRESS, "token", httpx2.MockTransport(record)) as gateway:
        await gateway.get(KINDS["Agent"], "default", "x/../../secrets/key?a#b")
    assert paths == [b"/v1/namespaces/default/agents/x%2F..%2F..%2Fsecrets%2Fkey%3Fa%23b"]


async def test_a_session_s_name_cannot_reach_another_route() -> None:
    paths: list[bytes] = []

    def record(request: httpx2.Request) -> httpx2.Response:
        paths.append(request.url.raw_path)
        return httpx2.Response(204)

    async with Gateway(ADDRESS, "token", httpx2.MockTransport(record)) as gateway:
        await gateway.delete_session("default", "../agents/x?a")
    assert paths == [b"/v1/namespaces/default/sessions/..%2Fagents%2Fx%3Fa"]


class BrokenOff(httpx2.AsyncByteStream):
    """Sends a line, and then no more."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield b"one line\n"
        raise httpx2.ReadError("reset")


async def test_an_export_that_breaks_off_is_not_taken_for_a_whole_one() -> None:
    transport = httpx2.MockTransport(lambda _: httpx2.Response(200, stream=BrokenOff()))
    async with Gateway(ADDRESS, "token", transport) as gateway:
        exported = gateway.export_session("default", "chat")
        assert await anext(exported) == b"one line\n"
        with pytest.raises(Unavailable, match=r"broke its answer off \(ReadError\); ask again"):
            await anext(exported)


async def test_an_export_that_is_refused_raises_what_the_gateway_raised() -> None:
    for status, expected in ((404, NotFound), (401, Refusal), (503, Unavailable)):
        async with answering(status, error("Whatever")) as gateway:
            with pytest.raises(expected, match="what happened"):
                _ = [piece async for piece in gateway.export_session("default", "chat")]
