"""The contract of the Catalog port."""

import asyncio
from typing import Any

import pytest

from anima.model.agent import Agent
from anima.model.errors import AnimaError, Conflict, NotFound
from anima.model.provider import Provider
from anima.model.resources import ConfigMap, Resource, Secret
from anima.stores.ports import Catalog, Change

SOUL = "# Reviewer\r\nBe direct. Costs $5, ${HOME} and {{x}} stay.\n\ufeffGrüße 🦊\t"


def agent(role: str = "Review the change.", **metadata: Any) -> Agent:
    return Agent.model_validate({
        "apiVersion": "anima.dev/v1alpha1",
        "kind": "Agent",
        "metadata": {"name": "reviewer"} | metadata,
        "spec": {"systemPrompt": {"inline": role}, "soul": {"inline": SOUL}, "resources": {"limits": {"cpu": "500m"}}},
    })  # fmt: skip


def config_map(data: dict[str, str], *, immutable: bool = True, **metadata: Any) -> ConfigMap:
    return ConfigMap.model_validate({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "soul-v1"} | metadata,
        "immutable": immutable,
        "data": data,
    })  # fmt: skip


PROVIDER = Provider.model_validate({
    "apiVersion": "anima.dev/v1alpha1",
    "kind": "Provider",
    "metadata": {"name": "house"},
    "spec": {"type": "openai-compatible", "baseURL": "http://127.0.0.1:1/v1", "defaultModel": "small"},
})  # fmt: skip
SECRET = Secret.model_validate({
    "apiVersion": "v1",
    "kind": "Secret",
    "metadata": {"name": "key", "annotations": {"note": "n"}},
    "stringData": {"token": "s3cret"},
})  # fmt: skip


def revision(resource: Resource) -> int:
    return int(resource.metadata.resource_version or "")


@pytest.mark.parametrize(
    "resource", [agent(), PROVIDER, config_map({"SOUL.md": SOUL}), SECRET], ids=lambda resource: resource.kind
)
async def test_each_kind_is_read_back_as_it_was_applied(catalog: Catalog, resource: Resource) -> None:
    applied = await catalog.apply(resource)
    found = await catalog.get(type(resource), "default", resource.name)
    assert found == applied.resource
    assert found.content() == resource.content()
    assert (found.metadata.labels, found.metadata.annotations) == (
        resource.metadata.labels,
        resource.metadata.annotations,
    )


async def test_a_soul_is_read_back_byte_for_byte(catalog: Catalog) -> None:
    await catalog.apply(agent())
    await catalog.apply(config_map({"SOUL.md": SOUL}))
    soul = (await catalog.get(Agent, "default", "reviewer")).spec.soul
    assert soul is not None
    assert soul.inline is not None
    assert soul.inline.encode() == SOUL.encode()
    assert (await catalog.get(ConfigMap, "default", "soul-v1")).data["SOUL.md"].encode() == SOUL.encode()


async def test_a_nul_is_stored_as_it_is(catalog: Catalog) -> None:
    await catalog.apply(config_map({"key": "a\0b"}))
    assert (await catalog.get(ConfigMap, "default", "soul-v1")).data["key"].reveal() == "a\0b"


async def test_the_store_sets_identity_generation_and_time_at_creation(catalog: Catalog, clock: Any) -> None:
    applied = await catalog.apply(agent(generation=7))
    assert applied.change is Change.CREATED
    assert (applied.resource.uid, applied.resource.generation) == ("uid-1", 1)
    assert applied.resource.metadata.creation_timestamp == clock.now


async def test_an_unchanged_apply_writes_nothing(catalog: Catalog, clock: Any) -> None:
    first = await catalog.apply(agent())
    clock.advance(seconds=1)
    again = await catalog.apply(agent())
    assert again.change is Change.UNCHANGED
    assert again.resource == first.resource
    other = await catalog.apply(PROVIDER)
    assert revision(other.resource) == revision(first.resource) + 1


async def test_what_was_read_can_be_applied_again(catalog: Catalog) -> None:
    await catalog.apply(agent())
    assert (await catalog.apply(await catalog.get(Agent, "default", "reviewer"))).change is Change.UNCHANGED


async def test_equal_quantities_are_no_change(catalog: Catalog) -> None:
    await catalog.apply(agent())
    spec = agent().to_json()
    spec["spec"]["resources"]["limits"]["cpu"] = "0.5"
    assert (await catalog.apply(Agent.model_validate(spec))).change is Change.UNCHANGED


