"""Every model: strict, complete on the wire, and the rules between fields."""

import json
import math
from typing import Any

import pytest
from pydantic import ValidationError
from temporalio.contrib.pydantic import pydantic_data_converter

from anima.model.agent import Agent, AgentSpec, ModelSettings
from anima.model.attempts import ProgressEvent
from anima.model.base import MAX_INT, Model
from anima.model.problems import Problem, problems_of
from anima.model.provider import ProviderSpec
from anima.model.resources import MAX_ENV_BYTES, ConfigMap, EnvironmentVariable, KeyReference, ObjectMeta, Secret
from anima.model.task import TaskSpec
from anima.model.wire import JobVariable
from tests.model.samples import SAMPLES, every_model, instances, with_parts


def problems(model: type[Model], data: Any) -> list[Problem]:
    with pytest.raises(ValidationError) as caught:
        model.model_validate(data)
    return problems_of(caught.value, model)


def includes(whole: Any, part: Any) -> bool:
    if isinstance(part, dict):
        return all(key in whole and includes(whole[key], value) for key, value in part.items())
    if isinstance(part, list):
        return len(whole) == len(part) and all(map(includes, whole, part))
    return bool(whole == part)


PARTS = {repr(part): part for sample in instances() for part in with_parts(sample)}.values()


def test_the_samples_use_every_model_and_every_field():
    assert {type(part) for part in PARTS} == every_model()
    used = {(type(part), name) for part in PARTS for name in part.model_fields_set if getattr(part, name) is not None}
    assert used == {(model, name) for model in every_model() for name in model.model_fields}


@pytest.mark.parametrize(("model", "data"), SAMPLES, ids=lambda value: getattr(value, "__name__", ""))
def test_all_that_was_given_is_on_the_wire_under_its_name(model: type[Model], data: dict[str, Any]):
    assert includes(model.model_validate(data).to_json(), data)


@pytest.mark.parametrize("part", PARTS, ids=lambda part: type(part).__name__)
def test_every_model_survives_json_plain_data_and_temporal(part: Model):
    model = type(part)
    assert model.model_validate_json(json.dumps(part.to_json())) == part
    assert model.model_validate(part.to_json()) == part
    assert model.model_validate_json(part.model_dump_json()) == part
    converter = pydantic_data_converter.payload_converter
    assert converter.from_payloads(converter.to_payloads([part]), [model]) == [part]


@pytest.mark.parametrize("part", PARTS, ids=lambda part: type(part).__name__)
def test_a_model_without_one_of_its_optional_fields_survives_too(part: Model):
    model, whole = type(part), part.to_json()
    for left_out in whole:
        try:
            smaller = model.model_validate({key: whole[key] for key in whole if key != left_out})
        except ValidationError:
            continue
        assert model.model_validate_json(json.dumps(smaller.to_json())) == smaller


@pytest.mark.parametrize("model", sorted(every_model(), key=lambda model: model.__name__))
def test_every_model_is_frozen_strict_and_silent(model: type[Model]):
    config = model.model_config
    assert all(config.get(key) for key in ("frozen", "strict", "hide_input_in_errors"))
    assert config.get("extra") == "forbid"


def test_nulls_in_the_data_of_an_event_are_kept():
    data = {"nothing": None, "deep": {"n": [1, None]}}
    assert ProgressEvent(sequence=0, kind="x", data=data).to_json()["data"] == data


@pytest.mark.parametrize("value", [MAX_INT + 1, -MAX_INT - 1, 3.0, "3", True])
def test_an_integer_is_neither_beyond_what_json_keeps_nor_anything_else(value: Any):
    (problem,) = problems(ObjectMeta, {"name": "x", "generation": value})
    assert problem.path == "generation"


@pytest.mark.parametrize("value", ["0.5", True, math.nan, math.inf, -0.1, 2.1])
def test_a_temperature_is_a_number_from_zero_to_two(value: Any):
    (problem,) = problems(ModelSettings, {"temperature": value})
    assert problem.path == "temperature"


@pytest.mark.parametrize("value", [0, 1, 2, 0.5])
def test_a_temperature_may_be_written_as_an_integer(value: float):
    assert ModelSettings.model_validate({"temperature": value}).temperature == value


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"runtime": {"type": "codex"}, "runtimeRef": {"name": "x"}}, "both runtime and runtimeRef"),
        ({"runtimeRef": {"name": "x"}, "soul": {"inline": "Be kind."}}, "cannot deliver it"),
        ({"systemPrompt": {}}, "exactly one source"),
        ({"systemPrompt": {"inline": "x", "configMapRef": {"name": "a", "key": "b"}}}, "exactly one source"),
    ],
)
def test_fields_of_an_agent_that_contradict_each_other_are_refused_with_a_remedy(spec: dict[str, Any], said: str):
    (problem,) = problems(AgentSpec, spec)
    assert said in problem.message
    assert problem.remedy


