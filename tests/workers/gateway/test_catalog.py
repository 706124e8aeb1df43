"""Catalog routes: what is stored, what is shown again, and how bad input is told."""

import json
from typing import Any

import httpx2
import pytest

from anima.gateway import Gateway
from anima.model.digests import digest_bytes
from anima.model.errors import Unavailable
from anima.model.manifest import KINDS, parse_resource
from anima.stores.sql import SqlCatalog
from workers.gateway.catalog import MAX_RESOURCE_BYTES

SOUL = "You are Marigold, a lighthouse keeper who trusts nobody."
PATH = "/v1/namespaces/default/agents/reviewer"
DIGEST = "sha256:" + "0" * 64


def agent(soul: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "anima.dev/v1alpha1",
        "kind": "Agent",
        "metadata": {"name": "reviewer"},
        "spec": {"soul": soul or {"inline": SOUL}} | spec,
    }


def config_map(data: dict[str, str]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "texts"}, "data": data}


SECRET = {
    "apiVersion": "v1",
    "kind": "Secret",
    "metadata": {"name": "key"},
    "stringData": {"api-key": "sk-hidden", "other": "sk-hidden-too"},
}


async def test_an_object_is_created_configured_and_left_unchanged(user: httpx2.AsyncClient) -> None:
    answers = [await user.put(PATH, json=agent(**spec)) for spec in ({}, {}, {"model": {"name": "m"}})]
    assert [answer.status_code for answer in answers] == [201, 200, 200]
    assert [answer.json()["change"] for answer in answers] == ["created", "unchanged", "configured"]
    metadata = [answer.json()["resource"]["metadata"] for answer in answers]
    assert [item["generation"] for item in metadata] == [1, 1, 2]
    assert len({item["uid"] for item in metadata}) == 1


async def test_what_was_read_can_be_applied_again(user: httpx2.AsyncClient) -> None:
    await user.put(PATH, json=agent())
    again = await user.put(PATH, json=(await user.get(PATH)).json())
    assert again.json()["change"] == "unchanged"


async def test_an_agent_whose_sources_are_missing_is_accepted_and_not_ready(user: httpx2.AsyncClient) -> None:
    source = {"configMapRef": {"name": "souls", "key": "SOUL.md"}, "digest": DIGEST}
    answer = await user.put(PATH, json=agent(source))
    assert answer.status_code == 201
    for body in (
        answer.json()["resource"],
        (await user.get(PATH)).json(),
        (await user.get("/v1/agents")).json()["items"][0],
    ):
        (condition,) = body["status"]["conditions"]
        assert (condition["type"], condition["status"]) == ("Ready", "False")
        assert condition["reason"] == "SoulSourceMissing"


async def test_a_dry_run_validates_and_writes_nothing(user: httpx2.AsyncClient) -> None:
    answer = await user.put(PATH, params={"dryRun": "true"}, json=agent())
    assert (answer.status_code, answer.json()["change"]) == (200, "validated")
    assert (await user.get(PATH)).status_code == 404
    refused = await user.put(PATH, params={"dryRun": "true"}, json=agent({"inline": " "}))
    assert refused.status_code == 422


async def test_a_dry_run_is_refused_for_what_is_stored(user: httpx2.AsyncClient) -> None:
    path = "/v1/namespaces/default/configmaps/texts"
    frozen = config_map({"SOUL.md": "one"}) | {"immutable": True}
    stored = (await user.put(path, json=frozen)).json()["resource"]
    stale = frozen["metadata"] | {"resourceVersion": "0"}
    foreign = frozen["metadata"] | {"uid": "another"}
    for change in ({"data": {"SOUL.md": "two"}}, {"metadata": stale}, {"metadata": foreign}):
        refused = await user.put(path, params={"dryRun": "true"}, json=frozen | change)
        assert (refused.status_code, refused.json()["error"]["reason"]) == (409, "Conflict")
    assert (await user.put(path, params={"dryRun": "true"}, json=stored)).status_code == 200


