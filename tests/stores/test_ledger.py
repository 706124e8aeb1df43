"""The contract of the Ledger port."""

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncEngine

from anima.model.attempts import (
    MAX_EVENT_BYTES,
    MAX_EVENTS,
    MAX_RESULT_BYTES,
    AttemptInput,
    AttemptKey,
    Outcome,
    ProgressEvent,
    Report,
    Usage,
)
from anima.model.binding import SoulBinding
from anima.model.digests import digest_bytes
from anima.model.errors import Conflict, NotFound, Refusal
from anima.model.inputs import inputs_digest, spec_digest
from anima.model.reasons import Reason
from anima.model.task import Phase, TaskSpec, TaskStatus
from anima.stores.ports import Ledger, TaskRecord
from anima.stores.sql.tables import metadata

DIGEST = digest_bytes(b"x")
UID = "3f0c7d9a-run"
KEY = AttemptKey(task_uid=UID, attempt=1)
FAILED = Outcome(succeeded=False, reason=Reason.JOB_TIMEOUT, message="it took 10s", exit_code=137)
SUBMITTED = datetime(2026, 11, 30, 11, tzinfo=UTC)


def task_spec(prompt: str = "Say hello.", **fields: Any) -> TaskSpec:
    return TaskSpec.model_validate({"type": "ai", "agentRef": {"name": "reviewer"}, "prompt": prompt} | fields)


async def admitted(ledger: Ledger, name: str = "hello", uid: str = UID, **fields: Any) -> TaskRecord:
    return await ledger.admit("default", name, uid, f"task/default/{name}", task_spec(**fields), SUBMITTED)


async def intended(ledger: Ledger, key: AttemptKey = KEY) -> AttemptKey:
    await admitted(ledger)
    await ledger.intend(key, f"hello-i{key.iteration}-a{key.attempt}", attempt_input(key))
    return key


def attempt_input(key: AttemptKey = KEY, prompt: str = "Say hello.") -> AttemptInput:
    return AttemptInput.model_validate({
        "namespace": "default",
        "task": "hello",
        "key": key,
        "userPrompt": prompt,
        "userPromptDigest": DIGEST,
        "systemPromptDigest": DIGEST,
        "envelopeVersion": 1,
        "provider": {"type": "local", "model": "small", "temperature": 0.5},
    })  # fmt: skip


def binding(uid: str = UID, generation: int = 1) -> SoulBinding:
    return SoulBinding(
        agent_uid="agent-uid",
        agent_generation=generation,
        task_uid=uid,
        soul_digest=DIGEST,
        prompt_digest=DIGEST,
        inputs_digest=inputs_digest(task_spec()),
        inputs_version=1,
        envelope_version=1,
        bound_at=datetime(2026, 11, 30, tzinfo=UTC),
    )


def status(phase: Phase, uid: str = UID, **fields: Any) -> TaskStatus:
    return TaskStatus(namespace="default", name="hello", uid=uid, phase=phase, **fields)


