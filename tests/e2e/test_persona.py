"""The persona is in no byte but its own source: everything that is kept is searched for it."""

import base64
import hashlib
import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from shlex import quote
from urllib.parse import quote as percent

import pytest

from anima.model.reasons import Reason
from anima.model.task import Phase
from tests.doubles.collector import Collector
from tests.doubles.model_server import ModelServer, answer, error
from tests.e2e.place import Place, open_place

pytestmark = [pytest.mark.verify, pytest.mark.timeout(300)]

# Every line has it, so no excerpt of the persona is without.
MARKER = "Quillfeather"
SOUL = "# Quillfeather\n\nQuillfeather is patient.\nQuillfeather never quotes Quillfeather.\n"
BAD_SOULS = {
    "nul": "Quillfeather\0Quillfeather",
    "large": "Quillfeather\n" * 631,
    "blank": " \n",
}
BAD_AGENT = """
apiVersion: anima.dev/v1alpha1
kind: Agent
metadata: {{name: bad}}
spec:
  soul: {soul}
"""
BAD_AGENTS = {
    "unclosed": BAD_AGENT.format(soul='{inline: "Quillfeather'),
    "unknown field": BAD_AGENT.format(soul="{inline: Quillfeather, text: Quillfeather}"),
    "wrong type": BAD_AGENT.format(soul="[Quillfeather]"),
    "no map": BAD_AGENT.format(soul="Quillfeather"),
    "duplicate": BAD_AGENT.format(soul="{inline: Quillfeather, inline: Quillfeather}"),
    "wrong digest": BAD_AGENT.format(soul=f"{{inline: Quillfeather, digest: 'sha256:{'0' * 64}'}}"),
    "both sources": BAD_AGENT.format(soul="{inline: Quillfeather, configMapRef: {name: a, key: b}}"),
}
BAD_TASKS = ["{}", '{"spec": {"type": 1}}', '{"spec": {"type": "ai", "agentRef": {"name": "inline"}, "what": []}}', "7"]


class Haystack:
    """Everything that was seen or is kept, by where."""

    def __init__(self) -> None:
        self.found: list[tuple[str, bytes]] = []

    def add(self, where: str, content: bytes | str) -> None:
        self.found.append((where, content.encode() if isinstance(content, str) else content))

    def add_files(self, root: Path, without: str) -> None:
        for path in sorted(root.rglob("*")):
            if path.is_file() and not path.name.startswith(without):
                self.add(str(path.relative_to(root)), path.read_bytes())

    def with_persona(self) -> list[str]:
        """Return where the persona is, in any form that programs write it in."""
        return [where for where, content in self.found if any(form in content.lower() for form in FORMS)]


def _forms() -> Iterator[bytes]:
    raw = MARKER.encode()
    yield raw
    yield raw.hex().encode()
    yield raw.decode().encode("utf-16-le")
    yield percent(raw).encode()
    # The middle of the text in base64, at each of the three alignments.
    for shift in range(3):
        yield base64.b64encode(b"\0" * shift + raw)[4:-4]


FORMS = [form.lower() for form in _forms()]


async def test_the_persona_is_in_no_byte_outside_its_source(tmp_path: Path) -> None:
    seen = Haystack()
    with Collector() as collector, ModelServer() as model:
        async with open_place(tmp_path, collector.environ) as place:
            await _live(place, model, seen)
            await _look_at_temporal(place, seen)
            await _look_at_gateway(place, seen)
        seen.add("what the stack said", "\n".join(place.said))
        assert set(collector.services.values()) == {"anima-orchestrator", "anima-gateway", "anima-ai"}
        for body in collector.bodies:
            seen.add("telemetry", body)
        received = [request.system or "" for request in model.requests]

    # What is searched for was really there, and reached the model whole.
    assert received
    assert all(SOUL in text for text in received)
    seen.add_files(place.home.root, without="anima.db")
    sources = [where for where, row in _rows(place.home.database) if MARKER.encode() in row]
    assert set(sources) == {"resources Agent", "resources ConfigMap"}
    for where, row in _rows(place.home.database):
        if where not in sources:
            seen.add(where, row)
    assert len(seen.found) > 50
    assert seen.with_persona() == []


async def _live(place: Place, model: ModelServer, seen: Haystack) -> None:
    """Let everything happen that could let the persona slip."""
    await place.apply("Provider", "double", {"type": "openai-compatible", "baseURL": f"{model.address}/v1"})
    command = {"providerRef": {"name": "double"}, "model": {"name": "double-1"}}
    await place.apply("Agent", "inline", {"soul": {"inline": SOUL}, **command})
    soul = place.directory / "SOUL.md"
    soul.write_text(SOUL)
    published = await place.shell(f"anima soul publish {quote(str(soul))} --name keeper -o json")
    seen.add("soul publish", published)
    await place.apply("Agent", "mapped", {**json.loads(published), **command})

    await _talk(place, model, seen)
    for agent in ("inline", "mapped"):
        # The error quotes the whole request, as some servers do.
        model.script(error(500), answer("To be", finish="length"), answer("Fine."))
        handle = await place.submit(agent, f"{agent}-succeeds")
        assert (await place.end(handle)).total_attempts == 2
        model.script(answer("I will", finish="content_filter"))
        ended = await place.end(await place.submit(agent, f"{agent}-refused"))
        assert ended.reason is Reason.ANSWER_REFUSED
        model.script(answer("To be", finish="length"))
        policy = {"maxRetries": 1, "initialDelay": "2s"}
        handle = await place.submit(agent, f"{agent}-drifts", retryPolicy=policy)
        await place.shown(handle, Phase.WAITING)
        await place.apply("Agent", agent, {"soul": {"inline": f"{SOUL}Quillfeather changes.\n"}, **command})
        assert (await place.end(handle)).reason is Reason.SOUL_DRIFT
        seen.add("soul show", await place.shell(f"anima soul show {agent}"))
    await _refusals(place, seen)


