"""The gateway's attempt routes over real HTTP, for one attempt at a time."""

import json
import threading
from collections import deque
from http.server import BaseHTTPRequestHandler
from typing import Any

from anima.model.attempts import (
    AttemptInput,
    AttemptKey,
    ProgressEvent,
    ProviderSettings,
    Report,
    TranscriptReference,
)
from anima.model.composition import ENVELOPE_VERSION
from anima.model.digests import digest_bytes
from anima.model.transcript import Transcript
from anima.model.wire import BINDING_SCHEMA, JobVariable
from tests.doubles.loopback import LoopbackServer

TOKEN = "token-for-this-attempt"
PROVIDER_KEY = "sk-key-of-the-provider"
KEY = AttemptKey(task_uid="0b5e-task", iteration=0, attempt=2)


class AttemptGatewayDouble(LoopbackServer):
    """Serves one input, keeps events and reports.

    `faults` holds, by route (`input`, `events`, `report`), the statuses to answer
    before all is well; 0 drops the connection without an answer.
    """

    def __init__(self) -> None:
        super().__init__(_Handler)
        self.input: dict[str, Any] = {}
        self.events: list[ProgressEvent] = []
        self.reports: list[Report] = []
        self.calls: list[str] = []
        self.traces: set[str | None] = set()
        """The `traceparent` headers of all calls."""
        self.faults: dict[str, deque[int]] = {"input": deque(), "events": deque(), "report": deque()}
        self.over = threading.Event()
        """When set, every route answers 410."""

    @property
    def report(self) -> Report:
        """The one accepted report."""
        (report,) = self.reports
        return report

    @property
    def streamed(self) -> str:
        """The text of the events since the last retry."""
        text = ""
        for event in self.events:
            text = "" if event.kind == "retry" else text + str(event.data.get("delta", ""))
        return text

    def job(
        self,
        system_prompt: str,
        user_prompt: str,
        *,
        provider: str = "openai-compatible",
        base_url: str | None = None,
        model: str = "double-1",
        temperature: float | None = None,
        max_tokens: int | None = None,
        transcript: Transcript | None = None,
    ) -> dict[str, str]:
        """Set the attempt's input and return the environment of its Job."""
        digest = digest_bytes(system_prompt.encode())
        settings = ProviderSettings.model_validate(
            {"type": provider, "baseURL": base_url, "model": model, "temperature": temperature, "maxTokens": max_tokens}
        )
        given = AttemptInput(
            namespace="default",
            task="greeting",
            key=KEY,
            user_prompt=user_prompt,
            user_prompt_digest=digest_bytes(user_prompt.encode()),
            system_prompt_digest=digest,
            envelope_version=ENVELOPE_VERSION,
            provider=settings,
            transcript_ref=None if transcript is None else _reference(transcript),
            transcript=transcript,
        )
        self.input = given.to_json()
        return {
            JobVariable.GATEWAY: self.address,
            JobVariable.ATTEMPT: KEY.path,
            JobVariable.TOKEN: TOKEN,
            JobVariable.SYSTEM_PROMPT: system_prompt,
            JobVariable.PROMPT_DIGEST: digest,
            JobVariable.ENVELOPE_VERSION: str(ENVELOPE_VERSION),
            JobVariable.BINDING_SCHEMA: BINDING_SCHEMA,
            JobVariable.PROVIDER_KEY: PROVIDER_KEY,
        }


def _reference(transcript: Transcript) -> TranscriptReference:
    return TranscriptReference(
        session="harbour",
        session_uid="5e55-session",
        through=9,
        messages=9,
        budget=4096,
        digest=transcript.digest,
    )


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    @property
    def owner(self) -> AttemptGatewayDouble:
        owner: AttemptGatewayDouble = self.server.owner  # type: ignore[attr-defined]
        return owner

    def do_GET(self) -> None:
        self._serve(b"")

    def do_POST(self) -> None:
        self._serve(self.rfile.read(int(self.headers.get("Content-Length", 0))))

    def _serve(self, body: bytes) -> None:
        route = self.path.rpartition("/")[2]
        self.owner.calls.append(route)
        self.owner.traces.add(self.headers.get("traceparent"))
        if self.owner.over.is_set():
            return self._answer(410, b"{}")
        if self.headers.get("Authorization") != f"Bearer {TOKEN}" or not self.path.startswith(
            f"/v1/attempts/{KEY.path}/"
        ):
            return self._answer(401, b"{}")
        if self.owner.faults[route]:
            return self._fail(self.owner.faults[route].popleft())
        return self._answer(200, self._good(route, body))

    def _good(self, route: str, body: bytes) -> bytes:
        match route:
            case "input":
                return json.dumps(self.owner.input).encode()
            case "events":
                event = ProgressEvent.model_validate_json(body)
                if event.sequence not in {known.sequence for known in self.owner.events}:
                    self.owner.events.append(event)
            case "report":
                self.owner.reports.append(Report.model_validate_json(body))
        return b"{}"

    def _fail(self, status: int) -> None:
        if status == 0:
            self.close_connection = True
        else:
            self._answer(status, b"{}")

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        """Say nothing."""