class TestAdmission:
    async def test_a_task_is_recorded_as_pending_and_open(self, ledger: Ledger) -> None:
        record = await admitted(ledger, timeout="12m", env=[{"name": "A", "value": "$HOME"}])
        assert (record.uid, record.namespace, record.name, record.workflow_id) == (
            UID,
            "default",
            "hello",
            "task/default/hello",
        )
        assert record.spec == task_spec(timeout="12m0s", env=[{"name": "A", "value": "$HOME"}])
        assert record.spec_digest == spec_digest(record.spec)
        assert record.status == TaskStatus(
            namespace="default", name="hello", uid=UID, agent="reviewer", submission_time=SUBMITTED
        )
        assert not record.closed
        assert await ledger.task(UID) == await ledger.task_named("default", "hello") == record

    async def test_the_same_content_joins_whoever_asks(self, ledger: Ledger) -> None:
        first = await admitted(ledger)
        assert await admitted(ledger) == first
        assert await admitted(ledger, uid="another-run") == first

    async def test_other_content_is_refused(self, ledger: Ledger) -> None:
        first = await admitted(ledger)
        with pytest.raises(Refusal, match="default/hello exists with other content") as caught:
            await admitted(ledger, uid="another-run", prompt="Say goodbye.")
        assert caught.value.reason is Reason.TASK_CONFLICT
        assert await ledger.tasks() == [first]

    async def test_a_closed_task_is_joined_with_its_status(self, ledger: Ledger) -> None:
        await admitted(ledger)
        await ledger.close(status(Phase.SUCCEEDED))
        record = await admitted(ledger, uid="another-run")
        assert (record.closed, record.status.phase, record.uid) == (True, Phase.SUCCEEDED, UID)

    async def test_a_uid_belongs_to_one_task(self, ledger: Ledger) -> None:
        await admitted(ledger)
        with pytest.raises(Conflict, match=UID):
            await admitted(ledger, name="other")

    async def test_an_edited_task_is_still_joined_by_what_was_submitted(self, ledger: Ledger) -> None:
        await admitted(ledger)
        edited = await ledger.edit(UID, task_spec("Say more."))
        assert await admitted(ledger) == edited

    async def test_of_racing_admissions_one_claims_the_name(self, ledger: Ledger, other_ledger: Ledger) -> None:
        for number in range(25):
            name = f"t{number}"
            racers = enumerate([ledger, other_ledger] * 2)
            records = await asyncio.gather(*(admitted(one, name, f"{name}-{n}") for n, one in racers))
            assert len({record.uid for record in records}) == 1

    async def test_of_racing_contents_one_is_admitted(self, ledger: Ledger, other_ledger: Ledger) -> None:
        for number in range(25):
            name = f"t{number}"
            racers = enumerate([ledger, other_ledger] * 2)
            done = await asyncio.gather(
                *(admitted(one, name, f"{name}-{n}", prompt=str(n)) for n, one in racers), return_exceptions=True
            )
            assert [type(one) for one in done].count(Refusal) == 3
            stored = await ledger.task_named("default", name)
            assert [one for one in done if isinstance(one, TaskRecord)] == [stored]