async def test_the_client_applies_describes_lists_and_deletes(gateway: Gateway) -> None:
    kind = KINDS["Agent"]
    ready, broken = (
        parse_resource(agent(soul)) for soul in (None, {"configMapRef": {"name": "s", "key": "k"}, "digest": DIGEST})
    )
    assert (await gateway.apply(ready, dry_run=True)).change == "validated"
    applied = await gateway.apply(ready)
    assert (applied.change, applied.resource["metadata"]["generation"]) == ("created", 1)
    described = await gateway.describe(kind, "default", "reviewer")
    assert described["prompt"]["soulDigest"] == digest_bytes(SOUL.encode())
    assert SOUL in (await gateway.prompt("default", "reviewer", text=True))["text"]
    await gateway.apply(broken)
    described = await gateway.describe(kind, "default", "reviewer")
    assert "prompt" not in described
    assert described["status"]["conditions"][0]["reason"] == "SoulSourceMissing"
    assert [item["metadata"]["name"] for item in await gateway.list(kind, "default")] == ["reviewer"]
    await gateway.delete(kind, "default", "reviewer", uid=described["metadata"]["uid"])
    assert await gateway.list(kind) == []


async def test_lists_are_by_namespace_or_over_all(user: httpx2.AsyncClient) -> None:
    await user.put("/v1/namespaces/default/configmaps/texts", json=config_map({}))
    await user.put("/v1/namespaces/other/configmaps/texts", json=config_map({}))
    everywhere = (await user.get("/v1/configmaps")).json()["items"]
    assert [item["metadata"]["namespace"] for item in everywhere] == ["default", "other"]
    assert len((await user.get("/v1/namespaces/other/configmaps")).json()["items"]) == 1
    assert (await user.get("/v1/namespaces/none/configmaps")).json() == {"items": []}


async def test_a_secret_shows_only_the_names_of_its_keys(user: httpx2.AsyncClient, catalog: SqlCatalog) -> None:
    path = "/v1/namespaces/default/secrets/key"
    answers = [
        await user.put(path, params={"dryRun": "true"}, json=SECRET),
        await user.put(path, json=SECRET),
        await user.put(path, json=SECRET),
        await user.put(path, json=SECRET | {"metadata": {"name": "key", "uid": "another"}}),
        await user.put(path, json=SECRET | {"typ": "Opaque"}),
        await user.get(path),
        await user.get("/v1/secrets"),
        await user.get("/v1/namespaces/default/secrets"),
    ]
    assert [answer.status_code for answer in answers] == [200, 201, 200, 409, 422, 200, 200, 200]
    assert not [answer for answer in answers if "sk-hidden" in answer.text]
    assert answers[5].json()["keys"] == ["api-key", "other"]
    assert (await user.delete(path)).status_code == 204


async def test_only_the_object_that_is_meant_is_deleted(user: httpx2.AsyncClient) -> None:
    uid = (await user.put(PATH, json=agent())).json()["resource"]["metadata"]["uid"]
    assert (await user.delete(PATH, params={"uid": "another"})).status_code == 409
    assert (await user.delete(PATH, params={"uid": uid})).status_code == 204
    answer = await user.delete(PATH)
    assert (answer.status_code, answer.json()["error"]["reason"]) == (404, "NotFound")


async def test_a_stale_write_is_a_conflict(user: httpx2.AsyncClient) -> None:
    stale = (await user.put(PATH, json=agent())).json()["resource"]
    await user.put(PATH, json=agent(model={"name": "m"}))
    answer = await user.put(PATH, json=stale)
    assert (answer.status_code, answer.json()["error"]["reason"]) == (409, "Conflict")


async def test_a_preview_gives_digests_and_sizes_and_the_text_only_on_request(user: httpx2.AsyncClient) -> None:
    await user.put(PATH, json=agent(systemPrompt={"inline": "Review."}))
    preview = await user.get(f"{PATH}/prompt")
    assert SOUL not in preview.text
    assert (preview.json()["roleBytes"], preview.json()["soulBytes"]) == (len("Review."), len(SOUL))
    assert {item["path"] for item in preview.json()["deliveries"]} >= {"ai", "codex"}
    assert SOUL in (await user.get(f"{PATH}/prompt", params={"text": "true"})).json()["text"]


