"""Where a Task to submit comes from: a prompt, a file, or an earlier Task."""

import secrets
import sys
from dataclasses import asdict, dataclass
from typing import Any

from anima.gateway import Gateway
from anima.manifests import STDIN, load_manifests
from anima.model.api import RecordedSpec
from anima.model.errors import Refusal
from anima.model.inputs import inputs_digest
from anima.model.manifest import parse_task
from anima.model.names import MAX_LABEL
from anima.model.reasons import Reason
from anima.model.resources import DEFAULT_NAMESPACE
from anima.model.task import MAX_SPEC_BYTES, Task, TaskSpec


@dataclass(frozen=True, slots=True)
class Since:
    """One identity: when the earlier Task was submitted or bound, and now."""

    what: str
    then: str
    now: str

    def __str__(self) -> str:
        return f"{self.what}: {self.then}" + (" (unchanged)" if self.then == self.now else f" -> {self.now}")

    def to_json(self) -> dict[str, Any]:
        """Return plain data, with whether it changed."""
        return {**asdict(self), "changed": self.then != self.now}


def task_from_prompt(
    agent: str,
    prompt: str,
    namespace: str | None,
    name: str | None,
    session: str | None = None,
    *,
    append: bool = True,
) -> Task:
    """Make a Task of a prompt; ``-`` reads it from standard input.

    Args:
        agent: the Agent's name.
        prompt: the user's words.
        namespace: of the Task; none for the default one.
        name: of the Task; made up if none.
        session: the Session that it continues, if any.
        append: it adds its turn to the Session.

    Raises:
        Refusal: `TaskInvalid` if it is blank, too long or not text.
    """
    chosen = name or made_up(agent)
    text = _read_prompt() if prompt == STDIN else prompt
    spec: dict[str, Any] = {"type": "ai", "agentRef": {"name": agent}, "prompt": text}
    if session is not None:
        spec["sessionRef"] = {"name": session, "append": append}
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
    return named(found[0].spec, found[0].namespace, name) if name else found[0]


def named(spec: TaskSpec, namespace: str, name: str) -> Task:
    """Return the Task of a spec under a name."""
    return parse_task({"spec": spec.to_json()}, namespace, name)


async def changes_since(recorded: RecordedSpec, gateway: Gateway, namespace: str) -> list[Since]:
    """Compare an earlier Task with its spec and its Agent now.

    Raises:
        NotFound: the Agent is gone.
        Refusal: its soul or role cannot be composed now.
    """
    spec, bound = recorded.spec, recorded.binding
    changes = [Since("spec digest", recorded.submitted_digest, recorded.digest)]
    if bound is None:
        return changes
    now = await gateway.prompt(namespace, spec.agent_ref.name)
    changes += [
        Since("inputs digest", bound.inputs_digest, inputs_digest(spec, bound.inputs_version)),
        Since("Agent uid", bound.agent_uid, now["agentUid"]),
        Since("Agent generation", str(bound.agent_generation), str(now["agentGeneration"])),
        Since("soul digest", bound.soul_digest, now.get("soulDigest", "none")),
    ]
    if spec.ai.system_prompt is None:
        # The Agent's prompt is composed with the Agent's own role.
        changes.append(Since("prompt digest", bound.prompt_digest, now["promptDigest"]))
    return changes


def made_up(base: str) -> str:
    """Make a name up that begins with another."""
    suffix = f"-{secrets.token_hex(3)}"
    return base[: MAX_LABEL - len(suffix)].rstrip("-") + suffix


def _read_prompt() -> str:
    data = sys.stdin.buffer.read(MAX_SPEC_BYTES + 1)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise Refusal(Reason.TASK_INVALID, f"the prompt is not UTF-8 at byte {error.start}") from None
