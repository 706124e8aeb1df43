"""Faults: where, what, and the remedy; all at once, and never what was given."""

import traceback
from typing import Annotated, Any

import pytest
from pydantic import Field, ValidationError

from anima.model.agent import Agent, AgentSpec
from anima.model.base import Model
from anima.model.errors import Refusal
from anima.model.problems import Problem, problems_of, summary
from anima.model.provider import ProviderSpec
from anima.model.reasons import Reason
from anima.model.resources import Reference
from anima.model.task import Task, TaskSpec
from tests.model.samples import SAMPLES, variants

MARKER = "You are Vesper, a heron."


def error_of(model: type[Model], data: Any) -> ValidationError:
    with pytest.raises(ValidationError) as caught:
        model.model_validate(data)
    return caught.value


def found(model: type[Model], data: Any) -> dict[str, tuple[str, str]]:
    problems = problems_of(error_of(model, data), model)
    assert len({problem.path for problem in problems}) == len(problems)
    return {problem.path: (problem.message, problem.remedy) for problem in problems}


class Box(Model):
    """A model that nests others in every way there is."""

    one: Reference | None = None
    several: Annotated[list[Annotated[Reference, Field()]], Field(default_factory=list)]
    by_name: Annotated[dict[str, Reference], Field(default_factory=dict)]
    grouped: Annotated[dict[str, list[Reference | None]] | None, Field()] = None
    plain: Annotated[dict[str, str], Field(default_factory=dict)]


Box.model_rebuild()


@pytest.mark.parametrize(
    ("data", "path"),
    [
        ({"one": {"name": "x", "nmae": 1}}, "one.nmae"),
        ({"several": [{"name": "x"}, {"name": "x", "nmae": 1}]}, "several[1].nmae"),
        ({"byName": {"a": {"name": "x", "nmae": 1}}}, "byName.a.nmae"),
        ({"byName": {"name": {"name": "x", "nmae": 1}}}, "byName.name.nmae"),
        ({"grouped": {"a": [None, {"name": "x", "nmae": 1}]}}, "grouped.a[1].nmae"),
    ],
)
def test_an_unknown_field_is_told_with_the_nearest_known_name_at_any_depth(data: dict[str, Any], path: str):
    assert found(Box, data) == {path: ("unknown field", "did you mean name?")}


@pytest.mark.parametrize(
    ("spec", "path", "near"),
    [
        ({"systemPromt": {}}, "spec.systemPromt", "systemPrompt"),
        ({"system_promt": {}}, "spec.system_promt", "systemPrompt"),
        ({"Soul": {}}, "spec.Soul", "soul"),
        ({"soul": {"inline": "x", "digset": "y"}}, "spec.soul.digset", "digest"),
        ({"model": {"maxToken": 1}}, "spec.model.maxToken", "maxTokens"),
        ({"resources": {"limits": {"memroy": 1}}}, "spec.resources.limits.memroy", "memory"),
    ],
)
def test_the_name_that_is_suggested_is_the_one_on_the_wire(spec: dict[str, Any], path: str, near: str):
    agent = {"apiVersion": "anima.dev/v1alpha1", "kind": "Agent", "metadata": {"name": "a"}, "spec": spec}
    assert found(Agent, agent) == {path: ("unknown field", f"did you mean {near}?")}


def test_an_alias_of_its_own_is_suggested():
    assert found(ProviderSpec, {"type": "local", "baseUrl": "x"})["baseUrl"][1] == "did you mean baseURL?"


def test_an_unknown_field_that_is_near_none_gets_the_list_of_what_is_known():
    assert found(Reference, {"name": "x", "zebra": 1}) == {"zebra": ("unknown field", "known here: name")}


def test_an_unknown_field_of_an_unknown_model_is_to_be_removed():
    (problem,) = problems_of(error_of(Reference, {"name": "x", "zebra": 1}))
    assert problem.remedy == "remove it"


