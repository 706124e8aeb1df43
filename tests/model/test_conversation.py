"""What a message may be, and what a failure without an answer establishes.

Source of the rules: agent-soul, "Revisions, retries, and Sessions".
"""

from datetime import UTC, datetime
from typing import Any

import pytest

from anima.model.binding import SoulBinding
from anima.model.conversation import (
    Evidence,
    PostedMessage,
    answers_for,
    attest,
    attest_never_begun,
    message_task_of,
    parse_message,
)
from anima.model.digests import digest_bytes
from anima.model.errors import Refusal
from anima.model.inputs import INPUTS_VERSION
from anima.model.names import MAX_LABEL
from anima.model.reasons import Reason
from anima.model.session import MAX_MESSAGE_BYTES
from anima.model.task import MAX_SPEC_BYTES, Phase, ResultReference, TaskSpec, TaskStatus

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
DIGEST = digest_bytes(b"x")
BINDING = SoulBinding(
    agent_uid="agent",
    agent_generation=1,
    task_uid="task",
    soul_digest=DIGEST,
    prompt_digest=DIGEST,
    inputs_digest=DIGEST,
    inputs_version=INPUTS_VERSION,
    envelope_version=1,
    bound_at=NOW,
)


def evidence(status: dict[str, Any], **others: Any) -> Evidence:
    """Return what there is of a Task that failed before all else, and what is different about it."""
    failed = TaskStatus(namespace="default", name="talk-m1", uid="uid-1", holds=[], conditions=[])
    failed = failed.model_copy(
        update={"phase": Phase.FAILED, "reason": Reason.PROVIDER_MISSING, "message": "no Provider", **status}
    )
    given: dict[str, Any] = {"type": "ai", "status": failed, "bound": False, "attempts": 0, "jobs": 0}
    return Evidence(**given | others)


def message(content: str = "Hello.", **fields: Any) -> PostedMessage:
    return PostedMessage(number=1, task="talk-m1", agent="reviewer", content=content, posted_at=NOW, **fields)


@pytest.mark.parametrize("reason", [Reason.PROVIDER_MISSING, Reason.SOUL_SOURCE_MISSING, Reason.AGENT_MISSING, None])
@pytest.mark.parametrize("phase", [Phase.FAILED, Phase.CANCELLED])
def test_a_failure_without_any_evidence_establishes_nothing(phase: Phase, reason: Reason | None) -> None:
    attestation = attest(evidence({"phase": phase, "reason": reason}))

    assert attestation.unbound
    assert (attestation.task_uid, attestation.task, attestation.message) == ("uid-1", "talk-m1", "no Provider")
    assert attestation.reason is (reason or Reason.JOB_FAILED)


@pytest.mark.parametrize(
    ("status", "others"),
    [
        ({}, {"type": "agent"}),
        ({}, {"bound": True}),
        ({"soul_binding": BINDING}, {}),
        ({}, {"attempts": 1}),
        ({}, {"jobs": 1}),
        ({"attempt": 1}, {}),
        ({"total_attempts": 1}, {}),
        ({"iteration": 1}, {}),
        ({"start_time": NOW}, {}),
        ({"job_name": "talk-m1-i0-a1"}, {}),
        ({"result_ref": ResultReference(iteration=0, attempt=1, digest=DIGEST, size=1)}, {}),
        ({"phase": Phase.SUCCEEDED}, {}),
        ({"phase": Phase.RUNNING}, {}),
        ({"uid": ""}, {}),
    ],
)
def test_any_evidence_of_execution_establishes(status: dict[str, Any], others: dict[str, Any]) -> None:
    assert not attest(evidence(status, **others)).unbound


def test_a_message_that_never_became_a_task_establishes_nothing() -> None:
    attestation = attest_never_begun(message(), Refusal(Reason.TASK_CONFLICT, "the name is taken"))

    assert (attestation.unbound, attestation.task_uid) == (True, None)
    assert (attestation.reason, attestation.message) == (Reason.TASK_CONFLICT, "the name is taken")


