"""Digests: exact bytes, canonical JSON, and one spelling."""

import hashlib
import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anima.model.base import MAX_INT
from anima.model.digests import check_digest, digest_bytes, digest_json

EMPTY = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
texts = st.text(st.characters(exclude_categories=["Cs"]))
plain = st.recursive(
    st.none() | st.booleans() | st.integers(-MAX_INT, MAX_INT) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)


@given(st.binary())
def test_the_digest_is_the_sha256_of_exactly_the_bytes(data: bytes):
    assert digest_bytes(data) == "sha256:" + hashlib.sha256(data).hexdigest()
    assert check_digest(digest_bytes(data)) == digest_bytes(data)


def test_the_digest_of_nothing_is_the_well_known_one():
    assert digest_bytes(b"") == EMPTY


def test_json_is_digested_in_canonical_form_after_its_domain():
    expected = hashlib.sha256(b'a.b/1\n{"a":[1,2.5,"\xc3\xa9"],"b":null}').hexdigest()
    assert digest_json("a.b/1", {"b": None, "a": [1, 2.5, "é"]}) == f"sha256:{expected}"


@given(plain, st.randoms(use_true_random=False))
def test_neither_the_order_of_keys_nor_a_trip_through_json_changes_the_digest(value: Any, order: random.Random):
    def shuffled(item: Any) -> Any:
        if isinstance(item, dict):
            keys = list(item)
            order.shuffle(keys)
            return {key: shuffled(item[key]) for key in keys}
        return [shuffled(part) for part in item] if isinstance(item, list) else item

    digest = digest_json("x/1", value)
    assert digest_json("x/1", shuffled(value)) == digest
    assert digest_json("x/1", json.loads(json.dumps(value))) == digest
    assert digest_json("x/2", value) != digest


@pytest.mark.parametrize("value", [2**53, -(2**53), float("nan"), float("inf")])
def test_numbers_that_json_readers_do_not_keep_are_not_digested(value: float):
    with pytest.raises(ValueError, match=r".+"):
        digest_json("x/1", {"n": value})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "sha256:",
        EMPTY.upper(),
        EMPTY.replace("e3b0", "E3B0"),
        EMPTY.removeprefix("sha256:"),
        EMPTY[:-1],
        EMPTY + "0",
        EMPTY[:-1] + "g",
        EMPTY[:-1] + "\n",
        EMPTY + "\n",
        " " + EMPTY,
        "sha512:" + EMPTY[7:],
        "sha256:sha256:" + EMPTY[14:],
        "x" * 71,
        EMPTY[:-1] + "٣",
        "sha256:<replace-with-the-64-character-file-digest>",
    ],
)
def test_only_one_spelling_of_a_digest_is_accepted(text: str):
    with pytest.raises(ValueError, match="64 lowercase hex digits") as caught:
        check_digest(text)
    assert "anima soul digest" in caught.value.args[1]


@given(st.text(max_size=80))
def test_no_other_text_is_a_digest(text: str):
    with pytest.raises(ValueError, match="sha256:"):
        check_digest(text)