class TestTasks:
    async def test_the_newest_are_listed_first(self, ledger: Ledger) -> None:
        for name in ("c", "a", "b"):
            await admitted(ledger, name, uid=name)
        await ledger.admit("team", "d", "d", "task/team/d", task_spec(), SUBMITTED)
        assert [record.name for record in await ledger.tasks()] == ["d", "b", "a", "c"]
        assert [record.name for record in await ledger.tasks("default", limit=2)] == ["b", "a"]
        assert await ledger.tasks("none") == []

    async def test_what_does_not_exist_is_not_found(self, ledger: Ledger) -> None:
        for call in (
            ledger.task(UID),
            ledger.attempts(UID),
            ledger.bind(binding()),
            ledger.edit(UID, task_spec()),
            ledger.close(status(Phase.FAILED)),
            ledger.intend(KEY, "job", attempt_input()),
        ):
            with pytest.raises(NotFound, match=f"no Task with uid {UID}"):
                await call
        for call in (ledger.task_named("default", "hello"), ledger.delete_task("default", "hello")):
            with pytest.raises(NotFound, match="no Task hello in namespace default"):
                await call

    async def test_an_edit_replaces_the_spec_and_keeps_the_digest(self, ledger: Ledger) -> None:
        first = await admitted(ledger)
        edited = await ledger.edit(UID, task_spec(suspend=True))
        assert edited.spec.suspend
        assert edited.spec_digest == first.spec_digest
        assert await ledger.task(UID) == edited

    async def test_a_closed_task_is_not_edited(self, ledger: Ledger) -> None:
        await admitted(ledger)
        await ledger.close(status(Phase.FAILED))
        with pytest.raises(Conflict, match="closed"):
            await ledger.edit(UID, task_spec("Other."))
        assert (await ledger.task(UID)).spec == task_spec()

    async def test_progress_is_mirrored_until_the_task_closes(self, ledger: Ledger) -> None:
        await admitted(ledger)
        running = status(Phase.RUNNING, attempt=1, holds=["operator"], soul_binding=binding())
        await ledger.progress(running)
        assert (await ledger.task(UID)).status == running
        final = status(Phase.FAILED, reason=Reason.SOUL_DRIFT)
        assert await ledger.close(final) == final
        await ledger.progress(running)
        assert (await ledger.task(UID)).status == final

    async def test_the_first_close_wins(self, ledger: Ledger) -> None:
        await admitted(ledger)
        final = status(Phase.SUCCEEDED)
        assert await ledger.close(final) == final
        assert await ledger.close(status(Phase.CANCELLED)) == final
        assert (await ledger.task(UID)).closed

    async def test_an_open_task_is_not_deleted(self, ledger: Ledger) -> None:
        record = await admitted(ledger)
        with pytest.raises(Conflict, match="not closed"):
            await ledger.delete_task("default", "hello")
        assert await ledger.task(UID) == record

    async def test_a_deleted_task_leaves_nothing_behind(self, ledger: Ledger, engine: AsyncEngine) -> None:
        await intended(ledger)
        await ledger.bind(binding())
        await ledger.append_event(KEY, ProgressEvent(sequence=0, kind="text", data={}))
        await ledger.report(KEY, Report(answer="Hello."))
        await ledger.close(status(Phase.SUCCEEDED))
        await ledger.delete_task("default", "hello")
        async with engine.connect() as connection:
            for table in ("tasks", "attempts", "events"):
                count = select(func.count()).select_from(metadata.tables[table])
                assert (table, await connection.scalar(count)) == (table, 0)
        assert not (await admitted(ledger, prompt="Anything else.")).closed


class TestBinding:
    async def test_a_task_is_unbound_until_it_is_bound(self, ledger: Ledger) -> None:
        await admitted(ledger)
        assert (await ledger.task(UID)).binding is None
        assert await ledger.bind(binding()) == binding()
        assert (await ledger.task(UID)).binding == binding()

    async def test_the_first_binding_stays(self, ledger: Ledger) -> None:
        await admitted(ledger)
        await ledger.bind(binding(generation=1))
        assert await ledger.bind(binding(generation=2)) == binding(generation=1)
        assert (await ledger.task(UID)).binding == binding(generation=1)

    async def test_a_closed_task_is_bound_no_more_and_starts_nothing(self, ledger: Ledger) -> None:
        await admitted(ledger)
        await ledger.close(status(Phase.FAILED))
        with pytest.raises(Conflict, match="is closed"):
            await ledger.bind(binding())
        with pytest.raises(Conflict, match="is closed"):
            await ledger.intend(KEY, "job", attempt_input())
        assert not await ledger.attempts(UID)
        assert (await ledger.task(UID)).binding is None

    async def test_of_racing_bindings_one_is_stored(self, ledger: Ledger, other_ledger: Ledger) -> None:
        for number in range(25):
            uid = f"t{number}"
            await admitted(ledger, uid, uid)
            racers = enumerate([ledger, other_ledger] * 2, start=1)
            bound = await asyncio.gather(*(one.bind(binding(uid, generation)) for generation, one in racers))
            assert set(bound) == {(await ledger.task(uid)).binding}


