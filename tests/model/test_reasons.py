"""Reasons: one enum, and a remedy for each."""

import re

import pytest

from anima.model.attempts import RETRYABLE, Outcome
from anima.model.reasons import Reason


@pytest.mark.parametrize("reason", Reason)
def test_every_reason_has_a_remedy_of_one_line(reason: Reason):
    assert re.fullmatch(r"[A-Z`][^\n]+\.", reason.remedy)
    assert len(reason.remedy) <= 100


@pytest.mark.parametrize("reason", Reason)
def test_every_reason_is_a_word_that_follows_from_its_name(reason: Reason):
    assert reason.value == "".join(part.capitalize() for part in reason.name.split("_"))
    assert str(reason) == reason.value


def test_no_two_reasons_share_a_remedy():
    remedies = [reason.remedy for reason in Reason]
    assert len(set(remedies)) == len(remedies)


@pytest.mark.parametrize("reason", Reason)
def test_only_what_can_end_differently_is_tried_again(reason: Reason):
    outcome = Outcome(succeeded=False, reason=reason)
    assert outcome.retryable(timeouts=False) == (reason in RETRYABLE)
    assert outcome.retryable(timeouts=True) == (reason in RETRYABLE or reason is Reason.JOB_TIMEOUT)


def test_no_refusal_of_persona_or_input_is_tried_again():
    refused = {reason for reason in Reason if reason.value.startswith(("Soul", "Prompt", "Frozen", "Task", "Agent"))}
    assert len(refused) > 10
    assert not refused & RETRYABLE


def test_success_is_not_tried_again():
    assert not Outcome(succeeded=True).retryable(timeouts=True)
