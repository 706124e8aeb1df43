"""Fixtures that every folder of tests shares."""

import secrets
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from sqlalchemy import URL
from temporalio.common import SearchAttributeKey
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.testing import WorkflowEnvironment

from anima.model.wire import INT_ATTRIBUTES, SearchAttribute
from tests.postgresql import Cluster, cluster

# The server's defaults hold back one workflow by tens of milliseconds.
QUICK = ("history.transferProcessorMaxPollRPS=1000", "history.visibilityProcessorMaxPollRPS=1000")


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def temporal() -> AsyncIterator[WorkflowEnvironment]:
    """One real dev server for the whole run, with Anima's search attributes."""
    attributes = [
        SearchAttributeKey.for_int(name) if name in INT_ATTRIBUTES else SearchAttributeKey.for_keyword(name)
        for name in SearchAttribute
    ]
    async with await WorkflowEnvironment.start_local(
        data_converter=pydantic_data_converter,
        search_attributes=attributes,
        dev_server_existing_path=str(Path(sys.executable).with_name("temporal")),
        dev_server_extra_args=[part for value in QUICK for part in ("--dynamic-config-value", value)],
        dev_server_log_level="error",
    ) as environment:
        yield environment


@pytest.fixture(scope="session")
def postgresql_cluster() -> Iterator[Cluster]:
    """One real PostgreSQL for the whole run."""
    with cluster() as running:
        yield running


@pytest.fixture
def postgresql(postgresql_cluster: Cluster) -> Iterator[URL]:
    """An empty database of the test's own."""
    with postgresql_cluster.database(f"anima-{secrets.token_hex(4)}") as address:
        yield address