class TestAttempts:
    async def test_an_intended_attempt_has_not_started(self, ledger: Ledger) -> None:
        await intended(ledger)
        record = await ledger.attempt(KEY)
        assert (record.key, record.job_name, record.started_at) == (KEY, "hello-i0-a1", None)
        assert (record.outcome, record.usage, record.model) == (None, Usage(), "")

    async def test_intending_again_changes_nothing(self, ledger: Ledger) -> None:
        await intended(ledger)
        started = await ledger.started(KEY)
        assert await ledger.intend(KEY, "other", attempt_input(prompt="Other.")) == started
        assert (await ledger.input(KEY)).user_prompt == "Say hello."

    async def test_the_input_is_read_back_as_it_was(self, ledger: Ledger) -> None:
        await admitted(ledger)
        given = attempt_input(prompt="$(HOME) \0 🦊\r\n")
        await ledger.intend(KEY, "job", given)
        assert await ledger.input(KEY) == given

    async def test_the_first_start_counts(self, ledger: Ledger, clock: Any) -> None:
        await intended(ledger)
        began = clock.now
        assert (await ledger.started(KEY)).started_at == began
        clock.advance(seconds=5)
        assert (await ledger.started(KEY)).started_at == began
        assert (await ledger.attempt(KEY)).started_at == began

    async def test_a_start_and_a_report_at_once_wait_for_each_other(self, ledger: Ledger, other_ledger: Ledger) -> None:
        for number in range(1, 41):
            key = await intended(ledger, AttemptKey(task_uid=UID, attempt=number))
            racers = [ledger, other_ledger] * 2
            starts = (one.started(key) for one in racers)
            reports = (one.report(key, Report(answer="Hello.")) for one in racers)
            await asyncio.gather(*starts, *reports)
        status = (await ledger.task(UID)).status
        assert (status.phase, status.attempt, status.total_attempts) == (Phase.RUNNING, 40, 40)

    async def test_attempts_are_in_order_of_iteration_and_attempt(self, ledger: Ledger) -> None:
        await admitted(ledger)
        assert await ledger.attempts(UID) == []
        places = [(0, 2), (1, 1), (0, 10), (0, 1)]
        for iteration, attempt in places:
            await intended(ledger, AttemptKey(task_uid=UID, iteration=iteration, attempt=attempt))
        found = [(record.key.iteration, record.key.attempt) for record in await ledger.attempts(UID)]
        assert found == sorted(places)

    async def test_what_was_never_intended_is_not_found(self, ledger: Ledger) -> None:
        await admitted(ledger)
        for call in (
            ledger.attempt(KEY),
            ledger.input(KEY),
            ledger.started(KEY),
            ledger.decide(KEY, FAILED),
            ledger.report(KEY, Report(answer="Hello.")),
            ledger.append_event(KEY, ProgressEvent(sequence=0, kind="text", data={})),
            ledger.result(KEY),
        ):
            with pytest.raises(NotFound, match=f"no attempt {UID}/0/1"):
                await call