async def test_a_changed_spec_raises_the_generation_and_keeps_the_uid(catalog: Catalog, clock: Any) -> None:
    first = (await catalog.apply(agent())).resource
    clock.advance(hours=1)
    changed = await catalog.apply(agent(role="Review it twice."))
    assert changed.change is Change.CONFIGURED
    assert (changed.resource.uid, changed.resource.generation) == (first.uid, 2)
    assert changed.resource.metadata.creation_timestamp == first.metadata.creation_timestamp
    assert revision(changed.resource) > revision(first)
    assert await catalog.get(Agent, "default", "reviewer") == changed.resource


@pytest.mark.parametrize("field", ["labels", "annotations"])
async def test_a_changed_label_changes_the_resource_version_only(catalog: Catalog, field: str) -> None:
    first = (await catalog.apply(agent())).resource
    changed = await catalog.apply(agent(**{field: {"team": "core"}}))
    assert changed.change is Change.CONFIGURED
    assert changed.resource.generation == 1
    assert revision(changed.resource) > revision(first)


async def test_reverting_the_text_is_another_generation(catalog: Catalog) -> None:
    for role in ("one", "two", "one"):
        last = await catalog.apply(agent(role=role))
    assert last.resource.generation == 3


async def test_a_current_resource_version_is_accepted(catalog: Catalog) -> None:
    first = (await catalog.apply(agent())).resource
    current = {"resourceVersion": first.metadata.resource_version, "uid": first.uid}
    assert (await catalog.apply(agent(role="other", **current))).change is Change.CONFIGURED


async def test_a_stale_resource_version_is_a_conflict_that_changes_nothing(catalog: Catalog) -> None:
    first = (await catalog.apply(agent())).resource
    second = (await catalog.apply(agent(role="two"))).resource
    with pytest.raises(Conflict, match="resourceVersion"):
        await catalog.apply(agent(role="three", resourceVersion=first.metadata.resource_version))
    assert await catalog.get(Agent, "default", "reviewer") == second


async def test_another_uid_is_a_conflict(catalog: Catalog) -> None:
    await catalog.apply(agent())
    with pytest.raises(Conflict, match=r"metadata\.uid"):
        await catalog.apply(agent(role="two", uid="uid-of-another"))


@pytest.mark.parametrize("meta", [{"uid": "uid-1"}, {"resourceVersion": "1"}], ids=["uid", "resourceVersion"])
async def test_an_update_of_what_is_gone_is_a_conflict(catalog: Catalog, meta: dict[str, str]) -> None:
    await catalog.apply(agent())
    await catalog.delete(Agent, "default", "reviewer")
    with pytest.raises(Conflict, match="does not exist any more"):
        await catalog.apply(agent(**meta))


async def test_a_recreated_object_is_another_one(catalog: Catalog) -> None:
    await catalog.apply(agent())
    old = (await catalog.apply(agent(role="two"))).resource
    await catalog.delete(Agent, "default", "reviewer")
    new = (await catalog.apply(agent(role="two"))).resource
    assert new.uid != old.uid
    assert new.generation == 1
    assert revision(new) > revision(old)


async def test_the_data_of_an_immutable_config_map_cannot_change(catalog: Catalog) -> None:
    stored = (await catalog.apply(config_map({"SOUL.md": SOUL}))).resource
    for change in (config_map({"SOUL.md": "other"}), config_map({}), config_map({"SOUL.md": SOUL, "more": ""})):
        with pytest.raises(Conflict, match="under a new name"):
            await catalog.apply(change)
    assert await catalog.get(ConfigMap, "default", "soul-v1") == stored


async def test_immutable_cannot_be_unset(catalog: Catalog) -> None:
    await catalog.apply(config_map({"SOUL.md": SOUL}))
    with pytest.raises(Conflict, match="immutable"):
        await catalog.apply(config_map({"SOUL.md": SOUL}, immutable=False))


async def test_an_immutable_config_map_may_get_labels(catalog: Catalog) -> None:
    await catalog.apply(config_map({"SOUL.md": SOUL}))
    assert (await catalog.apply(config_map({"SOUL.md": SOUL}, labels={"a": "b"}))).change is Change.CONFIGURED


async def test_a_config_map_can_become_immutable(catalog: Catalog) -> None:
    await catalog.apply(config_map({"k": "1"}, immutable=False))
    await catalog.apply(config_map({"k": "2"}, immutable=False))
    assert (await catalog.apply(config_map({"k": "2"}))).resource.generation == 3
    with pytest.raises(Conflict):
        await catalog.apply(config_map({"k": "3"}))


async def test_a_dry_run_tells_what_would_be_and_writes_nothing(catalog: Catalog, other_catalog: Catalog) -> None:
    would_be = await catalog.apply(agent(), dry_run=True)
    assert (would_be.change, would_be.resource.generation) == (Change.CREATED, 1)
    assert await other_catalog.list(Agent) == []
    stored = (await catalog.apply(agent())).resource
    assert (await catalog.apply(agent(), dry_run=True)).change is Change.UNCHANGED
    would_be = await catalog.apply(agent(role="two"), dry_run=True)
    assert (would_be.change, would_be.resource.generation) == (Change.CONFIGURED, 2)
    assert await other_catalog.get(Agent, "default", "reviewer") == stored
    following = await other_catalog.apply(PROVIDER)
    assert revision(following.resource) == revision(stored) + 1