async def test_a_text_of_any_unicode_comes_back_as_it_was(user: httpx2.AsyncClient) -> None:
    text = "\ufeff$(HOME) $$ {{x}} @file\r\n  é漢🙂\u2028 end \n"
    await user.put("/v1/namespaces/default/configmaps/texts", json=config_map({"SOUL.md": text}))
    assert (await user.get("/v1/namespaces/default/configmaps/texts")).json()["data"] == {"SOUL.md": text}


LONG = SOUL + "x" * (8193 - len(SOUL))
FAULTY_SOULS = {
    "too long": {"inline": LONG},
    "NUL": {"inline": SOUL + "\0"},
    "wrong digest": {"inline": SOUL, "digest": DIGEST},
    "uppercase digest": {"inline": SOUL, "digest": "sha256:" + "A" * 64},
    "two sources": {"inline": SOUL, "configMapRef": {"name": "souls", "key": "SOUL.md"}},
    "lone surrogate": {"inline": SOUL + "\udc00"},
    "a list": {"inline": [SOUL]},
    "a map": {"inline": {"text": SOUL}},
    "an unknown field": {"inline": SOUL, "digset": SOUL},
    "in the place of the source": SOUL,
}


@pytest.mark.parametrize("soul", FAULTY_SOULS.values(), ids=FAULTY_SOULS)
async def test_a_refusal_never_repeats_the_soul(
    user: httpx2.AsyncClient, soul: Any, caplog: pytest.LogCaptureFixture
) -> None:
    answer = await user.put(PATH, content=json.dumps(agent(soul)))
    assert answer.status_code == 422
    assert "Marigold" not in answer.text + caplog.text
    error = answer.json()["error"]
    assert error["remedy"]
    assert error["problems"]
    assert all(problem["path"].startswith("spec.soul") for problem in error["problems"])


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"runtimeRef": {"name": "external"}}, "AgentInvalid"),
        ({"systemPrompt": {"inline": "x" * 112_640}}, "PromptTooLarge"),
        ({"systemPrompt": {"inline": "$" * 56_320}}, "PromptTooLarge"),
    ],
)
async def test_what_can_be_seen_in_an_agent_alone_is_refused(
    user: httpx2.AsyncClient, spec: dict[str, Any], reason: str
) -> None:
    answer = await user.put(PATH, json=agent(**spec))
    assert (answer.status_code, answer.json()["error"]["reason"]) == (422, reason)
    assert (await user.get(PATH)).status_code == 404


async def test_a_soul_of_exactly_the_limit_is_accepted(user: httpx2.AsyncClient) -> None:
    assert (await user.put(PATH, json=agent({"inline": LONG[:-1]}))).status_code == 201


async def test_all_faults_come_at_once_with_path_and_remedy(user: httpx2.AsyncClient) -> None:
    spec = {"modle": {}, "providerRef": {"name": "No Label"}, "model": {"maxTokens": 9007199254740993}}
    error = (await user.put(PATH, json=agent(**spec))).json()["error"]
    assert error["reason"] == "AgentInvalid"
    problems = {problem["path"]: problem for problem in error["problems"]}
    assert problems.keys() == {"spec.modle", "spec.providerRef.name", "spec.model.maxTokens"}
    assert problems["spec.modle"]["remedy"] == "did you mean model?"


async def test_the_body_must_be_what_the_address_says(user: httpx2.AsyncClient) -> None:
    elsewhere = agent() | {"metadata": {"name": "other", "namespace": "elsewhere"}}
    error = (await user.put("/v1/namespaces/default/providers/reviewer", json=elsewhere)).json()["error"]
    assert {problem["path"] for problem in error["problems"]} == {"kind", "metadata.namespace", "metadata.name"}


