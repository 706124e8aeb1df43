"""Settings from the environment, and what is said of those that cannot be."""

from datetime import timedelta
from pathlib import Path

import pytest

from anima.model.errors import Refusal
from anima.model.reasons import Reason
from workers.settings import Retention, Settings


def settings(home: Path, **environ: str) -> Settings:
    return Settings.from_environment({"ANIMA_HOME": str(home), "HOME": str(home)} | environ)


def test_nothing_but_a_home_is_needed(tmp_path: Path) -> None:
    found = settings(tmp_path / "a home?#%")
    assert found.database.database == str(found.home.database)
    assert found.gateway_url == "http://127.0.0.1:8420"
    assert found.task_queue == "anima"
    assert found.temporal == {"target_host": "127.0.0.1:7233"}
    assert found.model_url is None
    assert not found.retention.limited


def test_everything_can_be_set(tmp_path: Path) -> None:
    found = settings(
        tmp_path,
        ANIMA_DATABASE_URL="postgresql+asyncpg://anima:word@db/anima",
        ANIMA_GATEWAY_HOST="::1",
        ANIMA_GATEWAY_PORT="0",
        ANIMA_TASK_QUEUE="mine",
        ANIMA_MODEL_URL="http://127.0.0.1:1/v1",
        ANIMA_SESSION_MAX_AGE="720h",
        ANIMA_SESSION_MAX_MESSAGES="1000",
        TEMPORAL_ADDRESS="temporal.internal:7233",
        TEMPORAL_NAMESPACE="agents",
        TEMPORAL_API_KEY="key-word",
    )
    assert found.database.host == "db"
    assert found.gateway_url == "http://[::1]:0"
    assert found.task_queue == "mine"
    assert found.model_url == "http://127.0.0.1:1/v1"
    assert (found.temporal["target_host"], found.temporal["namespace"]) == ("temporal.internal:7233", "agents")
    assert found.retention == Retention(timedelta(days=30), 1000)
    assert "word" not in repr(found)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ANIMA_GATEWAY_PORT", "eighty"),
        ("ANIMA_GATEWAY_PORT", "65536"),
        ("ANIMA_GATEWAY_PORT", "-1"),
        ("ANIMA_GATEWAY_PORT", "٨"),
        ("ANIMA_DATABASE_URL", "secret:word"),
        ("ANIMA_DATABASE_URL", "postgresql://anima:word@db/anima"),
        ("ANIMA_DATABASE_URL", "mysql+aiomysql://anima:word@db/anima"),
        ("ANIMA_SESSION_MAX_AGE", "30"),
        ("ANIMA_SESSION_MAX_AGE", "0s"),
        ("ANIMA_SESSION_MAX_MESSAGES", "-1"),
        ("ANIMA_SESSION_MAX_MESSAGES", "many"),
        ("TEMPORAL_PROFILE", "absent"),
    ],
)
def test_a_setting_that_cannot_be_is_named_and_not_repeated(tmp_path: Path, name: str, value: str) -> None:
    with pytest.raises(Refusal, match=name.partition("_")[0]) as caught:
        settings(tmp_path, **{name: value})
    assert caught.value.reason is Reason.SETTING_INVALID
    assert value not in caught.value.message
