"""How the wait for a Task ends, and what is shown of it."""

import asyncio
from typing import Any

import typer

from anima.cli.failures import show
from anima.cli.options import DEFAULT_NAMESPACE, Output
from anima.cli.output import emit, emit_bytes
from anima.cli.progress import Progress
from anima.cli.tables import show_status
from anima.exits import Exit
from anima.gateway import Gateway
from anima.handle import TaskHandle
from anima.model.errors import Unavailable
from anima.model.reasons import Reason
from anima.model.task import Phase, TaskStatus
from anima.model.units import parse_duration


async def until_end(handle: TaskHandle, gateway: Gateway, limit: str | None, *, quiet: bool) -> TaskStatus:
    """Wait for a Task's end, with its progress on standard error unless `quiet`.

    Raises:
        Unavailable: it did not end within `limit`; it goes on.
    """
    try:
        async with asyncio.timeout(parse_duration(limit).total_seconds() if limit else None):
            return await (handle.wait() if quiet else Progress(handle, gateway).until_ended())
    except TimeoutError:
        raise Unavailable(
            f"Task {handle.namespace}/{handle.name} did not end within {limit}; it goes on, "
            f"and `anima wait {_typed(handle)}` waits again"
        ) from None
    except asyncio.CancelledError:
        name = _typed(handle)
        hint = f"`anima wait {name}` waits again, `anima cancel {name}` ends it."
        typer.echo(f"Task {handle.name} goes on; {hint}", err=True)
        raise


def _typed(handle: TaskHandle) -> str:
    return handle.name + (f" -n {handle.namespace}" if handle.namespace != DEFAULT_NAMESPACE else "")


def show_end(status: TaskStatus, output: Output) -> None:
    """Print the final status; exit with 1 unless the Task succeeded."""
    if output is Output.TABLE:
        show_status(status.to_json())
    else:
        emit(status.to_json(), output)
    exit_unless_succeeded(status, output)


async def show_answer(status: TaskStatus, gateway: Gateway, output: Output) -> None:
    """Print the answer; exit with 1 unless the Task succeeded."""
    body: dict[str, Any] = {"status": status.to_json()}
    if status.phase is Phase.SUCCEEDED:
        answer = await gateway.result(status.namespace, status.name)
        body["answer"] = answer.decode()
        if output is Output.TABLE:
            emit_bytes(answer)
    if output is not Output.TABLE:
        emit(body, output)
    exit_unless_succeeded(status, output)


def exit_unless_succeeded(status: TaskStatus, output: Output) -> None:
    """Report why a Task did not succeed and exit with 1."""
    if status.phase is Phase.SUCCEEDED:
        return
    reason = status.reason or Reason.JOB_FAILED
    message = f"Task {status.namespace}/{status.name} ended {status.phase} ({reason})"
    message += f": {status.message}" if status.message else ""
    body = {"reason": reason.value, "message": message, "remedy": reason.remedy}
    show(body, [f"{message}. {reason.remedy}"], as_json=output is Output.JSON)
    raise typer.Exit(Exit.TASK_FAILED)
