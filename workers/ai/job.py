"""The process of a Job: from its environment to its exit code."""

import asyncio
import os
import signal
from types import FrameType

from anima.model.errors import Refusal
from anima.telemetry.traces import JOB_COLLECTOR, configure_traces
from workers.ai.attempt import ExitCode, run_attempt
from workers.ai.environment import take_environment
from workers.ai.log import job_log, origin, silence_libraries


def main() -> int:
    """Run the attempt that the environment names; return the exit code."""
    signal.signal(signal.SIGTERM, _terminate)
    silence_libraries()
    log = job_log()
    try:
        # Only Anima's own variable counts: others may be the Task's, for its programs.
        traces = configure_traces("anima-ai", {JOB_COLLECTOR: os.environ.get(JOB_COLLECTOR, "")})
        environment = take_environment(os.environ)
        log = job_log(attempt=environment.key.path)
        with traces.attached(os.environ), traces.span("attempt", attempt=environment.key.path):
            code = asyncio.run(run_attempt(environment, log, trace=traces.headers()))
        traces.shutdown()
        return code
    except Refusal as refusal:
        log.error("cannot start", reason=refusal.reason, message=refusal.message)
        return ExitCode.REFUSED_TO_START
    except Exception as error:
        log.error("unexpected error", origin=origin(error))
        return ExitCode.UNDELIVERED


def _terminate(_number: int, _frame: FrameType | None) -> None:
    # There is nothing to put in order, and a library may be in the middle of anything.
    os.write(2, b'{"event": "terminated", "level": "info"}\n')
    os._exit(ExitCode.TERMINATED)
