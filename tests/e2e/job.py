"""A Job with a program of its own: it bears witness, works, and reports.

Nothing but the standard library, and no site packages: it starts at once.
"""

import argparse
import http.client
import json
import os
import signal
import sys
import time
from urllib.parse import urlsplit

KEY = os.environ["ANIMA_ATTEMPT"]
GATEWAY = urlsplit(os.environ["ANIMA_GATEWAY_URL"])
TOKEN = os.environ["ANIMA_ATTEMPT_TOKEN"]
PATIENCE = 120
PASSING = (408, 425, 429)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("witness")
    parser.add_argument("--die", default="", help="where the first attempt is killed")
    parser.add_argument("--fail", type=int, default=0, help="so many attempts fail")
    parser.add_argument("--hold", default="", help="wait for this file before the report")
    parser.add_argument("--work", type=float, default=0, help="seconds")
    options = parser.parse_args()
    first = KEY.endswith("/1")

    def reached(point: str) -> None:
        if first and options.die == point:
            os.kill(os.getpid(), signal.SIGKILL)

    bear_witness(options.witness)
    reached("started")
    given = json.loads(insist("GET", "input"))
    reached("input")
    insist("POST", "events", {"sequence": 0, "kind": "started", "data": {"attempt": KEY}})
    reached("event")
    time.sleep(options.work)
    while options.hold and not os.path.exists(options.hold):  # noqa: PTH110
        time.sleep(0.05)
    if int(KEY.rsplit("/", 1)[1]) <= options.fail:
        return 1
    report = {"answer": answer(KEY, given["userPrompt"])}
    if options.die == "report":
        send("POST", "report", report)
        reached("report")
    insist("POST", "report", report)
    return 0


def answer(key: str, prompt: str) -> str:
    """Return what the Job of this attempt answers."""
    return f"{key} was asked: {prompt}"


def bear_witness(path: str) -> None:
    witness = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(witness, f"{KEY} {os.getpid()}\n".encode())
    os.close(witness)


def insist(method: str, route: str, body: object = None) -> bytes:
    """Ask until there is an answer that counts, as the built-in worker does."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        try:
            response = send(method, route, body).getresponse()
            content = response.read()
        except (OSError, http.client.HTTPException):
            time.sleep(0.1)
            continue
        if response.status < 300:
            return content
        if response.status < 500 and response.status not in PASSING:
            sys.exit(75)
        time.sleep(0.1)
    sys.exit(75)


def send(method: str, route: str, body: object = None) -> http.client.HTTPConnection:
    connection = http.client.HTTPConnection(GATEWAY.hostname, GATEWAY.port, timeout=30)
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
    content = None if body is None else json.dumps(body).encode()
    connection.request(method, f"/v1/attempts/{KEY}/{route}", content, headers)
    return connection


if __name__ == "__main__":
    sys.exit(main())
