"""A model server that does what it is told, over real HTTP on loopback.

It speaks OpenAI chat completions and Anthropic messages, whole and streamed.  A
behaviour comes from the script, else from the model's name (`hang`, `blank`, ...),
else it is the plain answer.  ``python -m tests.doubles.model_server [PORT]`` runs it
as a process that prints its address; ``GET /requests`` then tells what it received.
"""

import json
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.doubles.loopback import LoopbackServer

PIECES = ("Forty", "-two", " is the answer.")
ANSWER = "".join(PIECES)
_STOP_REASONS = {"stop": "end_turn", "length": "max_tokens", "content_filter": "refusal"}


@dataclass(frozen=True)
class Received:
    """One request, as it came over the wire."""

    path: str
    headers: dict[str, str]
    raw: bytes
    first_byte: float
    """Seconds since the epoch at which its first line had arrived."""

    @property
    def body(self) -> Any:
        return json.loads(self.raw)

    @property
    def system(self) -> str | None:
        """The system text, whichever protocol carried it."""
        body = self.body
        if "system" in body:
            blocks = body["system"]
            return blocks if isinstance(blocks, str) else "".join(block["text"] for block in blocks)
        return next((message["content"] for message in body["messages"] if message["role"] == "system"), None)

    @property
    def messages(self) -> list[tuple[str, Any]]:
        """Role and content of all but the system text, as the protocol carried them.

        A content of one text is that text; an assistant's calls of OpenAI's protocol
        are put behind its content.
        """
        return [
            (message["role"], _content(message)) for message in self.body["messages"] if message["role"] != "system"
        ]

    @property
    def user(self) -> str:
        content = next(message["content"] for message in self.body["messages"] if message["role"] == "user")
        return content if isinstance(content, str) else "".join(block["text"] for block in content)


def _content(message: dict[str, Any]) -> Any:
    match message["content"]:
        case [{"type": "text", "text": text, **rest}] if not rest:
            content = text
        case content:
            pass
    extra = {name: message[name] for name in ("tool_calls", "tool_call_id") if name in message}
    return (content, extra) if extra else content


class Exchange:
    """One request and the means to answer it well or badly."""

    def __init__(self, handler: "_Handler", received: Received) -> None:
        self._handler = handler
        self.received = received
        self.server = handler.server.owner  # type: ignore[attr-defined]
        self.streamed = bool(received.body.get("stream"))
        self.anthropic = received.path.endswith("/messages")

    def send(self, status: int, body: bytes | str, headers: dict[str, str] | None = None) -> None:
        """Send a whole response."""
        data = body.encode() if isinstance(body, str) else body
        self._head(status, {"Content-Type": "application/json", "Content-Length": str(len(data))} | (headers or {}))
        self._handler.wfile.write(data)

    def open(self, content_type: str = "text/event-stream") -> None:
        """Begin a streamed response."""
        self._head(200, {"Content-Type": content_type, "Transfer-Encoding": "chunked"})

    def chunk(self, data: bytes | str) -> None:
        raw = data.encode() if isinstance(data, str) else data
        self._handler.wfile.write(f"{len(raw):x}\r\n".encode() + raw + b"\r\n")
        self._handler.wfile.flush()

    def close(self) -> None:
        """End a streamed response properly."""
        self._handler.wfile.write(b"0\r\n\r\n")

    def event(self, data: dict[str, Any]) -> None:
        name = f"event: {data['type']}\n" if self.anthropic else ""
        self.chunk(f"{name}data: {json.dumps(data)}\n\n")

    def reply(self, pieces: Iterable[str], finish: str = "stop", pause: float = 0.0) -> None:
        """Answer in the protocol and manner of the request."""
        if not self.streamed:
            whole = "".join(pieces)
            self.send(200, json.dumps(_message(whole, finish) if self.anthropic else _completion(whole, finish)))
            return
        self.begin(pieces, pause)
        (self._end_anthropic if self.anthropic else self._end_openai)(finish)
        self.close()

    def begin(self, pieces: Iterable[str], pause: float = 0.0) -> None:
        """Open a streamed answer and send text, but nothing that ends it."""
        self.open()
        if self.anthropic:
            self.event(
                {"type": "message_start", "message": _message("", "stop") | {"content": [], "stop_reason": None}}
            )
            self.event({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}})
        for piece in pieces:
            if self.anthropic:
                delta = {"type": "text_delta", "text": piece}
                self.event({"type": "content_block_delta", "index": 0, "delta": delta})
            else:
                self.event(_chunk({"content": piece}, None))
            self.server.closing.wait(pause)

    def _end_openai(self, finish: str) -> None:
        self.event(_chunk({}, finish))
        if self.received.body.get("stream_options", {}).get("include_usage"):
            self.event(_chunk({}, None) | {"choices": [], "usage": _USAGE})
        self.chunk("data: [DONE]\n\n")

    def _end_anthropic(self, finish: str) -> None:
        self.event({"type": "content_block_stop", "index": 0})
        delta = {"stop_reason": _STOP_REASONS[finish]}
        self.event({"type": "message_delta", "delta": delta, "usage": {"output_tokens": 7}})
        self.event({"type": "message_stop"})

    def _head(self, status: int, headers: dict[str, str]) -> None:
        self._handler.send_response(status)
        for name, value in {**headers, "Connection": "close"}.items():
            self._handler.send_header(name, value)
        self._handler.end_headers()


