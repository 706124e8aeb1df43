"""Temporal's own development server, with Anima's search attributes."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from temporalio.common import SearchAttributeKey
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.runtime import Runtime
from temporalio.testing import WorkflowEnvironment

from anima.model.wire import INT_ATTRIBUTES, SearchAttribute

# The server's defaults hold back one workflow by tens of milliseconds.
_QUICK = ("history.transferProcessorMaxPollRPS=1000", "history.visibilityProcessorMaxPollRPS=1000")


@asynccontextmanager
async def dev_server(*values: str, runtime: Runtime | None = None) -> AsyncIterator[WorkflowEnvironment]:
    """Start a server that is gone afterwards, with all that it kept.

    Args:
        values: ``key=value`` of its dynamic configuration.
        runtime: of the client.
    """
    attributes = [
        SearchAttributeKey.for_int(name) if name in INT_ATTRIBUTES else SearchAttributeKey.for_keyword(name)
        for name in SearchAttribute
    ]
    async with await WorkflowEnvironment.start_local(
        data_converter=pydantic_data_converter,
        search_attributes=attributes,
        runtime=runtime,
        dev_server_existing_path=str(Path(sys.executable).with_name("temporal")),
        dev_server_extra_args=[part for value in (*_QUICK, *values) for part in ("--dynamic-config-value", value)],
        dev_server_log_level="error",
    ) as environment:
        yield environment
