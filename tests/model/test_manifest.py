"""Plain data to resources: envelopes, plain-data rules, and all faults at once."""

import base64
import math
from typing import Any

import pytest

from anima.model.agent import Agent
from anima.model.composition import DELIVERY_LIMITS
from anima.model.digests import digest_bytes
from anima.model.errors import Refusal
from anima.model.manifest import KINDS, parse_resource, parse_task
from anima.model.reasons import Reason
from anima.model.resources import ConfigMap, Secret
from anima.model.task import MAX_SPEC_BYTES

PERSONA = "You are Vesper, a heron who never hurries."


def agent(**spec: Any) -> dict[str, Any]:
    return {"apiVersion": "anima.dev/v1alpha1", "kind": "Agent", "metadata": {"name": "heron"}, "spec": spec}


def task(**spec: Any) -> dict[str, Any]:
    return {"spec": {"type": "ai", "agentRef": {"name": "heron"}, "prompt": "Review it.", **spec}}


def refused(data: Any) -> Refusal:
    with pytest.raises(Refusal) as caught:
        parse_resource(data)
    return caught.value


def refused_task(payload: Any) -> Refusal:
    with pytest.raises(Refusal) as caught:
        parse_task(payload, "default", "review")
    return caught.value


def paths(refusal: Refusal) -> list[str]:
    return [problem.path for problem in refusal.problems]


def test_every_kind_is_parsed_to_its_own_type():
    for kind in KINDS.values():
        spec = {
            "Agent": {"spec": {}},
            "Provider": {"spec": {"type": "local"}},
            "Task": task(),
        }.get(kind.name, {})
        data = {"apiVersion": kind.api_version, "kind": kind.name, "metadata": {"name": "x"}, **spec}
        assert type(parse_resource(data)) is kind.model


def test_the_namespace_given_counts_only_for_a_manifest_without_one():
    data = agent()
    assert parse_resource(data, "birds").namespace == "birds"
    data["metadata"]["namespace"] = "fish"
    assert parse_resource(data, "birds").namespace == "fish"


def test_status_of_a_manifest_that_was_read_before_is_ignored():
    parsed = parse_resource({**agent(), "status": {"conditions": []}})
    assert parsed.name == "heron"


@pytest.mark.parametrize(
    ("given", "remedy"),
    [
        ("agent", "did you mean Agent?"),
        ("Agnet", "did you mean Agent?"),
        ("configmaps", "did you mean ConfigMap?"),
        ("Zebra", "known kinds: Agent, Provider, Task, ConfigMap, Secret"),
        (7, "known kinds: Agent, Provider, Task, ConfigMap, Secret"),
    ],
)
def test_an_unknown_kind_is_refused_with_the_nearest_known(given: Any, remedy: str):
    refusal = refused({**agent(), "kind": given})
    assert refusal.reason is Reason.RESOURCE_INVALID
    assert [(p.path, p.remedy) for p in refusal.problems] == [("kind", remedy)]


def test_a_wrong_version_is_refused_with_the_right_one():
    (problem,) = refused({**agent(), "apiVersion": "anima.dev/v1"}).problems
    assert (problem.path, problem.remedy) == ("apiVersion", "write anima.dev/v1alpha1")


@pytest.mark.parametrize(("data", "what"), [([], "a list"), ("x", "text"), (None, "empty"), (3, "a single value")])
def test_anything_but_a_map_is_refused(data: Any, what: str):
    (problem,) = refused(data).problems
    assert what in problem.message


def test_all_faults_of_all_sorts_are_named_at_once():
    data = agent(sowl=1, model={"maxTokens": 2**53, "temperature": math.nan}, soul={"inline": "a", "digest": "SHA"})
    data["metadata"]["name"] = "Not A Label"
    refusal = refused(data)
    assert refusal.reason is Reason.AGENT_INVALID
    expected = {"spec.sowl", "spec.model.maxTokens", "spec.model.temperature", "spec.soul.digest", "metadata.name"}
    assert set(paths(refusal)) == expected
    assert len(refusal.problems) == len(expected)


def test_a_list_where_a_map_belongs_is_named_by_its_path():
    assert paths(refused(agent(soul=[PERSONA]))) == ["spec.soul"]


def test_keys_that_are_not_text_are_refused_with_their_path():
    refusal = refused(agent(model={1: "x", None: "y"}))
    assert paths(refusal) == ["spec.model[1]", "spec.model.None"]