MALFORMED = {
    "nothing": b"",
    "no JSON": b"kind: Agent",
    "two documents": b"{}{}",
    "invalid UTF-8": b'{"kind": "Agent\xff"}',
    "a list": b"[]",
    "null": b"null",
    "deep nesting": b'{"a":' * 100_000,
    "deep nesting that ends": b'{"kind":"Agent","spec":' + b"[" * 500 + b"]" * 500 + b"}",
    "a field twice": b'{"kind": "Agent", "kind": "Agent"}',
    "not a number": b'{"kind": "Agent", "spec": NaN}',
    "a number of a million digits": b'{"kind": "Agent", "spec": ' + b"9" * 1_000_000 + b"}",
}


@pytest.mark.parametrize("body", MALFORMED.values(), ids=MALFORMED)
async def test_a_malformed_body_is_refused_with_one_short_message(user: httpx2.AsyncClient, body: bytes) -> None:
    answer = await user.put(PATH, content=body)
    assert answer.status_code == 422
    assert 10 < len(answer.json()["error"]["message"]) < 600


@pytest.mark.parametrize(
    "path", ["/v1/namespaces/No/agents/x", "/v1/namespaces/default/agents/a%00b", "/v1/namespaces/default/agents/%ff"]
)
async def test_an_address_with_a_name_that_cannot_be_is_refused(user: httpx2.AsyncClient, path: str) -> None:
    answer = await user.get(path)
    assert answer.status_code == 422
    assert answer.json()["error"]["problems"][0]["message"] == "must be a DNS label"


async def test_a_kind_that_the_catalog_does_not_hold_is_not_found(user: httpx2.AsyncClient) -> None:
    for call in (user.get("/v1/pods"), user.put("/v1/namespaces/default/tasks/x", json={})):
        answer = await call
        assert answer.status_code == 404
        assert "it has agents, providers, configmaps, secrets" in answer.json()["error"]["message"]


async def test_a_body_of_the_limit_is_read_and_one_byte_more_is_not(served: str, user: httpx2.AsyncClient) -> None:
    headers = {"Authorization": user.headers["authorization"]}
    path = "/v1/namespaces/default/configmaps/texts"
    empty = len(json.dumps(config_map({"k": ""})))
    async with httpx2.AsyncClient(base_url=served, headers=headers, trust_env=False) as client:
        for excess, status in ((0, 201), (1, 413), (10_000_000, 413)):
            body = json.dumps(config_map({"k": "x" * (MAX_RESOURCE_BYTES - empty + excess)})).encode()
            announced = await client.put(path, content=body)
            in_chunks = await client.put(path, content=_chunks(body))
            assert (announced.status_code, in_chunks.status_code) == (status, 200 if status == 201 else status)
            if status == 413:
                assert "larger than 2097152 bytes" in in_chunks.json()["error"]["message"]


async def _chunks(body: bytes) -> Any:
    for start in range(0, len(body), 65536):
        yield body[start : start + 65536]


class Quoting(Exception):
    """As a driver's exception may: it quotes what it was given."""


@pytest.mark.parametrize("failure", [Quoting(SOUL), Unavailable("the database is locked")])
async def test_what_fails_inside_never_quotes_the_soul(
    user: httpx2.AsyncClient,
    catalog: SqlCatalog,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    failure: Exception,
) -> None:
    async def fail(*_: object, **__: object) -> None:
        raise failure

    monkeypatch.setattr(catalog, "apply", fail)
    answer = await user.put(PATH, json=agent())
    assert "Marigold" not in answer.text + caplog.text
    error = answer.json()["error"]
    if isinstance(failure, Unavailable):
        assert (answer.status_code, error["message"]) == (503, "the database is locked")
        assert answer.headers["retry-after"]
    else:
        assert (answer.status_code, error["message"]) == (500, "the gateway failed with Quoting")
        assert error["requestId"] == answer.headers["x-request-id"]
        assert f"request {error['requestId']} PUT" in caplog.text
        assert "catalog.py" in caplog.text
