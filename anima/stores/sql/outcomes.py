"""Outcomes in the Ledger: what was reported of an attempt, and how it ended.

An outcome is decided by one statement
that finds none yet, so whoever comes second reads what the first decided.
"""

from typing import Any

from sqlalchemy import ColumnElement, Row, and_, exists, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from anima.model.attempts import MAX_RESULT_BYTES, AttemptKey, Outcome, Report, Usage
from anima.model.digests import digest_bytes
from anima.model.errors import Conflict, NotFound, Refusal
from anima.model.reasons import Reason
from anima.model.task import ResultReference
from anima.stores.sql.attempts import at, no_attempt
from anima.stores.sql.engine import SqlStore, guarded
from anima.stores.sql.tables import attempts
from anima.stores.sql.tasks import require_open

_SILENT = "the worker's report does not say why"
_DECISION = (attempts.c.outcome, attempts.c.report_digest)


class SqlOutcomes(SqlStore):
    """Outcomes and results, kept in the attempts' rows."""

    @guarded
    async def decide(self, key: AttemptKey, outcome: Outcome, usage: Usage | None = None) -> Outcome:
        """Set a failure as the outcome unless one is decided; return the one that counts.

        Raises:
            ValueError: the outcome is a success, which only a report can decide.
        """
        if outcome.succeeded:
            raise ValueError("a success is decided by a report, which brings the result")
        values = {"usage": usage.model_dump_json()} if usage else {}
        async with self._writes.begin() as connection:
            return Outcome.model_validate_json((await self._settle(connection, key, outcome, values)).outcome)

    @guarded
    async def report(self, key: AttemptKey, report: Report) -> Outcome:
        """Store a worker's report and decide the outcome by it.

        Without an answer and without a reason the attempt has failed with `JobFailed`;
        an answer of blanks is a failure with `AnswerBlank`.

        Raises:
            Conflict: the attempt was decided otherwise before, or its Task is closed without it.
            Refusal: `AnswerTooLarge`, or `RequestRefused` if it has both answer and reason.
        """
        result = _result(key, report)
        mark = digest_bytes(report.model_dump_json().encode())
        values = {
            "usage": report.usage.model_dump_json(),
            "model": report.model,
            "report_digest": mark,
            "result": result,
        }
        async with self._writes.begin() as connection:
            if await connection.scalar(select(exists().where(_undecided(key)))):
                await require_open(connection, key.task_uid)
            stored = await self._settle(connection, key, _outcome(key, report, result), values)
        decided = Outcome.model_validate_json(stored.outcome)
        if stored.report_digest != mark:
            raise Conflict(
                f"attempt {key.path} was already decided as {decided.reason or 'succeeded'}; "
                "the report comes too late and is not stored"
            )
        return decided

    @guarded
    async def result(self, key: AttemptKey) -> str:
        """Return the answer of a succeeded attempt."""
        async with self._reads.connect() as connection:
            found = (await connection.execute(select(attempts.c.result).where(at(attempts, key)))).one_or_none()
        if found is None:
            raise no_attempt(key)
        if found.result is None:
            raise NotFound(f"attempt {key.path} has no result, as it has not succeeded; read its status for the reason")
        return bytes(found.result).decode()

    async def _settle(
        self, connection: AsyncConnection, key: AttemptKey, outcome: Outcome, values: dict[str, Any]
    ) -> Row[*tuple[Any, ...]]:
        body = outcome.model_copy(update={"decided_at": self._clock()}).model_dump_json()
        undecided = update(attempts).where(_undecided(key))
        decided = await connection.execute(undecided.values(outcome=body, **values).returning(*_DECISION))
        if found := decided.one_or_none():
            return found
        stored = await connection.execute(select(*_DECISION).where(at(attempts, key)))
        if found := stored.one_or_none():
            return found
        raise no_attempt(key)


def _undecided(key: AttemptKey) -> ColumnElement[bool]:
    return and_(at(attempts, key), attempts.c.outcome.is_(None))


def _result(key: AttemptKey, report: Report) -> bytes | None:
    if report.answer is None:
        return None
    if report.reason is not None:
        raise Refusal(
            Reason.REQUEST_REFUSED,
            f"the report on attempt {key.path} has both answer and reason; send the one that holds",
        )
    if not report.answer.strip():
        return None
    result = report.answer.encode()
    if len(result) > MAX_RESULT_BYTES:
        raise Refusal(
            Reason.ANSWER_TOO_LARGE,
            f"the answer of attempt {key.path} has {len(result)} bytes, the limit is {MAX_RESULT_BYTES}",
        )
    return result


def _outcome(key: AttemptKey, report: Report, result: bytes | None) -> Outcome:
    if result is None:
        reason = report.reason or (Reason.JOB_FAILED if report.answer is None else Reason.ANSWER_BLANK)
        return Outcome(succeeded=False, reason=reason, message=report.message or _SILENT)
    reference = ResultReference(
        iteration=key.iteration, attempt=key.attempt, digest=digest_bytes(result), size=len(result)
    )
    return Outcome(succeeded=True, message=report.message, result=reference)