async def _talk(place: Place, model: ModelServer, seen: Haystack) -> None:
    """Let a Session and a conversation be pinned to the soul, shown, explained and refused to another."""
    for name in ("first", "second"):
        model.script(answer("Fine."))
        await place.end(await place.submit("inline", f"talk-{name}", sessionRef={"name": "talk"}))
    refused = await place.end(await place.submit("mapped", "talk-refused", sessionRef={"name": "talk"}))
    assert refused.reason is Reason.SESSION_SOUL_MISMATCH
    model.script(answer("Hello."), answer("Hello again."))
    chat = "anima chat dialogue --agent inline --message 'Hello?' --message 'And now?' 2>&1"
    seen.add("chat", await place.shell(chat))
    other = await place.shell("anima chat dialogue --agent mapped --message 'Hello?' 2>&1; :")
    assert Reason.SESSION_SOUL_MISMATCH in other
    seen.add("chat of another", other)
    for session in ("talk", "dialogue"):
        for verb in ("show", "why", "export"):
            seen.add(f"session {verb}", await place.shell(f"anima session {verb} {session} 2>&1"))
    for command in ("sessions", "sessions -o json", "souls in-use", "souls in-use -o json"):
        seen.add(command, await place.shell(f"anima {command} 2>&1"))


async def _refusals(place: Place, seen: Haystack) -> None:
    file = place.directory / "bad.yaml"
    for what, text in BAD_AGENTS.items():
        file.write_text(text)
        for form in ("table", "json"):
            seen.add(
                f"apply {what}", await place.shell(f"anima apply -f {quote(str(file))} -o {form} 2>&1 && exit 1; :")
            )
    for what, text in BAD_SOULS.items():
        file.write_text(text)
        for verb in ("check", "digest", "publish --name bad"):
            verb, _, option = verb.partition(" ")
            done = await place.shell(f"anima soul {verb} {quote(str(file))} {option} 2>&1; :")
            seen.add(f"soul {verb} {what}", done)
    for number, text in enumerate(BAD_TASKS):
        name = f"bad-{number}"
        start = f"temporal workflow start --type Task --task-queue anima --workflow-id task/default/{name}"
        await place.shell(f"{start} --input {quote(text)}")
        assert (await place.end(place.client.handle("default", name))).reason is Reason.TASK_INVALID


async def _look_at_temporal(place: Place, seen: Haystack) -> None:
    async for execution in place.temporal.list_workflows():
        seen.add(f"list {execution.id}", execution.raw_info.SerializeToString())
        handle = place.temporal.get_workflow_handle(execution.id, run_id=execution.run_id)
        description = await handle.describe()
        seen.add(f"describe {execution.id}", description.raw_description.SerializeToString())
        seen.add(f"status {execution.id}", json.dumps(await handle.query("status")))
        history = await handle.fetch_history()
        seen.add(f"history {execution.id}", history.to_json())
        for event in history.events:
            seen.add(f"event of {execution.id}", event.SerializeToString())


async def _look_at_gateway(place: Place, seen: Haystack) -> None:
    for status in await place.gateway.tasks():
        seen.add(f"record of {status.name}", status.model_dump_json())
        seen.add(f"events of {status.name}", (await place.gateway.events("default", status.name)).model_dump_json())
        for command in ("status", "logs"):
            output = await place.shell(f"anima {command} {status.name} -o json 2>&1; :")
            seen.add(f"{command} of {status.name}", output)
        if status.result_ref is not None:
            result = await place.gateway.result("default", status.name)
            seen.add(f"result of {status.name}", result)
            assert f"sha256:{hashlib.sha256(result).hexdigest()}" == status.result_ref.digest
    for command in ("tasks", "describe agent inline -o json", "get agents", "get configmaps"):
        output = await place.shell(f"anima {command} 2>&1; :")
        if not command.startswith("describe"):
            seen.add(command, output)


def _rows(database: Path) -> Iterator[tuple[str, bytes]]:
    """Yield every row of every table, with its table, and of resources their kind."""
    with closing(sqlite3.connect(f"file:{percent(str(database))}?mode=ro", uri=True)) as connection:
        for (table,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            for row in connection.execute(f'SELECT * FROM "{table}"'):
                where = f"{table} {row[0]}" if table == "resources" else table
                yield where, b"\n".join(field if isinstance(field, bytes) else str(field).encode() for field in row)