async def test_a_dry_run_is_a_conflict_where_the_write_would_be(catalog: Catalog) -> None:
    await catalog.apply(agent())
    await catalog.apply(config_map({"SOUL.md": SOUL}))
    for change in (
        agent(role="two", resourceVersion="0"),
        agent(role="two", uid="uid-of-another"),
        agent(name="gone", uid="uid-1"),
        config_map({"SOUL.md": "other"}),
    ):
        with pytest.raises(Conflict):
            await catalog.apply(change, dry_run=True)


async def test_names_are_apart_by_namespace_and_kind(catalog: Catalog) -> None:
    here = (await catalog.apply(agent())).resource
    there = (await catalog.apply(agent(namespace="team"))).resource
    await catalog.apply(config_map({}, name="reviewer"))
    assert here.uid != there.uid
    await catalog.delete(Agent, "team", "reviewer")
    assert await catalog.get(Agent, "default", "reviewer") == here
    assert (await catalog.get(ConfigMap, "default", "reviewer")).data == {}


async def test_a_list_is_ordered_by_namespace_and_name(catalog: Catalog) -> None:
    for namespace, name in (("b", "x"), ("a", "z"), ("a", "y")):
        await catalog.apply(agent(namespace=namespace, name=name))
    await catalog.apply(PROVIDER)
    every = [(found.namespace, found.name) for found in await catalog.list(Agent)]
    assert every == [("a", "y"), ("a", "z"), ("b", "x")]
    assert [found.name for found in await catalog.list(Agent, "a")] == ["y", "z"]
    assert await catalog.list(Agent, "none") == []


async def test_what_does_not_exist_is_not_found(catalog: Catalog) -> None:
    with pytest.raises(NotFound, match="no Agent reviewer in namespace default"):
        await catalog.get(Agent, "default", "reviewer")
    with pytest.raises(NotFound, match="no Agent reviewer in namespace default"):
        await catalog.delete(Agent, "default", "reviewer")


async def test_a_deletion_spares_an_object_with_another_uid(catalog: Catalog) -> None:
    stored = (await catalog.apply(agent())).resource
    with pytest.raises(Conflict, match="uid-1"):
        await catalog.delete(Agent, "default", "reviewer", uid="uid-of-another")
    assert await catalog.get(Agent, "default", "reviewer") == stored
    await catalog.delete(Agent, "default", "reviewer", uid=stored.uid)
    assert await catalog.list(Agent) == []


async def test_of_racing_creations_one_creates(catalog: Catalog, other_catalog: Catalog) -> None:
    for number in range(25):
        racers = [catalog, other_catalog] * 2
        done = await asyncio.gather(*(racer.apply(agent(name=f"r{number}")) for racer in racers))
        assert sorted(applied.change for applied in done) == [Change.CREATED] + [Change.UNCHANGED] * 3
        assert len({applied.resource.uid for applied in done}) == 1


async def test_of_racing_updates_of_one_version_one_wins(catalog: Catalog, other_catalog: Catalog) -> None:
    stored = (await catalog.apply(agent())).resource
    for number in range(25):
        current = stored.metadata.resource_version
        racers = enumerate([catalog, other_catalog] * 2)
        done = await asyncio.gather(
            *(racer.apply(agent(role=f"{number} {index}", resourceVersion=current)) for index, racer in racers),
            return_exceptions=True,
        )
        won = [one for one in done if not isinstance(one, BaseException)]
        assert [type(one) for one in done if isinstance(one, BaseException)] == [Conflict] * 3
        stored = won[0].resource
        assert stored.generation == number + 2


async def test_racing_writes_share_no_resource_version(catalog: Catalog, other_catalog: Catalog) -> None:
    writes = [racer.apply(agent(name=f"a{n}")) for n in range(20) for racer in (catalog, other_catalog)]
    done = await asyncio.gather(*writes)
    created = [applied.resource for applied in done if applied.change is Change.CREATED]
    assert len({revision(resource) for resource in created}) == 20


async def test_messages_hold_no_content(catalog: Catalog) -> None:
    await catalog.apply(config_map({"SOUL.md": SOUL}))
    with pytest.raises(AnimaError) as caught:
        await catalog.apply(config_map({"SOUL.md": "another secret persona"}))
    assert "persona" not in str(caught.value)
    assert "Be direct" not in str(caught.value)
