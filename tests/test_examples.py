"""The examples: what the README tells people to apply."""

import sys
from pathlib import Path

import pytest

from anima.manifests import load_manifests
from anima.model.agent import Agent
from anima.model.digests import digest_bytes
from anima.model.provider import Provider
from anima.model.resources import ConfigMap

EXAMPLES = Path(__file__).parent.parent / "examples"


@pytest.mark.parametrize("place", ["reviewer", "hello.yaml"])
def test_an_example_is_whole(place: str) -> None:
    found = load_manifests([str(EXAMPLES / place)], sys.stdin.buffer)
    providers = {item.name for item in found if isinstance(item, Provider)}
    agents = [item for item in found if isinstance(item, Agent)]
    assert agents
    for agent in agents:
        assert agent.spec.soul is not None
        assert agent.spec.provider_ref is not None
        assert agent.spec.provider_ref.name in providers


def test_the_reviewers_digest_is_that_of_its_published_soul() -> None:
    found = load_manifests([str(EXAMPLES / "reviewer")], sys.stdin.buffer)
    (agent,) = [item for item in found if isinstance(item, Agent)]
    (published,) = [item for item in found if isinstance(item, ConfigMap)]
    assert agent.spec.soul is not None
    reference = agent.spec.soul.config_map_ref
    assert reference is not None
    assert reference.name == published.name
    assert agent.spec.soul.digest == digest_bytes(published.data[reference.key].encode())