class TestOutcome:
    async def test_an_answer_decides_success_and_is_kept(self, ledger: Ledger, clock: Any) -> None:
        await intended(ledger)
        answer = "Grüße \0 🦊\r\n"
        usage = Usage(input_tokens=3, output_tokens=5, requests=1)
        outcome = await ledger.report(KEY, Report(answer=answer, usage=usage, model="m-1"))
        assert outcome.succeeded
        assert outcome.decided_at == clock.now
        assert outcome.result is not None
        assert (outcome.result.digest, outcome.result.size) == (digest_bytes(answer.encode()), len(answer.encode()))
        assert (outcome.result.iteration, outcome.result.attempt) == (0, 1)
        assert await ledger.result(KEY) == answer
        record = await ledger.attempt(KEY)
        assert (record.outcome, record.usage, record.model) == (outcome, usage, "m-1")

    async def test_a_reason_decides_failure(self, ledger: Ledger) -> None:
        await intended(ledger)
        outcome = await ledger.report(KEY, Report(reason=Reason.ANSWER_BLANK, message="blank \0"))
        assert (outcome.succeeded, outcome.reason, outcome.message) == (False, Reason.ANSWER_BLANK, "blank \0")
        with pytest.raises(NotFound, match="no result"):
            await ledger.result(KEY)

    async def test_neither_answer_nor_reason_is_a_failed_job(self, ledger: Ledger) -> None:
        await intended(ledger)
        assert (await ledger.report(KEY, Report())).reason is Reason.JOB_FAILED

    async def test_answer_and_reason_together_are_refused(self, ledger: Ledger) -> None:
        await intended(ledger)
        with pytest.raises(Refusal, match="both answer and reason") as caught:
            await ledger.report(KEY, Report(answer="Hello.", reason=Reason.ANSWER_TRUNCATED))
        assert caught.value.reason is Reason.REQUEST_REFUSED
        assert (await ledger.attempt(KEY)).outcome is None

    async def test_the_limit_of_an_answer_counts_bytes(self, ledger: Ledger) -> None:
        await intended(ledger)
        largest = "é" * (MAX_RESULT_BYTES // 2)
        with pytest.raises(Refusal, match=str(MAX_RESULT_BYTES + 1)) as caught:
            await ledger.report(KEY, Report(answer=largest + "x"))
        assert caught.value.reason is Reason.ANSWER_TOO_LARGE
        assert (await ledger.attempt(KEY)).outcome is None
        await ledger.report(KEY, Report(answer=largest))
        assert await ledger.result(KEY) == largest

    @pytest.mark.parametrize("report", [Report(answer="Hello."), Report(reason=Reason.PROVIDER_FAILED)])
    async def test_the_same_report_again_is_the_same_outcome(self, ledger: Ledger, clock: Any, report: Report) -> None:
        await intended(ledger)
        first = await ledger.report(KEY, report)
        clock.advance(seconds=1)
        assert await ledger.report(KEY, report) == first

    async def test_another_report_is_a_conflict(self, ledger: Ledger) -> None:
        await intended(ledger)
        first = await ledger.report(KEY, Report(answer="Hello."))
        for late in (Report(answer="Hello!"), Report(reason=Reason.JOB_FAILED)):
            with pytest.raises(Conflict, match="already decided"):
                await ledger.report(KEY, late)
        assert await ledger.result(KEY) == "Hello."
        assert (await ledger.attempt(KEY)).outcome == first

    async def test_a_report_after_another_decision_is_a_conflict(self, ledger: Ledger) -> None:
        await intended(ledger)
        decided = await ledger.decide(KEY, FAILED)
        with pytest.raises(Conflict, match="already decided as JobTimeout"):
            await ledger.report(KEY, Report(answer="Hello."))
        record = await ledger.attempt(KEY)
        assert (record.outcome, record.usage) == (decided, Usage())
        with pytest.raises(NotFound):
            await ledger.result(KEY)

    async def test_a_report_to_a_closed_task_is_a_conflict(self, ledger: Ledger) -> None:
        await intended(ledger)
        await ledger.close(status(Phase.CANCELLED))
        with pytest.raises(Conflict, match="is closed"):
            await ledger.report(KEY, Report(answer="Hello."))
        assert (await ledger.attempt(KEY)).outcome is None
        assert (await ledger.decide(KEY, FAILED)).reason is FAILED.reason

    async def test_the_same_report_is_the_same_outcome_after_the_task_has_closed(self, ledger: Ledger) -> None:
        await intended(ledger)
        first = await ledger.report(KEY, Report(answer="Hello."))
        await ledger.close(status(Phase.SUCCEEDED))
        assert await ledger.report(KEY, Report(answer="Hello.")) == first
        with pytest.raises(Conflict, match="already decided"):
            await ledger.report(KEY, Report(answer="Hello!"))

    async def test_the_first_decision_stays(self, ledger: Ledger, clock: Any) -> None:
        await intended(ledger)
        first = await ledger.decide(KEY, FAILED, Usage(requests=1))
        assert first == FAILED.model_copy(update={"decided_at": clock.now})
        clock.advance(seconds=1)
        again = Outcome(succeeded=False, reason=Reason.JOB_FAILED)
        assert await ledger.decide(KEY, again, Usage(requests=2)) == first
        assert (await ledger.attempt(KEY)).usage == Usage(requests=1)

    async def test_a_result_that_came_in_time_wins(self, ledger: Ledger) -> None:
        await intended(ledger)
        reported = await ledger.report(KEY, Report(answer="Hello."))
        assert await ledger.decide(KEY, FAILED) == reported

    async def test_only_a_report_decides_success(self, ledger: Ledger) -> None:
        await intended(ledger)
        with pytest.raises(ValueError, match="report"):
            await ledger.decide(KEY, Outcome(succeeded=True))

    async def test_of_racing_decisions_one_counts_for_all(self, ledger: Ledger, other_ledger: Ledger) -> None:
        await admitted(ledger)
        for number in range(1, 41):
            key = await intended(ledger, AttemptKey(task_uid=UID, attempt=number))
            answer = Report(answer=f"answer {number}")
            decided, reported, timeout, again = await asyncio.gather(
                other_ledger.decide(key, FAILED),
                ledger.report(key, answer),
                ledger.decide(key, Outcome(succeeded=False, reason=Reason.JOB_LOST)),
                other_ledger.report(key, answer),
                return_exceptions=True,
            )
            stored = (await ledger.attempt(key)).outcome
            assert decided == timeout == stored
            assert stored is not None
            if stored.succeeded:
                assert reported == again == stored
                assert await ledger.result(key) == answer.answer
            else:
                assert [type(reported), type(again)] == [Conflict, Conflict]


class TestEvents:
    def event(self, sequence: int, **data: Any) -> ProgressEvent:
        return ProgressEvent(sequence=sequence, kind="text", data=data)

    async def test_events_are_read_back_in_order_of_sequence(self, ledger: Ledger) -> None:
        await intended(ledger)
        given = [self.event(2), self.event(0, text="a\0b 🦊", nothing=None, deep={"n": [1, None, 2.5]}), self.event(1)]
        for event in given:
            await ledger.append_event(KEY, event)
        assert await ledger.events(KEY) == [given[1], given[2], given[0]]
        assert await ledger.events(KEY, after=0, limit=1) == [given[2]]
        assert await ledger.events(KEY, after=2) == []

    async def test_a_sequence_is_stored_once(self, ledger: Ledger, other_ledger: Ledger) -> None:
        await intended(ledger)
        await asyncio.gather(
            *(one.append_event(KEY, self.event(n)) for n in range(20) for one in (ledger, other_ledger))
        )
        await ledger.append_event(KEY, self.event(0, text="other"))
        assert await ledger.events(KEY) == [self.event(n) for n in range(20)]

    async def test_events_of_attempts_are_apart(self, ledger: Ledger) -> None:
        second = AttemptKey(task_uid=UID, attempt=2)
        await intended(ledger)
        await intended(ledger, second)
        await ledger.append_event(KEY, self.event(0, text="first"))
        await ledger.append_event(second, self.event(0, text="second"))
        assert await ledger.events(second) == [self.event(0, text="second")]

    async def test_events_beyond_the_limit_are_dropped(self, ledger: Ledger) -> None:
        await intended(ledger)
        await ledger.append_event(KEY, self.event(MAX_EVENTS - 1))
        await ledger.append_event(KEY, self.event(MAX_EVENTS))
        assert await ledger.events(KEY) == [self.event(MAX_EVENTS - 1)]

    async def test_the_limit_of_an_event_counts_bytes(self, ledger: Ledger) -> None:
        await intended(ledger)
        room = MAX_EVENT_BYTES - len(self.event(0, t="").model_dump_json())
        await ledger.append_event(KEY, self.event(0, t="é" * (room // 2)))
        with pytest.raises(Refusal, match=str(MAX_EVENT_BYTES)):
            await ledger.append_event(KEY, self.event(1, t="é" * (room // 2 + 1)))
        assert len(await ledger.events(KEY)) == 1
