"""Manifest files: YAML 1.2, JSON, limits, bombs, and where each fault is."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ruamel.yaml.tag import Tag

from anima.documents import MAX_TAG, read_documents
from anima.manifests import MAX_FILE_BYTES, LocatedProblem, load_manifests, load_text
from anima.model.agent import Agent
from anima.model.errors import NotFound, Refusal
from anima.model.reasons import Reason
from anima.model.resources import ConfigMap

AGENT = "apiVersion: anima.dev/v1alpha1\nkind: Agent\nmetadata: {name: heron}\n"


def refused(text: str | bytes, namespace: str | None = None) -> Refusal:
    with pytest.raises(Refusal) as caught:
        load_text(text if isinstance(text, bytes) else text.encode(), "a.yaml", namespace)
    return caught.value


def only(text: str | bytes) -> LocatedProblem:
    (problem,) = refused(text).problems
    assert isinstance(problem, LocatedProblem)
    return problem


def data_of(text: str) -> Any:
    (document,) = read_documents(text)
    assert document.problems == []
    return document.data


def soul_of(text: str | bytes) -> str:
    (resource,) = load_text(text if isinstance(text, bytes) else text.encode(), "a.yaml")
    assert isinstance(resource, Agent)
    assert resource.spec.soul is not None
    assert resource.spec.soul.inline is not None
    return resource.spec.soul.inline.reveal()


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("no", "no"),
        ("on", "on"),
        ("Yes", "Yes"),
        ("true", True),
        ("FALSE", False),
        ("~", None),
        ("", None),
        ("0755", 755),
        ("0o17", 15),
        ("0x1F", 31),
        ("-12", -12),
        ("1_000", "1_000"),
        ("12:30", "12:30"),
        ("2026-12-01", "2026-12-01"),
        ("2026-12-01T10:00:00Z", "2026-12-01T10:00:00Z"),
        ("1.5e3", 1500.0),
        ("1e3", 1000.0),
        ("'5'", "5"),
        ("!!str 5", "5"),
        ("!!int 5", 5),
        ("!!float 5", 5.0),
        ("! 5", "5"),
    ],
)
def test_scalars_follow_the_core_schema_of_yaml_1_2(text: str, value: Any):
    found = data_of(f"a: {text}\n")["a"]
    assert found == value
    assert type(found) is type(value)


def test_documents_are_numbered_as_they_stand_and_empty_ones_skipped():
    text = f"---\n---\n{AGENT}spec: {{}}\n---\n# only a comment\n---\nkind: Nothing\n"
    problem = only(text)
    assert (problem.document, problem.line, problem.path) == (4, 10, "kind")


def test_problems_of_all_documents_and_files_come_at_once_with_lines(tmp_path: Path):
    (tmp_path / "a.yaml").write_text(f"{AGENT}spec:\n  sowl: {{}}\n---\n{AGENT}spec:\n  model:\n    maxTokens: x\n")
    (tmp_path / "b.json").write_text('{"kind": "Agnet"}')
    (tmp_path / "c.yml").write_text("a: [")
    (tmp_path / "notes.txt").write_text("not a manifest")
    with pytest.raises(Refusal) as caught:
        load_manifests([str(tmp_path)], io.BytesIO())
    found = [(Path(p.source).name, p.document, p.line, p.path) for p in caught.value.problems]
    assert found == [
        ("a.yaml", 1, 5, "spec.sowl"),
        ("a.yaml", 2, 12, "spec.model.maxTokens"),
        ("b.json", 1, None, "kind"),
        ("c.yml", 1, 1, ""),
    ]
    assert caught.value.reason is Reason.RESOURCE_INVALID


def test_a_problem_reads_as_one_line_with_file_document_path_and_remedy():
    text = str(only(f"{AGENT}spec: {{sowl: {{}}}}\n"))
    assert text == "a.yaml:4 (document 1): spec.sowl: unknown field (did you mean soul?)"


def test_duplicate_keys_are_refused_with_both_lines():
    problem = only(f"{AGENT}spec:\n  model: {{}}\n  model: {{}}\n")
    assert problem.path == "spec.model"
    assert "lines 5 and 6" in problem.message


def test_duplicate_keys_in_json_are_refused():
    text = '{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"a": "1", "a": "2"}}'
    assert only(text).path == "data.a"


@pytest.mark.parametrize("key", ["1", "true", "~", "1.5", "[a]", "{a: b}"])
def test_keys_that_are_not_text_are_refused(key: str):
    assert "key that is not text" in only(f"{AGENT}spec: {{}}\n{key}: x\n").message


@pytest.mark.parametrize("tag", ["!!python/object/apply:os.system", "!foo", "!!binary", "!!timestamp", "!!set"])
def test_tags_outside_the_core_schema_are_refused(tag: str):
    problem = only(f"{AGENT}spec:\n  model:\n    name: {tag} x\n")
    assert problem.path == "spec.model.name"
    assert "tag" in problem.message


def test_a_tag_that_its_value_contradicts_is_refused():
    assert "tag" in only(f"{AGENT}spec:\n  model:\n    name: !!int x\n").message


def test_merge_keys_are_refused_in_words():
    assert "merge key" in refused(f"{AGENT}spec: &s {{}}\n<<: *s\n").problems[0].message


def test_anchors_and_aliases_are_expanded():
    assert data_of("a: &x [1, 2]\nb: *x\n") == {"a": [1, 2], "b": [1, 2]}


def test_an_anchor_bomb_of_values_is_refused_before_it_expands():
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    assert "larger than" in only("\n".join(lines)).message


def test_an_anchor_bomb_of_long_text_is_refused():
    text = f"a: &a {'x' * 1_000_000}\nb: [{', '.join(['*a'] * 100)}]\n"
    assert "characters" in only(text).message


@pytest.mark.parametrize("text", ["a: &a [*a]", "&a {b: *a}", "a: &a {b: {c: *a}}"])
def test_an_alias_to_what_contains_it_is_refused(text: str):
    assert "refers to itself" in only(text).message


def test_an_unknown_alias_is_refused_with_its_line():
    problem = only("a: 1\nb: *nowhere\n")
    assert (problem.path, problem.line) == ("b", 2)


@pytest.mark.parametrize(
    "text", ["[" * 100_000, "a: " + "{a: " * 100, '{"a":' * 100_000, '{"a":' + "[" * 70 + "]" * 70 + "}"]
)
def test_deep_nesting_is_refused(text: str):
    assert "deeper than 64" in refused(text).problems[0].message or "not YAML" in refused(text).problems[0].message


def test_depth_reached_through_aliases_counts():
    lines = ["a0: &a0 [x]"] + [f"a{n}: &a{n} [*a{n - 1}]" for n in range(1, 70)]
    assert "deeper than 64" in only("\n".join(lines)).message


@pytest.mark.parametrize(
    "text", ["!" * (MAX_FILE_BYTES - 1), "a: !" + "%41" * 1_000_000 + " x", f"%TAG !t! {'x' * 1_000_000}\n---\n!t!a x"]
)
def test_a_long_tag_is_refused_unread(text: str, monkeypatch: pytest.MonkeyPatch):
    # Reading one takes the square of its length.
    read: list[Tag] = []
    monkeypatch.setattr(Tag, "trval", property(read.append))
    assert f"a tag of more than {MAX_TAG} characters" in only(text).message
    assert read == []


def test_a_file_over_the_limit_is_refused_unparsed(tmp_path: Path):
    path = tmp_path / "big.yaml"
    path.write_bytes(b"[" * (10 * 1024 * 1024))
    with pytest.raises(Refusal) as caught:
        load_manifests([str(path)], io.BytesIO())
    (problem,) = caught.value.problems
    assert str(MAX_FILE_BYTES) in problem.message


@pytest.mark.parametrize("number", ["9007199254740992", "-9007199254740992", "1" * 5000, "0x" + "f" * 5000])
def test_integers_that_json_readers_round_are_refused(number: str):
    problem = only(f"{AGENT}spec: {{model: {{maxTokens: {number}}}}}\n")
    assert problem.path == "spec.model.maxTokens"
    assert "2^53-1" in problem.message


@pytest.mark.parametrize("number", [".inf", "-.INF", ".nan", "1e999"])
def test_numbers_that_are_not_finite_are_refused(number: str):
    assert "finite" in only(f"{AGENT}spec: {{model: {{temperature: {number}}}}}\n").message


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e999"])
def test_numbers_that_are_not_finite_are_refused_in_json(number: str):
    text = (
        '{"apiVersion":"anima.dev/v1alpha1","kind":"Agent","metadata":{"name":"a"},"spec":{"model":{"temperature":%s}}}'
    )
    assert "finite" in only(text % number).message


def test_lone_surrogate_escapes_are_refused_by_path():
    problem = only(f'{AGENT}spec: {{soul: {{inline: "a\\ud800"}}}}\n')
    assert problem.path == "spec.soul.inline"
    assert "surrogate" in problem.message


def test_surrogate_pairs_in_json_are_one_character():
    body = {"apiVersion": "anima.dev/v1alpha1", "kind": "Agent", "metadata": {"name": "a"}}
    assert soul_of(json.dumps({**body, "spec": {"soul": {"inline": "🦩"}}})) == "🦩"


def test_invalid_utf8_is_refused_with_the_byte():
    data = f"{AGENT}spec:\n  soul: {{inline: ".encode()
    problem = only(data + b"\xff}\n")
    assert f"byte {len(data)}" in problem.message
    assert problem.line == 5


@pytest.mark.parametrize("character", ["\x00", "\x1b", "\x85", "\u2028"])
def test_characters_that_yaml_would_refuse_or_change_are_refused(character: str):
    problem = only(f"{AGENT}spec:\n  soul:\n    inline: |\n      a{character}b\n")
    assert f"U+{ord(character):04X}" in problem.message
    assert problem.line == 7


def test_yaml_syntax_errors_name_the_line_and_quote_nothing():
    problem = only(f"{AGENT}spec:\n  soul:\n    inline: You are Vesper: calm\n")
    assert problem.line == 6
    assert "Vesper" not in str(problem)


def test_a_directive_for_an_older_yaml_is_refused():
    assert "1.2" in only(f"%YAML 1.1\n---\n{AGENT}spec: {{}}\n").message


@pytest.mark.parametrize("text", ["$(HOME) $$ {{x}} @file", "\ufeffa", "%d é 🦩"])
def test_a_soul_in_a_block_arrives_byte_for_byte(text: str):
    assert soul_of(f"{AGENT}spec:\n  soul:\n    inline: |\n      {text}\n") == f"{text}\n"


def test_crlf_survives_as_escapes_and_is_normalised_in_blocks():
    assert soul_of(f'{AGENT}spec: {{soul: {{inline: "a\\r\\nb\\r"}}}}\n') == "a\r\nb\r"
    block = f"{AGENT}spec:\n  soul:\n    inline: |\n      a\n      b\n".replace("\n", "\r\n")
    assert soul_of(block) == "a\nb\n"


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(str.strip))
def test_any_text_written_as_json_is_the_same_text(text: str):
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"SOUL.md": text}}
    for ascii_only in (True, False):
        (resource,) = load_text(json.dumps(body, ensure_ascii=ascii_only).encode(), "a.json")
        assert isinstance(resource, ConfigMap)
        assert resource.data["SOUL.md"].reveal() == text


def test_a_byte_order_mark_before_the_file_is_not_content():
    for text in (
        f"{AGENT}spec: {{}}\n",
        json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}}),
    ):
        assert len(load_text(("\ufeff" + text).encode(), "a")) == 1


def test_two_documents_of_one_name_are_refused_across_files(tmp_path: Path):
    for name in ("a.yaml", "b.yaml"):
        (tmp_path / name).write_text(f"{AGENT}spec: {{}}\n")
    with pytest.raises(Refusal) as caught:
        load_manifests([str(tmp_path)], io.BytesIO())
    (problem,) = caught.value.problems
    assert Path(problem.source).name == "b.yaml"
    assert "Agent default/heron" in problem.message


def test_one_name_in_two_namespaces_or_kinds_is_no_conflict():
    text = f"{AGENT}spec: {{}}\n---\n{AGENT.replace('heron', 'heron, namespace: fish')}spec: {{}}\n"
    assert len(load_text(text.encode(), "a")) == 2


def test_a_namespace_that_contradicts_the_option_is_refused():
    text = AGENT.replace("heron", "heron, namespace: fish") + "spec: {}\n"
    (problem,) = refused(text, "birds").problems
    assert problem.path == "metadata.namespace"
    (resource,) = load_text(f"{AGENT}spec: {{}}\n".encode(), "a", "birds")
    assert resource.namespace == "birds"


def test_standard_input_is_read_for_a_dash():
    (resource,) = load_manifests(["-"], io.BytesIO(f"{AGENT}spec: {{}}\n".encode()))
    assert resource.name == "heron"


def test_a_missing_file_and_a_directory_without_manifests_are_not_found(tmp_path: Path):
    for place in (tmp_path / "missing.yaml", tmp_path):
        with pytest.raises(NotFound, match=str(place)):
            load_manifests([str(place)], io.BytesIO())
