"""Settings that the orchestrator and the gateway share, from the environment."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError
from temporalio.envconfig import ClientConfigProfile, ClientConnectConfig

from anima.home import DEFAULT_GATEWAY, Home
from anima.model.errors import Refusal
from anima.model.reasons import Reason
from anima.model.units import parse_duration
from anima.model.wire import TASK_QUEUE
from anima.stores.sql import sqlite_url

_DEFAULT_HOST, _, _DEFAULT_PORT = DEFAULT_GATEWAY.removeprefix("http://").rpartition(":")
_DRIVERS = ("postgresql+asyncpg", "sqlite+aiosqlite")
_DEFAULT_TEMPORAL = "127.0.0.1:7233"


@dataclass(frozen=True, slots=True)
class Retention:
    """How long a Session's messages are kept, and how many; none keeps them all."""

    max_age: timedelta | None = None
    max_messages: int | None = None

    @property
    def limited(self) -> bool:
        return self.max_age is not None or self.max_messages is not None


@dataclass(frozen=True, slots=True)
class Settings:
    """Where everything is.  Both processes must be given the same environment."""

    home: Home
    database: URL
    gateway_host: str
    gateway_port: int
    task_queue: str
    model_url: str | None
    """Where the small model answers; none if it is not running."""
    retention: Retention
    temporal: ClientConnectConfig = field(repr=False)
    """For ``Client.connect``: address, namespace, TLS and key."""

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> "Settings":
        """Read every ``ANIMA_`` variable, and Temporal's own.

        Raises:
            Refusal: `SettingInvalid`, naming the variable.
        """
        home = Home.from_environment(environ)
        return cls(
            home=home,
            database=_database(environ, home),
            gateway_host=environ.get("ANIMA_GATEWAY_HOST") or _DEFAULT_HOST,
            gateway_port=_port(environ.get("ANIMA_GATEWAY_PORT") or _DEFAULT_PORT),
            task_queue=environ.get("ANIMA_TASK_QUEUE") or TASK_QUEUE,
            temporal=_temporal(environ),
            model_url=environ.get("ANIMA_MODEL_URL") or None,
            retention=_retention(environ),
        )

    @property
    def gateway_url(self) -> str:
        """The address at which Jobs and the command reach the gateway."""
        host = f"[{self.gateway_host}]" if ":" in self.gateway_host else self.gateway_host
        return f"http://{host}:{self.gateway_port}"


def _database(environ: Mapping[str, str], home: Home) -> URL:
    given = environ.get("ANIMA_DATABASE_URL")
    if not given:
        return sqlite_url(home.database)
    try:
        url = make_url(given)
    except (ArgumentError, ValueError):
        url = None
    if url is None or url.drivername not in _DRIVERS:
        # The address may hold a password, so it is not repeated.
        known = " nor ".join(f"{driver}://…" for driver in _DRIVERS)
        raise _invalid("ANIMA_DATABASE_URL", f"is neither {known}")
    return url


def _port(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 5 and int(text) < 2**16):
        raise _invalid("ANIMA_GATEWAY_PORT", "must be a number from 0 to 65535")
    return int(text)


def _retention(environ: Mapping[str, str]) -> Retention:
    age, count = environ.get("ANIMA_SESSION_MAX_AGE"), environ.get("ANIMA_SESSION_MAX_MESSAGES")
    try:
        max_age = parse_duration(age) if age else None
    except ValueError:
        raise _invalid("ANIMA_SESSION_MAX_AGE", "must be a duration such as 720h") from None
    if count and not (count.isascii() and count.isdecimal() and len(count) <= 9):
        raise _invalid("ANIMA_SESSION_MAX_MESSAGES", "must be a number")
    if max_age is not None and max_age <= timedelta(0):
        raise _invalid("ANIMA_SESSION_MAX_AGE", "must be more than nothing")
    return Retention(max_age, int(count) if count else None)


def _temporal(environ: Mapping[str, str]) -> ClientConnectConfig:
    try:
        profile = ClientConfigProfile.load(override_env_vars=dict(environ))
    except (RuntimeError, ValueError, OSError):
        raise _invalid("Temporal's configuration (TEMPORAL_* or its file)", "cannot be read") from None
    config = profile.to_client_connect_config()
    config.setdefault("target_host", _DEFAULT_TEMPORAL)
    return config


def _invalid(name: str, fault: str) -> Refusal:
    return Refusal(Reason.SETTING_INVALID, f"{name} {fault}")