Behaviour = Callable[[Exchange], None]


def answer(*pieces: str, finish: str = "stop", pause: float = 0.0) -> Behaviour:
    """Answer in these pieces; `pause` seconds after each."""
    return lambda exchange: exchange.reply(pieces or PIECES, finish, pause)


def error(status: int, *, retry_after: str | None = None, body: str | None = None) -> Behaviour:
    """Answer with an HTTP error that quotes the request, as some servers do."""
    headers = {"Retry-After": retry_after} if retry_after is not None else {}
    return lambda exchange: exchange.send(
        status, body or json.dumps({"error": {"message": exchange.received.raw.decode()}}), headers
    )


def hang(exchange: Exchange) -> None:
    """Take the request and say nothing."""
    exchange.server.closing.wait()


def garbage(exchange: Exchange) -> None:
    """Stream what is no JSON."""
    exchange.open()
    exchange.chunk("data: {not json at all\n\n")
    exchange.close()


def binary(exchange: Exchange) -> None:
    """Stream what is no text."""
    exchange.open()
    exchange.chunk(b"data: \xff\xfe\x00\n\n")
    exchange.close()


def web_page(exchange: Exchange) -> None:
    """Answer 200 with a page for people, as a captive portal does."""
    exchange.send(200, "<html>Please log in</html>", {"Content-Type": "text/html"})


def flood(exchange: Exchange) -> None:
    """Send without end, and without a line break."""
    exchange.open()
    while not exchange.server.closing.is_set():
        exchange.chunk(b"x" * 65536)


def cut(exchange: Exchange) -> None:
    """Stream the beginning of an answer and end as if that were all."""
    exchange.begin(PIECES[:2])
    exchange.close()


def broken(exchange: Exchange) -> None:
    """Stream the beginning of an answer and lose the connection."""
    exchange.begin(PIECES[:2])


NAMED: dict[str, Behaviour] = {
    "hang": hang,
    "error-500": error(500),
    "busy": error(429, retry_after="1"),
    "garbage": garbage,
    "blank": answer("  \n"),
    "refusal": answer("I will", finish="content_filter"),
    "truncated": answer("To be contin", finish="length"),
    "slow": answer(*(f"word{number} " for number in range(40)), pause=0.1),
    "cut": cut,
}


@dataclass
class _Script:
    steps: deque[Behaviour] = field(default_factory=deque)
    default: Behaviour = field(default_factory=answer)
    lock: threading.Lock = field(default_factory=threading.Lock)


class ModelServer(LoopbackServer):
    """The server; `requests` are kept in the order of their first bytes."""

    def __init__(self, port: int = 0) -> None:
        super().__init__(_Handler, port)
        self.requests: list[Received] = []
        self._script = _Script()

    def script(self, *steps: Behaviour, default: Behaviour | None = None) -> None:
        """Set what the next requests meet, one step each, and what all others do."""
        self._script.steps.extend(steps)
        self._script.default = default or self._script.default

    def meet(self, received: Received) -> Behaviour:
        """Record a request and choose what it meets."""
        with self._script.lock:
            self.requests.append(received)
            if self._script.steps:
                return self._script.steps.popleft()
        return NAMED.get(received.body.get("model", ""), self._script.default)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def parse_request(self) -> bool:
        self.first_byte = time.time()
        return super().parse_request()

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        received = Received(self.path, {k.lower(): v for k, v in self.headers.items()}, raw, self.first_byte)
        self.close_connection = True
        self.server.owner.meet(received)(Exchange(self, received))  # type: ignore[attr-defined]

    def do_GET(self) -> None:
        known = [asdict(request) | {"raw": request.raw.decode()} for request in self.server.owner.requests]  # type: ignore[attr-defined]
        data = json.dumps(known).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args: Any) -> None:
        """Say nothing."""


_USAGE = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}


def _chunk(delta: dict[str, Any], finish: str | None) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "double-1", "choices": [choice]}


def _completion(text: str, finish: str) -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": finish}
    head = {"id": "c1", "object": "chat.completion", "created": 1, "model": "double-1"}
    return head | {"choices": [choice], "usage": _USAGE}


def _message(text: str, finish: str) -> dict[str, Any]:
    return {
        "id": "m1",
        "type": "message",
        "role": "assistant",
        "model": "double-1",
        "content": [{"type": "text", "text": text}],
        "stop_reason": _STOP_REASONS[finish],
        "stop_sequence": None,
        "usage": {"input_tokens": 11, "output_tokens": 7},
    }


if __name__ == "__main__":
    with ModelServer(int(sys.argv[1]) if len(sys.argv) > 1 else 0) as server:
        print(server.address, flush=True)  # noqa: T201
        threading.Event().wait()
