"""Where a Task to submit comes from: a prompt, a file, or an earlier Task."""

import secrets
import sys
from dataclasses import asdict, dataclass
from typing import Any

from anima.gateway import Gateway
from anima.manifests import STDIN, load_manifests
from anima.model.errors import Refusal
from anima.model.manifest import KINDS, parse_task
from anima.model.names import MAX_LABEL
from anima.model.reasons import Reason
from anima.model.resources import DEFAULT_NAMESPACE
from anima.model.task import MAX_SPEC_BYTES, Task, TaskStatus


@dataclass(frozen=True, slots=True)
class Since:
    """One identity of the Agent: when the earlier Task was bound, and now."""

    what: str
    then: str
    now: str

    def __str__(self) -> str:
        return f"{self.what}: {self.then}" + (" (unchanged)" if self.then == self.now else f" -> {self.now}")

    def to_json(self) -> dict[str, Any]:
        """Return plain data, with whether it changed."""
        return {**asdict(self), "changed": self.then != self.now}


def task_from_prompt(agent: str, prompt: str, namespace: str | None, name: str | None) -> Task:
    """Make a Task of a prompt; ``-`` reads it from standard input.

    Raises:
        Refusal: `TaskInvalid` if it is blank, too long or not text.
    """
    chosen = name or _made_up(agent)
    text = _read_prompt() if prompt == STDIN else prompt
    spec = {"type": "ai", "agentRef": {"name": agent}, "prompt": text}
    return parse_task({"spec": spec}, namespace or DEFAULT_NAMESPACE, chosen)


def task_from_file(file: str, namespace: str | None, name: str | None) -> Task:
    """Read the one Task of a file.

    Raises:
        NotFound: there is no such file.
        Refusal: it is not valid, or is not one Task and nothing else.
    """
    found = load_manifests([file], sys.stdin.buffer, namespace)
    if len(found) != 1 or not isinstance(found[0], Task):
        kinds = ", ".join(item.kind for item in found) or "nothing"
        raise Refusal(Reason.TASK_INVALID, f"{file} must hold one Task but holds {kinds}; `anima apply` takes them all")
    return renamed(found[0], name) if name else found[0]


def renamed(task: Task, name: str | None) -> Task:
    """Return a new Task with the same spec under another name, made up if not given."""
    kind = KINDS["Task"]
    body = {"apiVersion": kind.api_version, "kind": kind.name, "spec": task.spec.to_json()}
    return parse_task(body, task.namespace, name or _made_up(task.name))


async def changes_since(status: TaskStatus, gateway: Gateway, agent: str) -> list[Since]:
    """Compare what an earlier Task was bound to with what its Agent is now.

    Raises:
        NotFound: the Agent is gone.
        Refusal: its soul or role cannot be composed now.
    """
    bound = status.soul_binding
    if bound is None:
        return []
    now = await gateway.prompt(status.namespace, agent)
    return [
        Since("Agent uid", bound.agent_uid, now["agentUid"]),
        Since("Agent generation", str(bound.agent_generation), str(now["agentGeneration"])),
        Since("soul digest", bound.soul_digest, now.get("soulDigest", "none")),
        Since("prompt digest", bound.prompt_digest, now["promptDigest"]),
    ]


def _made_up(base: str) -> str:
    suffix = f"-{secrets.token_hex(3)}"
    return base[: MAX_LABEL - len(suffix)].rstrip("-") + suffix


def _read_prompt() -> str:
    data = sys.stdin.buffer.read(MAX_SPEC_BYTES + 1)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise Refusal(Reason.TASK_INVALID, f"the prompt is not UTF-8 at byte {error.start}") from None
