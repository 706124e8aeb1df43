"""Names: DNS labels, and names after the cause of a side effect."""

import re

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from anima.model.base import MAX_INT
from anima.model.names import MAX_LABEL, check_label, job_name, workflow_id

LABEL = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)
labels = st.from_regex(LABEL, fullmatch=True)
uids = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=128)
iterations = st.integers(0, MAX_INT)
attempts = st.integers(1, MAX_INT)
causes = st.tuples(uids, iterations, attempts)


@given(labels)
@example("a")
@example("0")
@example("a" * 63)
@example("a--b")
def test_a_dns_label_is_a_name(name: str):
    assert check_label(name) == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        "a" * 64,
        "-a",
        "a-",
        "-",
        "A",
        "a_b",
        "a.b",
        "a b",
        "a/b",
        "é",
        "\uff41",
        "\u0661",
        "a\n",
        "\n",
        "a\0",
        "..",
        "\ud800",
    ],
)
def test_anything_else_is_no_name_and_the_remedy_says_what_is(name: str):
    with pytest.raises(ValueError, match="must") as caught:
        check_label(name)
    assert len(caught.value.args) == 2


@given(st.text("ab0-_A.é\n", max_size=70))
def test_the_rule_is_that_of_a_dns_label(name: str):
    try:
        accepted = check_label(name) == name
    except ValueError:
        accepted = False
    assert accepted == bool(LABEL.fullmatch(name))


def test_the_workflow_is_named_after_its_task():
    assert workflow_id("default", "review") == "task/default/review"


def test_a_job_name_says_its_cause():
    # The eight digits are those of the uid's SHA-256; a Job in flight is found by them.
    assert job_name("review", "uid-1", 0, 1) == "review-4a49acf8-i0-a1"


@given(labels, causes)
@example("a" * 63, ("u", MAX_INT, MAX_INT))
@example("a" + "-" * 61 + "b", ("u", 0, 1))
def test_a_job_name_is_a_label_that_keeps_its_suffix(task: str, cause: tuple[str, int, int]):
    uid, iteration, attempt = cause
    name = job_name(task, uid, iteration, attempt)
    assert check_label(name) == name
    assert len(name) <= MAX_LABEL
    assert re.search(rf"-[0-9a-f]{{8}}-i{iteration}-a{attempt}$", name)
    assert name == job_name(task, uid, iteration, attempt)


@given(labels, causes)
@example("a" + "-" * 61 + "b", ("u", 0, 1))
def test_a_job_name_begins_with_as_much_of_the_task_as_fits(task: str, cause: tuple[str, int, int]):
    name = job_name(task, *cause)
    head = re.sub(r"-[0-9a-f]{8}-i\d+-a\d+$", "", name)
    assert head
    assert not head.endswith("-")
    assert task.startswith(head)
    assert head == task or len(name) + 1 > MAX_LABEL or task[len(head)] == "-"


@given(labels, causes, causes)
@example("a" * 63, ("u", 1, 11), ("u", 11, 1))
@example("a", ("u", 0, 1), ("u", 0, 2))
@example("a", ("u", 0, 1), ("u", 1, 1))
@example("a", ("u", 0, 1), ("v", 0, 1))
def test_distinct_causes_have_distinct_jobs(task: str, one: tuple[str, int, int], other: tuple[str, int, int]):
    assume(one != other)
    assert job_name(task, *one) != job_name(task, *other)