def test_lone_surrogates_in_keys_and_values_are_refused_with_a_printable_path():
    refusal = refused(agent(systemPrompt={"inline": "\ud800"}, model={"\udfff": 1}))
    assert paths(refusal) == ["spec.systemPrompt.inline", "spec.model.<not a name>"]
    str(refusal).encode()


def test_a_line_of_a_soul_that_became_a_key_is_not_repeated():
    refusal = refused(agent(**{"You are PERSONA-MARKER, be kind": None, "soul": {"inline": "x", "Be direct": "x"}}))
    assert paths(refusal) == ["spec.soul.<not a name>", "spec.<not a name>"]
    assert "PERSONA-MARKER" not in repr(refusal.problems) + str(refusal)
    assert "Be direct" not in repr(refusal.problems) + str(refusal)


def test_a_field_is_known_by_its_name_on_the_wire_only():
    assert paths(refused(agent(system_prompt={"inline": "x"}))) == ["spec.system_prompt"]


def test_nesting_beyond_the_limit_is_refused():
    deep: Any = "x"
    for _ in range(5000):
        deep = [deep]
    refusal = refused(agent(model=deep))
    assert any("deeper than 64" in problem.message for problem in refusal.problems)


def test_a_soul_at_the_limit_passes_and_one_byte_more_does_not():
    assert isinstance(parse_resource(agent(soul={"inline": "x" * 8192})), Agent)
    assert refused(agent(soul={"inline": "x" * 8193})).reason is Reason.SOUL_TOO_LARGE
    assert refused(agent(soul={"inline": "x" * 8191 + "é"})).reason is Reason.SOUL_TOO_LARGE


@pytest.mark.parametrize("text", ["", " \r\n\t", "a\0b"])
def test_blank_and_nul_souls_are_refused_at_the_field(text: str):
    refusal = refused(agent(soul={"inline": text}))
    assert refusal.reason is Reason.SOUL_SOURCE_INVALID
    assert paths(refusal) == ["spec.soul.inline"]


def test_an_inline_soul_is_checked_against_its_digest():
    right = digest_bytes(PERSONA.encode())
    parse_resource(agent(soul={"inline": PERSONA, "digest": right}))
    wrong = digest_bytes(b"other")
    assert refused(agent(soul={"inline": PERSONA, "digest": wrong})).reason is Reason.SOUL_DIGEST_MISMATCH
    assert refused(agent(soul={"inline": PERSONA, "digest": right.upper()})).reason is Reason.AGENT_INVALID


def test_a_prompt_that_its_runtime_cannot_deliver_is_refused():
    role = {"inline": "$" * 60_000}
    assert refused(agent(systemPrompt=role, soul={"inline": PERSONA})).reason is Reason.PROMPT_TOO_LARGE
    parse_resource(agent(systemPrompt=role, soul={"inline": PERSONA}, runtime={"type": "claude"}))


@pytest.mark.parametrize("runtime", [None, "claude"])
@pytest.mark.parametrize("soul", [None, {"configMapRef": {"name": "souls", "key": "k"}, "digest": digest_bytes(b"")}])
def test_a_role_at_the_limit_passes_and_one_byte_more_does_not(runtime: str | None, soul: dict[str, Any] | None):
    limit = DELIVERY_LIMITS["claude" if runtime else "ai"].limit
    more = {"runtime": {"type": runtime}} if runtime else {}
    more |= {"soul": soul} if soul else {}
    longest = "é" * (limit // 2)
    parse_resource(agent(systemPrompt={"inline": longest}, **more))
    refusal = refused(agent(systemPrompt={"inline": longest + "x"}, **more))
    assert refusal.reason is Reason.PROMPT_TOO_LARGE
    assert paths(refusal) == ["spec.systemPrompt.inline"]


def test_a_role_that_does_not_fit_alone_is_one_fault_with_any_soul():
    assert paths(refused(agent(systemPrompt={"inline": "$" * 60_000}, soul={"inline": PERSONA}))) == [
        "spec.systemPrompt.inline"
    ]


def test_a_role_in_a_config_map_or_for_an_external_runtime_is_not_measured_here():
    parse_resource(agent(systemPrompt={"configMapRef": {"name": "roles", "key": "k"}}))
    parse_resource(agent(systemPrompt={"inline": "x" * 300_000}, runtimeRef={"name": "external"}))


@pytest.mark.parametrize(
    "spec",
    [
        {"soul": {"inline": PERSONA, "sowl": 1}},
        {"soul": {"inline": PERSONA + "\0"}},
        {"soul": {"inline": PERSONA * 500}},
        {"soul": {"inline": PERSONA, "digest": digest_bytes(b"")}},
        {"soul": PERSONA},
        {"soul": {"inline": [PERSONA]}},
        {"soul": {"inline": PERSONA, "configMapRef": {"name": PERSONA, "key": PERSONA}}},
    ],
)
def test_no_refusal_quotes_the_persona(spec: dict[str, Any]):
    refusal = refused(agent(**spec))
    assert "Vesper" not in str(refusal)
    assert "Vesper" not in repr(refusal.problems)


@pytest.mark.parametrize("text", ["$(HOME)", "$$", "{{x}}", "@file", "a\r\nb\r", "\ufeffa", "  a\n\n"])
def test_a_soul_arrives_byte_for_byte(text: str):
    parsed = parse_resource(agent(soul={"inline": text}))
    assert isinstance(parsed, Agent)
    assert parsed.spec.soul is not None
    assert parsed.spec.soul.inline is not None
    assert parsed.spec.soul.inline.reveal() == text


def secret(**fields: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "key"}, **fields}


