"""The inputs of a Task: which changes are drift, and which are not."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from anima.model import inputs
from anima.model.binding import SoulBinding
from anima.model.digests import digest_bytes
from anima.model.errors import Refusal, Unavailable
from anima.model.inputs import (
    CONTROL_FIELDS,
    INPUTS_VERSION,
    changed_fields,
    check_inputs,
    frozen_changes,
    inputs_digest,
    spec_digest,
)
from anima.model.reasons import Reason
from anima.model.task import TaskSpec

GOLDEN = Path(__file__).with_name("golden")
PLAIN: dict[str, Any] = {"type": "ai", "agentRef": {"name": "heron"}, "prompt": "Review it."}


def bound_to(task: TaskSpec) -> SoulBinding:
    return SoulBinding(
        agent_uid="agent-1",
        agent_generation=3,
        task_uid="task-1",
        soul_digest=digest_bytes(b"soul"),
        prompt_digest=digest_bytes(b"prompt"),
        inputs_digest=inputs_digest(task),
        inputs_version=INPUTS_VERSION,
        envelope_version=1,
        bound_at=datetime(2030, 1, 1, tzinfo=UTC),
    )


# One change of every frozen field, and of every field below it.
CHANGES: dict[str, list[Any]] = {
    "type": ["agent"],
    "agentRef": [{"name": "egret"}],
    "prompt": ["Review it.\n", "review it."],
    "ai": [
        {"prompt": "Review it all."},
        {"systemPrompt": "Be brief."},
        {"providerRef": {"name": "local"}},
        {"model": "small"},
    ],
    "sessionRef": [{"name": "talk"}, {"name": "other"}, {"name": "talk", "append": False}],
    "retryPolicy": [
        {"maxRetries": 1},
        {"initialDelay": "11s"},
        {"backoffMultiplier": 2.5},
        {"maxDelay": "6m"},
        {"retryTimeouts": True},
    ],
    "timeout": ["12m", "13m"],
    "deadline": ["12m", "13m"],
    "env": [
        [{"name": "A", "value": ""}],
        [{"name": "A", "value": "$B"}],
        [{"name": "B", "value": ""}],
        [{"name": "A", "secretKeyRef": {"name": "s", "key": "k"}}],
        [{"name": "A", "secretKeyRef": {"name": "s", "key": "l"}}],
        [{"name": "A", "value": ""}, {"name": "B", "value": ""}],
        [{"name": "B", "value": ""}, {"name": "A", "value": ""}],
    ],
    "resources": [
        {"requests": {"cpu": 1}},
        {"requests": {"memory": 1}},
        {"limits": {"cpu": 1}},
        {"limits": {"memory": "1Gi"}},
    ],
    "priority": [1, 5],
}


def spec(**changes: Any) -> TaskSpec:
    return TaskSpec.model_validate(PLAIN | changes)


def field_names() -> set[str]:
    return {field.alias or name for name, field in TaskSpec.model_fields.items()}


def changed() -> list[TaskSpec]:
    return [spec(**{field: value}) for field, values in CHANGES.items() for value in values]


def test_every_field_of_a_task_is_frozen_by_the_newest_projection_or_is_a_control_field():
    """A new field needs a decision: a new projection that holds it, and a change of it above."""
    frozen = inputs._PROJECTIONS[INPUTS_VERSION]
    assert frozen | CONTROL_FIELDS == field_names()
    assert not frozen & CONTROL_FIELDS
    assert set(CHANGES) == frozen
    assert max(inputs._PROJECTIONS) == INPUTS_VERSION


def test_each_change_of_a_frozen_field_gives_another_digest():
    specs = [spec(), *changed()]
    assert len({inputs_digest(each) for each in specs}) == len(specs)


@pytest.mark.parametrize("field", CHANGES)
def test_a_changed_frozen_field_is_named(field: str):
    for value in CHANGES[field]:
        assert changed_fields(spec(), spec(**{field: value})) == [field]
        assert changed_fields(spec(**{field: value}), spec()) == [field]


def test_suspend_counts_for_the_content_and_not_for_the_inputs():
    assert frozenset({"suspend"}) == CONTROL_FIELDS
    assert inputs_digest(spec(suspend=True)) == inputs_digest(spec())
    assert spec_digest(spec(suspend=True)) != spec_digest(spec())
    assert changed_fields(spec(), spec(suspend=True)) == []


@pytest.mark.parametrize(
    "same",
    [
        [{"timeout": "12m"}, {"timeout": "12m0s"}, {"timeout": "720s"}, {"timeout": "0.2h"}, {"timeout": "720000ms"}],
        [{"resources": {"limits": {"memory": each}}} for each in ("1Gi", "1073741824", 1073741824, "1048576Ki")],
        [{"resources": {"requests": {"cpu": each}}} for each in ("500m", "0.5", "0.500")],
        [{}, {"priority": 3}, {"env": []}, {"ai": {}}, {"retryPolicy": {"maxRetries": 0}}, {"timeout": None}],
        [{"retryPolicy": {"backoffMultiplier": each}} for each in (2, 2.0)],
    ],
)
def test_equal_meanings_have_equal_digests(same: list[dict[str, Any]]):
    assert len({inputs_digest(spec(**each)) for each in same}) == 1
    assert len({spec_digest(spec(**each)) for each in same}) == 1


@given(st.sampled_from(changed()))
def test_a_stored_spec_has_the_digest_of_the_given_one(given: TaskSpec):
    stored = TaskSpec.model_validate_json(json.dumps(given.to_json()))
    assert inputs_digest(stored) == inputs_digest(given)
    assert TaskSpec.model_validate(given.to_json()) == given


@pytest.mark.parametrize("file", sorted(GOLDEN.glob("inputs-*.json")), ids=lambda file: file.stem)
def test_a_published_projection_never_changes(file: Path):
    """Bindings in flight hold these digests: add a projection, and never edit one or its golden file.

    A field that is added below an old one must be left out while unset: its
    default is none, or every Task in flight would look drifted.
    """
    golden = json.loads(file.read_text())
    version = golden["version"]
    for case in golden["cases"]:
        assert inputs_digest(TaskSpec.model_validate(case["spec"]), version) == case["digest"]
        canonical = json.dumps(case["inputs"], sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        assert case["digest"] == digest_bytes(f"anima.task-inputs/{version}\n{canonical}".encode())


def test_every_projection_has_a_golden_file():
    expected = {f"inputs-{version}" for version in inputs._PROJECTIONS}
    assert {file.stem for file in GOLDEN.glob("inputs-*.json")} == expected


class LaterSpec(TaskSpec):
    """A Task spec as a later release may have it."""

    tools: Annotated[list[str], Field(default_factory=list)]
    workspace: str | None = None


LATER = inputs._PROJECTIONS[INPUTS_VERSION] | {"tools", "workspace"}
NEXT_VERSION = INPUTS_VERSION + 1


@pytest.fixture
def later_projection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(inputs._PROJECTIONS, NEXT_VERSION, LATER)


@pytest.mark.usefixtures("later_projection")
def test_an_unused_field_of_a_later_release_is_no_drift():
    unset = LaterSpec.model_validate(PLAIN)
    assert inputs_digest(unset, INPUTS_VERSION) == inputs_digest(spec())
    assert inputs_digest(
        LaterSpec.model_validate(PLAIN | {"tools": [], "workspace": None}), INPUTS_VERSION
    ) == inputs_digest(spec())
    assert inputs_digest(unset, NEXT_VERSION) != inputs_digest(unset, INPUTS_VERSION)


@pytest.mark.usefixtures("later_projection")
@pytest.mark.parametrize(("field", "value"), [("tools", ["shell"]), ("workspace", "")])
def test_a_used_field_that_the_bound_projection_does_not_cover_is_drift(field: str, value: Any):
    later = LaterSpec.model_validate(PLAIN | {field: value})
    bound = bound_to(spec())
    with pytest.raises(Refusal) as caught:
        check_inputs(bound, later)
    assert caught.value.reason is Reason.FROZEN_INPUT_DRIFT
    assert field in caught.value.message
    assert inputs_digest(later, NEXT_VERSION) != inputs_digest(LaterSpec.model_validate(PLAIN), NEXT_VERSION)


@pytest.mark.usefixtures("later_projection")
def test_suspend_is_in_no_projection_and_yet_no_drift():
    assert inputs_digest(LaterSpec.model_validate(PLAIN | {"suspend": True}), NEXT_VERSION) == inputs_digest(
        LaterSpec.model_validate(PLAIN), NEXT_VERSION
    )


@pytest.mark.parametrize("version", [0, 10_000])
def test_an_unknown_projection_is_operational_since_a_later_release_knows_it(version: int):
    with pytest.raises(Unavailable, match=f"inputs version {version}"):
        inputs_digest(spec(), version)


@pytest.mark.parametrize("earlier", sorted(inputs._PROJECTIONS)[:-1])
def test_a_task_that_an_earlier_release_has_bound_goes_on(earlier: int):
    bound = bound_to(spec()).model_copy(
        update={"inputs_version": earlier, "inputs_digest": inputs_digest(spec(), earlier)}
    )
    check_inputs(bound, spec())
    with pytest.raises(Refusal, match="sessionRef"):
        check_inputs(bound, spec(sessionRef={"name": "talk"}))


def test_an_edit_may_change_neither_what_is_bound_nor_the_session():
    edited = spec(prompt="Another.", sessionRef={"name": "talk"}, suspend=True)
    assert frozen_changes(spec(), edited, bound=True) == ["prompt", "sessionRef"]
    assert frozen_changes(spec(), edited, bound=False) == ["sessionRef"]
    assert frozen_changes(spec(), spec(prompt="Another."), bound=False) == []


def test_the_same_inputs_go_on():
    check_inputs(bound_to(spec()), spec())
    check_inputs(bound_to(spec()), spec(suspend=True))


@pytest.mark.parametrize("field", CHANGES)
def test_each_changed_input_alone_is_drift(field: str):
    for value in CHANGES[field]:
        with pytest.raises(Refusal) as caught:
            check_inputs(bound_to(spec()), spec(**{field: value}))
        assert caught.value.reason is Reason.FROZEN_INPUT_DRIFT