@pytest.mark.parametrize("runtime", ["codex", "claude", "copilot", "opencode"])
def test_every_built_in_runtime_may_have_a_soul(runtime: str):
    AgentSpec.model_validate({"runtime": {"type": runtime}, "soul": {"inline": "Be kind."}})


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ({"type": "openai-compatible"}, ""),
        ({"type": "local", "baseURL": "http://127.0.0.1:1"}, ""),
        ({"type": "rehearsal", "secretRef": {"name": "a", "key": "b"}}, ""),
        ({"type": "openai", "baseURL": "ftp://x"}, "baseURL"),
        ({"type": "openai", "baseURL": "http://"}, "baseURL"),
        ({"type": "openai", "baseURL": "http:///x"}, "baseURL"),
        ({"type": "openai", "baseURL": "http://x y"}, "baseURL"),
        ({"type": "openai", "baseURL": "http://x\n"}, "baseURL"),
        ({"type": "openai", "baseURL": "http://x:99999/v1"}, "baseURL"),
        ({"type": "openai", "baseURL": "http://x:y/v1"}, "baseURL"),
        ({"type": "openai", "baseURL": "http://[::1/v1"}, "baseURL"),
        ({"type": "openai", "baseURL": "http://user:password@x/v1"}, "baseURL"),
        ({"type": "openai", "baseURL": "x" * 2049}, "baseURL"),
    ],
)
def test_a_provider_that_cannot_be_reached_as_written_is_refused(spec: dict[str, Any], path: str):
    assert [problem.path for problem in problems(ProviderSpec, spec)] == [path]


@pytest.mark.parametrize("key", ["", "a/b", "a b", "é", "a\n", "x" * 254])
def test_a_key_of_a_map_has_the_characters_of_kubernetes(key: str):
    assert [problem.path for problem in problems(KeyReference, {"name": "m", "key": key})] == ["key"]


@pytest.mark.parametrize("key", ["", "../x", "a b", "a\n", "\x1b[31m", "x" * 254])
def test_a_map_is_keyed_as_it_can_be_referred_to(key: str):
    head = {"apiVersion": "v1", "metadata": {"name": "m"}}
    maps = ((ConfigMap, "data"), (Secret, "stringData"))
    for kind, field in maps:
        (problem,) = problems(kind, {**head, "kind": kind.__name__, field: {key: "x"}})
        assert (problem.path.partition(".")[0], problem.message) == (field, "must be a key")


@pytest.mark.parametrize("command", [[], [""], ["", "x"], ["echo", "a\0b"], ["x" * 4097], ["echo"] * 65])
def test_a_command_that_no_system_can_start_is_refused(command: list[str]):
    (problem,) = problems(AgentSpec, {"execution": {"command": command}})
    assert problem.path.startswith("execution.command")


@pytest.mark.parametrize("name", ["", "1A", "A-B", "A=B", "é", "A\n", "A" * 129])
def test_a_variable_has_a_name_that_every_shell_takes(name: str):
    assert [problem.path for problem in problems(EnvironmentVariable, {"name": name, "value": ""})] == ["name"]


@pytest.mark.parametrize("name", [*JobVariable, "ANIMA_X", "ANIMA_"])
def test_the_names_of_the_system_are_not_for_users(name: str):
    (problem,) = problems(EnvironmentVariable, {"name": str(name), "value": ""})
    assert (problem.path, problem.message) == ("name", "is reserved for the system")


@pytest.mark.parametrize("filler", ["x", "é", "€", "🦊"])
def test_a_variable_is_limited_in_bytes_since_the_system_counts_them(filler: str):
    count, rest = divmod(MAX_ENV_BYTES, len(filler.encode()))
    value = filler * count + "x" * rest
    assert EnvironmentVariable(name="A", value=value).value == value
    assert [problem.path for problem in problems(EnvironmentVariable, {"name": "A", "value": value + "x"})] == ["value"]


def test_all_faulty_variables_are_named_at_once_by_their_place():
    env = [
        {"name": "A"},
        {"name": "B", "value": "", "secretKeyRef": {"name": "s", "key": "k"}},
        {"name": "ANIMA_C", "value": ""},
        {"name": "D", "value": "\ud800"},
        {"name": "E", "value": "fine"},
        {"name": "F", "value": "a\0b"},
    ]
    found = problems(TaskSpec, {"type": "ai", "agentRef": {"name": "heron"}, "prompt": "x", "env": env})
    assert [problem.path for problem in found] == ["env[0]", "env[1]", "env[2].name", "env[3].value", "env[5].value"]
    assert all("exactly one source" in problem.message for problem in found[:2])


def test_the_generation_counts_the_content_and_not_the_metadata():
    agent = next(sample for sample in instances() if isinstance(sample, Agent))
    relabelled = agent.model_copy(update={"metadata": ObjectMeta(name="other", uid="uid-2", generation=9)})
    assert relabelled.content() == agent.content()
    assert set(agent.content()) == {"spec"}
    edited = agent.model_copy(update={"spec": AgentSpec()})
    assert edited.content() != agent.content()


def test_an_object_that_was_never_stored_has_no_identity():
    agent = Agent.model_validate(
        {"apiVersion": "anima.dev/v1alpha1", "kind": "Agent", "metadata": {"name": "a"}, "spec": {}}
    )
    assert (agent.name, agent.namespace, agent.uid, agent.generation) == ("a", "default", "", 0)