def test_base64_data_of_a_secret_becomes_string_data_which_wins():
    encoded = base64.b64encode("pässword".encode()).decode()
    parsed = parse_resource(secret(data={"a": encoded, "b": encoded}, stringData={"b": "plain"}))
    assert isinstance(parsed, Secret)
    assert {key: text.reveal() for key, text in parsed.string_data.items()} == {"a": "pässword", "b": "plain"}


@pytest.mark.parametrize("value", ["!!!", "YQ", "gA==", 5, None])
def test_secret_data_that_is_not_base64_of_text_is_refused(value: Any):
    assert paths(refused(secret(data={"a": value}))) == ["data.a"]


def test_config_map_values_must_be_text():
    data = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}}
    assert isinstance(parse_resource({**data, "data": {"a": "no"}}), ConfigMap)
    assert paths(refused({**data, "data": {"a": False, "b": 1}})) == ["data.a", "data.b"]


def test_a_task_needs_only_its_spec():
    parsed = parse_task(task(), "birds", "review")
    assert (parsed.namespace, parsed.name, parsed.spec.user_prompt) == ("birds", "review", "Review it.")


def test_a_whole_task_manifest_is_the_same_task():
    whole = parse_task(task(), "birds", "review").to_json()
    assert parse_task(whole, "birds", "review") == parse_task(task(), "birds", "review")


def test_a_task_whose_manifest_contradicts_its_workflow_is_refused():
    payload = {"metadata": {"name": "other", "namespace": "fish"}, "kind": "Agent", "apiVersion": "v1", **task()}
    refusal = refused_task(payload)
    assert refusal.reason is Reason.TASK_INVALID
    assert set(paths(refusal)) == {"metadata.name", "metadata.namespace", "kind", "apiVersion"}


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        (None, [""]),
        ([], [""]),
        ("{}", [""]),
        ({}, ["spec"]),
        ({"spec": []}, ["spec"]),
        ({"spec": {}}, ["spec.type", "spec.agentRef"]),
        (task(timeout=5, agentRef={"name": 1}), ["spec.agentRef.name", "spec.timeout"]),
        ({"metadata": [], **task()}, ["metadata"]),
        ({**task(), "sepc": 1}, ["sepc"]),
    ],
)
def test_a_bad_payload_is_task_invalid_with_every_fault(payload: Any, expected: list[str]):
    refusal = refused_task(payload)
    assert refusal.reason is Reason.TASK_INVALID
    assert paths(refusal) == expected


def test_a_payload_of_300_kilobytes_is_refused_by_its_size():
    refusal = refused_task(task(env=[{"name": f"V{n}", "value": "x" * 60_000} for n in range(5)]))
    (problem,) = refusal.problems
    assert str(MAX_SPEC_BYTES) in problem.message


def test_a_flood_of_faults_is_cut_short():
    refusal = refused_task(task(**{f"unknown{n}": 1 for n in range(500)}))
    assert len(refusal.problems) == 101
    assert refusal.problems[-1].message == "and more problems"


def test_a_very_long_unknown_field_is_cut_short():
    assert len(str(refused(agent(**{"k" * 100_000: 1})))) < 2000
