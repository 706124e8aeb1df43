"""One attempt: fetch the input, ask the model, report once."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
from http import HTTPStatus
from types import MappingProxyType

import httpx2
from opentelemetry.trace import get_current_span

from anima.model.attempts import AttemptInput, Report
from anima.model.errors import Refusal, Unavailable
from anima.model.reasons import Reason
from anima.telemetry.marks import mark_failed
from workers.ai.answer import Interview, Tally
from workers.ai.environment import JobEnvironment, check_environment, check_input
from workers.ai.gateway import AttemptGateway, AttemptOver
from workers.ai.log import Log, origin
from workers.ai.models import READ_TIMEOUT, open_model
from workers.ai.progress import Progress
from workers.ai.rehearsal import rehearse
from workers.ai.retries import RetryLimits


class ExitCode(IntEnum):
    """How the worker ends.  What counts for the Task is its report."""

    ANSWERED = 0
    FAILED = 1
    """A failure was reported and accepted."""
    UNDELIVERED = 75
    """No report was accepted: the gateway is away, or the attempt is over."""
    REFUSED_TO_START = 78
    """The prompt, the binding or the environment is not the one agreed upon."""
    TERMINATED = 143


_INPUT_LIMITS = RetryLimits(tries=1000, total=120.0, first_delay=0.1, max_delay=5.0)
# An answer has cost time and money: it outlasts a restart of the gateway.
_REPORT_LIMITS = RetryLimits(tries=10_000, total=900.0, first_delay=0.1, max_delay=5.0)
_PROVIDER_LIMITS = RetryLimits(tries=5, total=120.0)


@dataclass(frozen=True, slots=True)
class Patience:
    """How long the worker waits for others, in seconds.  Not for users to set; tests shorten it."""

    input: RetryLimits = _INPUT_LIMITS
    report: RetryLimits = _REPORT_LIMITS
    provider: RetryLimits = _PROVIDER_LIMITS
    read_timeout: float = READ_TIMEOUT
    event_interval: float = 0.25
    last_events: float = 2.0


@dataclass(frozen=True, slots=True)
class Transports:
    """What replaces the network while warming up."""

    gateway: httpx2.AsyncBaseTransport | None = None
    provider: httpx2.AsyncBaseTransport | None = None


async def run_attempt(
    environment: JobEnvironment,
    log: Log,
    patience: Patience = Patience(),
    *,
    trace: Mapping[str, str] = MappingProxyType({}),
    transports: Transports = Transports(),
) -> ExitCode:
    """Do the work of one attempt and report it.

    Args:
        environment: what the Job was started with.
        log: gets ids, digests and numbers only.
        patience: how long to wait for gateway and provider.
        trace: the headers that carry the current trace to the gateway.
        transports: replace the network, to warm up without one.
    """
    gateway = AttemptGateway(
        environment,
        input_limits=patience.input,
        report_limits=patience.report,
        trace=trace,
        transport=transports.gateway,
    )
    attempt = _Attempt(environment, gateway, log, patience, transports)
    async with gateway:
        try:
            report, code = await attempt.work()
            report, code = await _deliver(gateway, report, code)
        except AttemptOver as over:
            log.info("the attempt is over", status=over.status)
            return ExitCode.UNDELIVERED
        except Unavailable as unavailable:
            log.error("the report could not be delivered", message=str(unavailable))
            return ExitCode.UNDELIVERED
    log.info("reported", reason=report.reason, **report.usage.to_json())
    return code


async def _deliver(gateway: AttemptGateway, report: Report, code: ExitCode) -> tuple[Report, ExitCode]:
    try:
        await gateway.report(report)
        return report, code
    except AttemptOver as over:
        if over.status != HTTPStatus.REQUEST_ENTITY_TOO_LARGE or report.answer is None:
            raise
    refused = Report(
        reason=Reason.ANSWER_TOO_LARGE,
        message=f"the gateway does not take an answer of {len(report.answer.encode())} bytes",
        usage=report.usage,
        model=report.model,
    )
    await gateway.report(refused)
    return refused, ExitCode.FAILED


class _Attempt:
    def __init__(
        self,
        environment: JobEnvironment,
        gateway: AttemptGateway,
        log: Log,
        patience: Patience,
        transports: Transports,
    ) -> None:
        self._environment = environment
        self._gateway = gateway
        self._log = log
        self._patience = patience
        self._transports = transports
        self._tally = Tally()

    async def work(self) -> tuple[Report, ExitCode]:
        """Return the report and the exit code for when it is accepted.

        Raises:
            AttemptOver: the attempt is decided.
            Unavailable: the input could not be fetched.
        """
        try:
            system_prompt = check_environment(self._environment)
            given = await self._gateway.input()
            check_input(self._environment, given)
        except Refusal as refusal:
            return self._failure(refusal), ExitCode.REFUSED_TO_START
        self._log.info(
            "started",
            namespace=given.namespace,
            task=given.task,
            system_prompt=given.system_prompt_digest,
            user_prompt=given.user_prompt_digest,
            provider=given.provider.type,
            transcript=given.transcript_ref.digest if given.transcript_ref else None,
        )
        return await self._answered(given, system_prompt)

    async def _answered(self, given: AttemptInput, system_prompt: str) -> tuple[Report, ExitCode]:
        self._tally.model = given.provider.model
        try:
            answer = await self._with_progress(given, system_prompt)
        except Refusal as refusal:
            return self._failure(refusal), ExitCode.FAILED
        except (AttemptOver, Unavailable):
            raise
        except Exception as error:
            # A fault of the worker itself.  Its message might quote anything.
            self._log.error("unexpected error", origin=origin(error))
            fault = Refusal(Reason.JOB_FAILED, f"the worker failed unexpectedly ({origin(error)})")
            return self._failure(fault), ExitCode.FAILED
        return Report(answer=answer, usage=self._tally.usage(), model=self._tally.model[:253]), ExitCode.ANSWERED

    async def _with_progress(self, given: AttemptInput, system_prompt: str) -> str:
        progress = Progress(self._gateway.send, self._patience.event_interval)
        progress.started(given.provider.model)
        if given.transcript is not None:
            progress.transcript(len(given.transcript.messages), given.transcript.left_out_messages)
        answering = asyncio.create_task(self._answer(given, system_prompt, progress))
        pump = asyncio.create_task(progress.pump())
        try:
            # The pump ends before the answer only if nobody listens any more.
            await asyncio.wait({answering, pump}, return_when=asyncio.FIRST_COMPLETED)
            if pump.done():
                await pump
        finally:
            await _ended(pump)
            if not answering.done():
                await _ended(answering)
        await progress.finish(self._patience.last_events)
        return await answering

    async def _answer(self, given: AttemptInput, system_prompt: str, progress: Progress) -> str:
        if given.provider.type == "rehearsal":
            return _rehearsed(given, progress)
        key = self._environment.provider_key
        async with open_model(
            given.provider, key, read_timeout=self._patience.read_timeout, transport=self._transports.provider
        ) as model:
            interview = Interview(model, given.provider, progress, self._patience.provider, self._tally)
            earlier = given.transcript.messages if given.transcript else ()
            return await interview.answer(system_prompt, given.user_prompt, earlier)

    def _failure(self, refusal: Refusal) -> Report:
        self._log.error("failed", reason=refusal.reason, message=refusal.message)
        mark_failed(get_current_span(), refusal)
        return Report(
            reason=refusal.reason,
            message=refusal.message[:4096],
            usage=self._tally.usage(),
            model=self._tally.model[:253],
        )


def _rehearsed(given: AttemptInput, progress: Progress) -> str:
    pieces = list(rehearse(given.user_prompt, len(given.transcript.messages) if given.transcript else None))
    for piece in pieces:
        progress.text(piece)
    return "".join(pieces)


async def _ended(task: "asyncio.Task[object]") -> None:
    task.cancel()
    with suppress(asyncio.CancelledError, Exception):
        await task
