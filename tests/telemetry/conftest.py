"""A collector, and a time-skipping server for workers that are watched."""

import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.testing import WorkflowEnvironment

from tests.doubles.collector import Collector


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as collector:
        yield collector


@pytest.fixture(scope="module")
async def temporal_address() -> AsyncIterator[str]:
    program = Path(sys.executable).with_name("temporal-test-server")
    environment = await WorkflowEnvironment.start_time_skipping(
        data_converter=pydantic_data_converter, test_server_existing_path=str(program)
    )
    async with environment:
        yield environment.client.service_client.config.target_host
