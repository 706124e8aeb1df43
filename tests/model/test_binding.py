"""The binding of a Task: which changes of its Agent are drift."""

import hashlib
from datetime import UTC, datetime
from typing import Any

import pytest

from anima.model.binding import Revision, SoulBinding, check_binding
from anima.model.digests import digest_bytes
from anima.model.errors import Refusal
from anima.model.reasons import Reason

REVISION = Revision(
    agent_uid="agent-1",
    agent_generation=3,
    soul_digest=digest_bytes(b"soul"),
    prompt_digest=digest_bytes(b"prompt"),
    envelope_version=1,
)
# One change of every identity, and the reason it gives.
DRIFTS: dict[str, tuple[Any, Reason]] = {
    "agent_uid": ("agent-2", Reason.SOUL_DRIFT),
    "agent_generation": (4, Reason.SOUL_DRIFT),
    "soul_digest": (digest_bytes(b"other"), Reason.SOUL_DRIFT),
    "prompt_digest": (digest_bytes(b"other"), Reason.SOUL_DRIFT),
    "envelope_version": (2, Reason.SOUL_DRIFT),
}


BOUND = SoulBinding(
    **REVISION.model_dump(by_alias=False),
    task_uid="task-1",
    inputs_digest=digest_bytes(b"inputs"),
    inputs_version=1,
    bound_at=datetime(2030, 1, 1, tzinfo=UTC),
)


def drift(revision: Revision) -> Refusal:
    with pytest.raises(Refusal) as caught:
        check_binding(BOUND, revision)
    return caught.value


def test_the_same_revision_goes_on():
    check_binding(BOUND, REVISION)


@pytest.mark.parametrize("identity", Revision.model_fields)
def test_each_changed_identity_alone_is_drift(identity: str):
    value, reason = DRIFTS[identity]
    refusal = drift(REVISION.model_copy(update={identity: value}))
    assert refusal.reason is reason
    assert f"was {getattr(REVISION, identity)} " in refusal.message
    assert f"is {value} now" in refusal.message


def test_a_generation_that_goes_back_is_drift():
    assert drift(REVISION.model_copy(update={"agent_generation": 2})).reason is Reason.SOUL_DRIFT


def test_an_agent_that_lost_its_soul_is_told_as_that():
    edited = {"soul_digest": None, "agent_generation": 4, "prompt_digest": digest_bytes(b"role")}
    refusal = drift(REVISION.model_copy(update=edited))
    assert refusal.reason is Reason.SOUL_REMOVED
    assert str(REVISION.soul_digest) in refusal.message


def test_an_agent_that_was_recreated_without_a_soul_is_another_agent():
    recreated = REVISION.model_copy(update={"soul_digest": None, "agent_uid": "agent-2"})
    refusal = drift(recreated)
    assert refusal.reason is Reason.SOUL_DRIFT
    assert "uid" in refusal.message


def test_a_session_is_pinned_to_the_revision_alone_in_a_form_that_never_changes():
    canonical = (
        f'{{"agentGeneration":3,"agentUID":"agent-1","envelopeVersion":1,'
        f'"promptDigest":"{REVISION.prompt_digest}","soulDigest":"{REVISION.soul_digest}"}}'
    )
    expected = hashlib.sha256(b"anima.session-revision/1\n" + canonical.encode()).hexdigest()
    assert REVISION.session_digest == f"sha256:{expected}"


def test_each_identity_and_the_absence_of_a_soul_count_for_the_session():
    revisions = [REVISION.model_copy(update={field: value}) for field, (value, _) in DRIFTS.items()]
    revisions += [REVISION, REVISION.model_copy(update={"soul_digest": None})]
    assert len({revision.session_digest for revision in revisions}) == len(revisions)
