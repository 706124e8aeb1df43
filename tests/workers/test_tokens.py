"""Attempt tokens: derived, never stored, good for one attempt only."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anima.model.attempts import AttemptKey
from anima.model.tokens import attempt_token, verified_key

SECRET = b"s" * 43
KEY = AttemptKey(task_uid="0b5e", iteration=1, attempt=2)


def test_a_token_proves_its_attempt() -> None:
    assert verified_key(SECRET, attempt_token(SECRET, KEY)) == KEY


def test_a_retried_creation_derives_the_same_token() -> None:
    assert attempt_token(SECRET, KEY) == attempt_token(SECRET, KEY.model_copy())


@pytest.mark.parametrize(
    "other",
    [
        AttemptKey(task_uid="0b5e", iteration=1, attempt=3),
        AttemptKey(task_uid="0b5e", iteration=0, attempt=2),
        AttemptKey(task_uid="0b5f", iteration=1, attempt=2),
        AttemptKey(task_uid="0b5e", iteration=12, attempt=1),
    ],
)
def test_no_two_attempts_share_a_token(other: AttemptKey) -> None:
    assert attempt_token(SECRET, other) != attempt_token(SECRET, KEY)


def test_another_installations_token_is_not_ours() -> None:
    assert verified_key(b"t" * 43, attempt_token(SECRET, KEY)) is None


def test_the_proof_of_one_attempt_does_not_fit_the_name_of_another() -> None:
    name, _, _ = attempt_token(SECRET, KEY.model_copy(update={"attempt": 3})).partition(".")
    _, _, proof = attempt_token(SECRET, KEY).partition(".")
    assert verified_key(SECRET, f"{name}.{proof}") is None


def test_a_token_has_one_spelling() -> None:
    token = attempt_token(SECRET, KEY)
    name, _, proof = token.partition(".")
    for other in (f"{name}=.{proof}", f"{name}.{proof}=", f" {token}", f"{token}\n", f"{name}!.{proof}", token.lower()):
        assert verified_key(SECRET, other) is None


@given(st.integers(min_value=0, max_value=80), st.characters(codec="latin-1"))
def test_a_token_with_any_character_changed_is_not_ours(place: int, character: str) -> None:
    token = attempt_token(SECRET, KEY)
    changed = token[:place] + character + token[place + 1 :]
    assert changed == token or verified_key(SECRET, changed) is None


@given(st.text(max_size=600))
def test_any_text_is_refused_without_an_error(text: str) -> None:
    assert verified_key(SECRET, text) is None