def test_all_faults_are_told_at_once_with_their_paths():
    assert found(
        Task,
        {
            "apiVersion": "v1",
            "kind": "Task",
            "metadata": {"name": "Not a label", "labels": {"a": 1}},
            "spec": {
                "type": "human",
                "prompt": "",
                "retryPolicy": {"maxRetries": -1, "initialDelay": 5},
                "timeout": "soon",
                "env": [{"name": "A", "value": "x"}, {"name": "1", "vlaue": "y"}, []],
                "resources": {"limits": {"cpu": "many"}},
                "priority": "3",
                "suspend": "yes",
            },
            "extra": 1,
        },
    ).keys() == {
        "apiVersion",
        "metadata.name",
        "metadata.labels.a",
        "spec.type",
        "spec.agentRef",
        "spec.prompt",
        "spec.retryPolicy.maxRetries",
        "spec.retryPolicy.initialDelay",
        "spec.timeout",
        "spec.env[1].name",
        "spec.env[1].vlaue",
        "spec.env[2]",
        "spec.resources.limits.cpu",
        "spec.priority",
        "spec.suspend",
        "extra",
    }


@pytest.mark.parametrize(
    ("model", "data", "problem"),
    [
        (Reference, {}, ("name", "required field is missing", "add it")),
        (Reference, [], ("", "must be a map of fields", "")),
        (Box, {"one": "x"}, ("one", "must be a map of fields", "")),
        (Box, {"plain": "x"}, ("plain", "must be a map of fields", "")),
        (
            TaskSpec,
            {"type": "x", "agentRef": {"name": "a"}, "prompt": "x"},
            ("type", "must be one of 'ai' or 'agent'", ""),
        ),
        (AgentSpec, {"soul": {"inline": 5}}, ("soul.inline", "must be text in valid Unicode", "")),
        (
            TaskSpec,
            {"type": "ai", "agentRef": {"name": "a"}, "prompt": " "},
            ("", "has no prompt", "give prompt or ai.prompt"),
        ),
        (
            TaskSpec,
            {"type": "ai", "agentRef": {"name": "a"}, "prompt": "x", "timeout": "5"},
            ("timeout", "must be a duration with units", 'write "90s", "12m" or "1h30m"'),
        ),
    ],
)
def test_each_fault_says_what_and_the_remedy_in_our_words(model: type[Model], data: Any, problem: tuple[str, str, str]):
    assert problems_of(error_of(model, data), model) == [Problem(*problem)]


def test_a_problem_is_one_line():
    assert str(Problem("spec.x", "is wrong", "mend it")) == "spec.x: is wrong (mend it)"
    assert str(Problem("", "is wrong")) == "is wrong"
    assert summary([Problem("a", "b"), Problem("", "c", "d")]) == "a: b; c (d)"


WRONG_VALUES = {
    "text": MARKER,
    "text with NUL": MARKER + "\0",
    "text with a surrogate": MARKER + "\ud800",
    "long text": MARKER * 20_000,
    "bytes": MARKER.encode(),
    "list": [MARKER],
    "map": {"x": MARKER},
    "map of maps": {"inline": {"inline": MARKER}},
}


@pytest.mark.parametrize("wrong", WRONG_VALUES)
@pytest.mark.parametrize(("model", "data"), SAMPLES, ids=lambda value: getattr(value, "__name__", ""))
def test_no_fault_ever_quotes_what_was_given(model: type[Model], data: dict[str, Any], wrong: str):
    for variant in variants(data, WRONG_VALUES[wrong]):
        error = error_of(model, variant | {"zebra": MARKER, "kind": MARKER})
        problems = problems_of(error, model)
        refusal = Refusal(Reason.TASK_INVALID, summary(problems), problems)
        assert str(refusal) == "; ".join(map(str, problems))
        said = [*map(str, problems), *map(repr, problems), *map(str, (error, refusal)), *map(repr, (error, refusal))]
        said += traceback.format_exception(error)
        assert not [text for text in said if "Vesper" in text]