def test_a_message_becomes_a_task_of_its_conversation() -> None:
    task = message_task_of("default", "talk", message("Line one.\r\n$(HOME) $$ {{x}}\n"))

    assert (task.namespace, task.name, task.spec.type) == ("default", "talk-m1", "ai")
    assert task.spec.user_prompt == "Line one.\r\n$(HOME) $$ {{x}}\n"
    assert task.spec.agent_ref.name == "reviewer"
    assert task.spec.session_ref
    assert (task.spec.session_ref.name, task.spec.session_ref.append) == ("talk", True)


@pytest.mark.parametrize(
    ("change", "own"),
    [
        ({}, True),
        # Without a soul, an edit of these is allowed, and it is the same Task still.
        ({"prompt": "Rather this.", "timeout": "5m", "suspend": True}, True),
        ({"sessionRef": {"name": "other"}}, False),
        ({"sessionRef": {"name": "talk", "append": False}}, False),
        ({"sessionRef": None}, False),
    ],
)
def test_a_task_of_the_messages_name_is_its_own_by_its_session(change: dict[str, Any], own: bool) -> None:
    spec = message_task_of("default", "talk", message()).spec.to_json() | change

    assert answers_for("talk", TaskSpec.model_validate(spec)) is own


@pytest.mark.parametrize("content", ["x" * MAX_MESSAGE_BYTES, "é" * (MAX_MESSAGE_BYTES // 2), "\ufeff \r\n$(X)\u2028"])
def test_a_message_is_kept_to_the_byte_up_to_its_limit(content: str) -> None:
    assert parse_message({"content": content}).content == content


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "is blank"),
        (" \t\r\n\u3000", "is blank"),
        ("a\0b", "has a NUL character"),
        ("a\ud800b", "is not valid Unicode"),
        ("x" * (MAX_MESSAGE_BYTES + 1), "has 131073 bytes, the limit is 131072"),
        ("é" * (MAX_MESSAGE_BYTES // 2) + "x", "has 131073 bytes"),
        (7, "string"),
        (None, "string"),
    ],
)
def test_what_no_task_can_be_asked_is_refused_by_its_field(content: Any, words: str) -> None:
    with pytest.raises(Refusal) as refusal:
        parse_message({"content": content})

    assert refusal.value.reason is Reason.REQUEST_REFUSED
    (problem,) = refusal.value.problems
    assert problem.path == "content"
    assert words in problem.message
    assert "\ud800" not in refusal.value.message


@pytest.mark.parametrize("unit", ['"', "\n", "\x01", "\x7f", "\U0001f600"])
def test_whatever_is_accepted_fits_a_task_with_the_longest_names(unit: str) -> None:
    accepted = largest(unit)
    longest = "n" * MAX_LABEL
    posted = PostedMessage(number=1, task=longest, agent=longest, content=accepted, posted_at=NOW)

    assert message_task_of(longest, longest, posted).spec.user_prompt == accepted
    with pytest.raises(Refusal, match="shorten it"):
        parse_message({"content": accepted + unit})


def largest(unit: str) -> str:
    """Return the longest message of one character, as bytes and as JSON."""
    low, high = 1, MAX_SPEC_BYTES
    while low < high:
        middle = (low + high + 1) // 2
        try:
            parse_message({"content": "x" + unit * middle})
        except Refusal:
            high = middle - 1
        else:
            low = middle
    return "x" + unit * low


@pytest.mark.parametrize(
    ("agent", "path"), [({"name": "Upper"}, "agentRef.name"), ({}, "agentRef.name"), ("reviewer", "agentRef")]
)
def test_an_agent_that_can_not_be_one_is_refused_by_its_field(agent: Any, path: str) -> None:
    with pytest.raises(Refusal) as refusal:
        parse_message({"content": "Hello.", "agentRef": agent})

    assert [problem.path for problem in refusal.value.problems] == [path]
