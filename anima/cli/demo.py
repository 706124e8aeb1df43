"""The demonstration: one real Task, from its Agent to its answer."""

import os
import secrets
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from urllib.parse import quote

import typer

import anima
from anima.cli.output import printable
from anima.cli.progress import Progress
from anima.client import AnimaClient
from anima.gateway import Gateway
from anima.handle import TaskHandle
from anima.home import Home
from anima.keys import load
from anima.manifests import load_manifests
from anima.model.attempts import ProgressEvent
from anima.model.names import workflow_id
from anima.model.persona import SensitiveText
from anima.model.provider import Provider, ProviderSpec, ProviderType
from anima.model.resources import KeyReference, ObjectMeta, Reference, Resource, Secret
from anima.model.task import Phase, RetryPolicy, Task, TaskSpec, TaskStatus
from anima.stack import Addresses

AGENT = "reviewer"
PROVIDER = "reviewer-model"
PROMPT = """Name one bug in this Python function, in one sentence:

def average(numbers):
    return sum(numbers) / len(numbers)
"""
# A very small model sometimes rambles until it is cut off.
_RETRIES = RetryPolicy(max_retries=3, initial_delay=timedelta(seconds=1))
_KEYS: Mapping[str, tuple[ProviderType, str]] = {
    "ANTHROPIC_API_KEY": ("anthropic", "claude-haiku-5-5"),
    "OPENAI_API_KEY": ("openai", "gpt-5.4-mini"),
}


@dataclass(frozen=True, slots=True)
class Choice:
    """The Provider that answers, the Secret with its key, and why this one."""

    provider: Provider
    secret: Secret | None
    because: str


def choose(environ: Mapping[str, str], *, small_model: bool) -> Choice:
    """Choose a Provider: a key that is set, else the small model, else a rehearsal."""
    for variable, (kind, model) in _KEYS.items():
        if key := environ.get(variable):
            name = variable.lower().replace("_", "-")
            secret = Secret(
                api_version="v1", kind="Secret", metadata=_meta(name), string_data={"key": SensitiveText(key)}
            )
            spec = ProviderSpec(type=kind, default_model=model, secret_ref=KeyReference(name=name, key="key"))
            return Choice(_provider(spec), secret, f"{kind}, model {model}, because {variable} is set")
    unset = f"{' and '.join(_KEYS)} are not set"
    if small_model:
        return Choice(_provider(ProviderSpec(type="local")), None, f"the small model on this CPU, because {unset}")
    return Choice(
        _provider(ProviderSpec(type="rehearsal")),
        None,
        f"a rehearsal, NOT a model, because {unset} and the small model does not run here",
    )


async def demonstrate(home: Home, addresses: Addresses) -> bool:
    """Apply the example, run a Task on it, and show what became of it.

    Returns:
        Whether the Task succeeded.
    """
    choice = choose(os.environ, small_model=addresses.model is not None)
    async with Gateway(addresses.gateway, load(home.user_token)) as gateway:
        typer.echo(f"\nProvider: {choice.because}.")
        for resource in _resources(choice):
            applied = await gateway.apply(resource)
            typer.echo(f"{resource.kind} {resource.name} {applied.change}")
        name = f"demo-{secrets.token_hex(4)}"
        client = await AnimaClient.connect(addresses.temporal, addresses.namespace, gateway)
        handle = await client.submit(_task(name))
        typer.echo(f"Task {name} submitted\n")
        progress = _Answering(handle, gateway)
        status = await progress.until_ended()
        await _show_answer(gateway, status, progress.answer)
    _show_facts(addresses, status)
    return status.phase is Phase.SUCCEEDED


class _Answering(Progress):
    """Shows the answer, too, while it comes."""

    def __init__(self, handle: TaskHandle, gateway: Gateway) -> None:
        super().__init__(handle, gateway)
        self.answer = ""
        """What has been shown of the latest answer."""
        self._within_answer = False

    def show(self, event: ProgressEvent) -> None:
        """Print more of the answer, or another step of the worker."""
        if event.kind == "text":
            delta = str(event.data.get("delta", ""))
            typer.echo(("" if self._within_answer else "\n") + printable(delta), nl=False)
            self.answer += delta
            self._within_answer = True
        else:
            self.answer = ""
            super().show(event)

    def tell(self, line: str) -> None:
        """Print a line below what has been shown of an answer."""
        if self._within_answer:
            typer.echo("\n")
        self._within_answer = False
        super().tell(line)


async def _show_answer(gateway: Gateway, status: TaskStatus, shown: str) -> None:
    if status.phase is not Phase.SUCCEEDED:
        remedy = status.reason.remedy if status.reason else ""
        return typer.echo(f"\n{status.reason}: {printable(status.message)}. {remedy}\n")
    answer = (await gateway.result(status.namespace, status.name)).decode()
    typer.echo("" if answer == shown else f"\n{printable(answer)}\n")


def _show_facts(addresses: Addresses, status: TaskStatus) -> None:
    page = quote(workflow_id(status.namespace, status.name), safe="")
    if status.soul_binding is not None:
        typer.echo(f"Soul      {status.soul_binding.soul_digest}")
    typer.echo(f"Attempt   {status.attempt}, {_duration(status)}")
    typer.echo(f"Temporal  {addresses.ui}/namespaces/{addresses.namespace}/workflows/{page}")


def _duration(status: TaskStatus) -> str:
    if status.start_time is None or status.completion_time is None:
        return "no Job was started"
    return f"{(status.completion_time - status.start_time).total_seconds():.1f} s"


def _resources(choice: Choice) -> list[Resource]:
    example = [item for item in load_manifests([str(_example())], sys.stdin.buffer) if item.kind != "Provider"]
    found = [*([choice.secret] if choice.secret else []), choice.provider, *example]
    # The Agent last: it refers to the others.
    return sorted(found, key=lambda item: item.kind == "Agent")


def _example() -> Path:
    package = Path(anima.__file__).parent
    installed = package / "examples" / AGENT
    return installed if installed.is_dir() else package.parent / "examples" / AGENT


def _task(name: str) -> Task:
    return Task(
        api_version="anima.dev/v1alpha1",
        kind="Task",
        metadata=_meta(name),
        spec=TaskSpec(type="ai", agent_ref=Reference(name=AGENT), prompt=PROMPT, retry_policy=_RETRIES),
    )


def _provider(spec: ProviderSpec) -> Provider:
    return Provider(api_version="anima.dev/v1alpha1", kind="Provider", metadata=_meta(PROVIDER), spec=spec)


def _meta(name: str) -> ObjectMeta:
    return ObjectMeta(name=name)
