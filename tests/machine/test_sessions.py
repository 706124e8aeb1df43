"""Random sequences of Tasks, soul changes, crashes and lost answers: no Session changes persona or loses a turn."""

import asyncio
import shutil
import tempfile
from collections.abc import Coroutine
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from temporalio.testing import ActivityEnvironment

from anima.model.agent import Agent
from anima.model.attempts import Report
from anima.model.errors import AnimaError, Conflict, NotFound, Refusal
from anima.model.jobs import JobPhase
from anima.model.provider import Provider
from anima.model.reasons import Reason
from anima.model.session import Message, Role, SessionRecord, SessionStatus
from anima.model.steps import DriveSession
from anima.model.task import Phase, TaskSpec
from anima.model.wire import Step
from anima.stores.ports import TaskRecord
from anima.stores.sessions import SessionKey
from tests.doubles.jobs import ScriptedJob
from tests.machine.lives import WAIT, Cancelled, Life, TaskLife, conversation_life
from tests.machine.stage import Stage

SESSIONS = ["ash", "birch"]
CONVERSATION = "cedar"
AGENTS = ["heron", "egret"]
SOULS = [None, "Be kind.\n", "Be terse.\n"]
MOST = 8
"""Tasks, and messages, of one sequence."""
LIMIT = 1000
"""Steps after which nothing may be left to do."""

which = st.integers(0, 1000)


class SessionMachine(RuleBasedStateMachine):
    """Plays Temporal: it takes the steps of many workflows in any order, and loses what it can."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="anima-machine-"))
        self.stage = Stage(self.directory)
        self.loop = asyncio.new_event_loop()
        self.numbers = count(1)
        self.lives: list[Life] = []
        self.zombies: list[Life] = []
        self.drivers: dict[str, Life] = {}
        self.specs: dict[str, tuple[str, TaskSpec]] = {}
        self.arrived: dict[str, list[str]] = {name: [] for name in [*SESSIONS, CONVERSATION]}
        self.holders: dict[str, list[tuple[int, str]]] = {name: [] for name in [*SESSIONS, CONVERSATION]}
        self.pinned: dict[str, str | None] = {}
        self.tasks: dict[str, TaskRecord] = {}
        self.posted = 0
        self.imported: set[str] = set()
        self.turns: set[str | None] = set()
        """The Tasks whose turn has been seen, also if it has expired since."""

    def do(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run_until_complete(coroutine)

    @initialize(souls=st.tuples(st.sampled_from(SOULS), st.sampled_from(SOULS)))
    def begin(self, souls: tuple[str | None, str | None]) -> None:
        self.do(self.stage.apply("Provider", "rehearsal", {"type": "rehearsal"}))
        for agent, soul in zip(AGENTS, souls, strict=True):
            self.dress(agent, soul)

    # What people do.

    @precondition(lambda self: len(self.specs) < MOST)
    @rule(agent=st.sampled_from(AGENTS), session=st.sampled_from(SESSIONS), append=st.sampled_from([True, True, False]))
    def start_task(self, agent: str, session: str, append: bool) -> None:
        number = next(self.numbers)
        reference = {"name": session, "append": append}
        spec = {"type": "ai", "agentRef": {"name": agent}, "prompt": f"Question {number}?", "sessionRef": reference}
        spec["retryPolicy"] = {"maxRetries": 1}
        self.live(f"task-{number}", TaskSpec.model_validate(spec))

    @precondition(lambda self: self.posted < MOST)
    @rule(agent=st.sampled_from(AGENTS), again=st.booleans())
    def post_message(self, agent: str, again: bool) -> None:
        if not again or not self.posted:
            self.posted += 1
        for _ in range(2 if again else 1):
            message = f"Message {self.posted}?"
            try:
                posting = self.stage.conversations.post("default", CONVERSATION, f"key-{self.posted}", message, agent)
                posted = self.do(posting)
            except Conflict:
                # The same key with another Agent.
                return
            assert posted.number == self.posted
        self.stage.temporal.woken.add(SessionKey("default", CONVERSATION, conversation=True))

    @rule(agent=st.sampled_from(AGENTS), soul=st.sampled_from(SOULS))
    def dress(self, agent: str, soul: str | None) -> None:
        spec: dict[str, Any] = {"providerRef": {"name": "rehearsal"}}
        self.do(self.stage.apply("Agent", agent, spec | ({"soul": {"inline": soul}} if soul else {})))

    @rule(agent=st.sampled_from(AGENTS))
    def edit_and_revert(self, agent: str) -> None:
        soul = self.do(self.stage.catalog.get(Agent, "default", agent)).spec.soul
        self.dress(agent, "Be another.\n")
        self.dress(agent, soul.inline.reveal() if soul else None)

    @rule(agent=st.sampled_from(AGENTS), soul=st.sampled_from(SOULS))
    def recreate(self, agent: str, soul: str | None) -> None:
        self.do(self.stage.catalog.delete(Agent, "default", agent))
        self.dress(agent, soul)

    @rule()
    def break_provider(self) -> None:
        try:
            self.do(self.stage.catalog.delete(Provider, "default", "rehearsal"))
        except NotFound:
            self.do(self.stage.apply("Provider", "rehearsal", {"type": "rehearsal"}))

    @rule(n=which)
    def cancel(self, n: int) -> None:
        if life := self.chosen(self.lives, n):
            life.cancelled = True
            life.waits = False

    @rule(session=st.sampled_from(SESSIONS))
    def import_history(self, session: str) -> None:
        messages = [Message(role=Role.USER, content="Once?"), Message(role=Role.ASSISTANT, content="Upon a time.")]
        try:
            imported = self.do(self.stage.sessions.import_messages("default", session, messages))
            self.imported.add(imported.uid)
        except Conflict:
            assert self.status(session) is not None

    @rule(session=st.sampled_from([*SESSIONS, CONVERSATION]))
    def delete_used_session(self, session: str) -> None:
        status = self.status(session)
        if status is None or not self.is_used(status):
            return
        with pytest.raises(Conflict):
            self.do(self.stage.sessions.delete("default", session))

    @rule()
    def expire(self) -> None:
        while self.do(self.stage.sessions.expire(None, 1)):
            pass

    # What happens to workflows.

    @rule(n=which, times=st.integers(1, 10))
    def step(self, n: int, times: int) -> None:
        if life := self.chosen([life for life in self.everyone() if not life.waits], n):
            for _ in range(times):
                if life.next is not None and not life.waits and life in self.everyone():
                    self.advance(life)

    @rule(times=st.integers(1, 8))
    def step_everybody(self, times: int) -> None:
        for _ in range(times):
            for life in self.everyone():
                if life.next is not None and not life.waits and life in self.everyone():
                    self.advance(life)

    @rule(n=which)
    def lose_the_answer(self, n: int) -> None:
        if life := self.chosen([life for life in self.everyone() if not life.waits], n):
            self.advance(life, lost=True)

    @rule()
    def lose_all_answers(self) -> None:
        for life in [life for life in self.everyone() if not life.waits]:
            self.advance(life, lost=True)

    @rule(n=which)
    def start_over(self, n: int) -> None:
        """A Reset to the first step, or a workflow that lost its cache with nothing on record."""
        if life := self.chosen(self.lives, n):
            self.lives.remove(life)
            self.live(*self.specs[life.task], uid=life.task)

    @rule(n=which)
    def terminate(self, n: int) -> None:
        if life := self.chosen(self.lives, n):
            self.lives.remove(life)
            self.stage.temporal.open.discard(life.task)
            # What its activity was about to do, it may still do.
            self.zombies.append(life)

    @rule(n=which)
    def answer_and_terminate(self, n: int) -> None:
        """The button is pressed when the answer is accepted and nothing has come of it yet."""
        if job := self.chosen(self.running(), n):
            self.finish(job, True)
            for life in [life for life in self.lives if life.task == job.spec.key.task_uid]:
                self.lives.remove(life)
                self.stage.temporal.open.discard(life.task)

    @rule(n=which)
    def zombie_acts(self, n: int) -> None:
        if life := self.chosen(self.zombies, n):
            self.zombies.remove(life)
            if not life.waits:
                self.act(life)

    @rule()
    def terminate_conversation(self) -> None:
        self.drivers.clear()

    @rule(n=which)
    def reap(self, n: int) -> None:
        """The reaper ends a Task whose workflow is gone."""
        gone = [uid for uid in self.specs if uid not in self.stage.temporal.open]
        if gone:
            self.end(gone[n % len(gone)])

    @rule(n=which, answered=st.sampled_from([True, True, False]))
    def report(self, n: int, answered: bool) -> None:
        if job := self.chosen(self.running(), n):
            self.finish(job, answered)

    @rule(session=st.sampled_from(SESSIONS), step=st.sampled_from([Step.GRANT, Step.LOOK]))
    def drive(self, session: str, step: Step) -> None:
        self.perform(step, DriveSession(namespace="default", session=session))
        self.tell()

    # How it is done.

    def live(self, name: str, spec: TaskSpec, uid: str | None = None) -> None:
        uid = uid or f"task-uid-{name}"
        self.specs[uid] = (name, spec)
        self.stage.temporal.open.add(uid)
        self.lives.append(Life(TaskLife(name, uid, spec).steps(), uid))

    def everyone(self) -> list[Life]:
        return [*self.lives, *self.drivers.values()]

    def chosen(self, among: list[Any], n: int) -> Any:
        return among[n % len(among)] if among else None

    def advance(self, life: Life, *, lost: bool = False) -> None:
        if life.cancelled and life in self.lives:
            life.cancelled = False
            return self.go_on(life, Cancelled())
        answer = self.act(life)
        if not lost and answer is not None:
            self.go_on(life, answer[0])

    def go_on(self, life: Life, answer: Any) -> None:
        try:
            life.throw(answer) if isinstance(answer, Exception) else life.send(answer)
        except Cancelled:
            life.next = None
        if life.next is None and life in self.lives:
            self.lives.remove(life)
            self.stage.temporal.open.discard(life.task)
        if life.next is None and self.drivers.get(life.task) is life:
            del self.drivers[life.task]

    def act(self, life: Life) -> tuple[Any] | None:
        """Take the next step; none if it has to be tried again."""
        assert life.next is not None
        step, request = life.next
        if step == WAIT:
            return (None,)
        try:
            return (self.perform(step, request),)
        except Refusal as refusal:
            return (refusal,)
        except AnimaError:
            return None
        finally:
            self.tell()
            self.start_what_was_asked()

    def perform(self, step: str, request: Any) -> Any:
        return self.do(ActivityEnvironment().run(self.stage.activities[step], request))

    def tell(self) -> None:
        for life in self.lives:
            if life.task in self.stage.temporal.told:
                life.waits = False
        self.stage.temporal.told.clear()
        for key in self.stage.temporal.woken:
            if not key.conversation:
                continue
            if key.name not in self.drivers:
                self.drivers[key.name] = Life(conversation_life(key.name), key.name)
            self.drivers[key.name].waits = False
        self.stage.temporal.woken.clear()

    def start_what_was_asked(self) -> None:
        for task in self.stage.temporal.to_start:
            uid = f"task-uid-{task.name}"
            if uid not in self.stage.temporal.open:
                # A second run of the same id, after the first was terminated, is another Task.
                uid = uid if uid not in self.specs else f"{uid}-{next(self.numbers)}"
                if not any(
                    name == task.name and key in self.stage.temporal.open for key, (name, _) in self.specs.items()
                ):
                    self.live(task.name, task.spec, uid)
        self.stage.temporal.to_start.clear()

    def running(self) -> list[ScriptedJob]:
        return [job for job in self.stage.jobs.jobs.values() if job.observation.phase is JobPhase.RUNNING]

    def finish(self, job: ScriptedJob, answered: bool) -> None:
        uid = job.spec.key.task_uid
        report = Report(answer=f"Answer of {uid}") if answered else Report(reason=Reason.ANSWER_BLANK, message="blank")
        with suppress(AnimaError):
            self.do(self.stage.ledger.report(job.spec.key, report))
        job.exit(0)
        for life in self.lives:
            if life.task == uid:
                life.waits = False

    def end(self, uid: str) -> None:
        with suppress(AnimaError):
            self.do(self.stage.orphans.end(self.do(self.stage.ledger.task(uid))))
        self.tell()

    # What must be true.

    def status(self, session: str) -> SessionStatus | None:
        try:
            return self.do(self.stage.sessions.session("default", session))
        except NotFound:
            return None

    def records(self, session: str) -> list[SessionRecord]:
        return list(self.do(self.stage.sessions.records("default", session, limit=1000)))

    def record(self, uid: str | None) -> TaskRecord | None:
        try:
            return self.do(self.stage.ledger.task(uid))
        except NotFound:
            return None

    def is_used(self, status: SessionStatus) -> bool:
        claimants = [*([status.queue.holder] if status.queue.holder else [])]
        claimants += self.do(self.stage.sessions.queue("default", status.name, 1000)).next
        pending = self.do(self.stage.conversations.pending("default", status.name))
        return bool(pending) or any((found := self.record(each.task_uid)) and not found.closed for each in claimants)

    @invariant()
    def jobs_ran_under_their_sessions_identity(self) -> None:
        assert not self.stage.jobs.faults

    @invariant()
    def each_session_is_as_it_should_be(self) -> None:
        self.tasks = {record.uid: record for record in self.do(self.stage.ledger.tasks(limit=1000))}
        for name in [*SESSIONS, CONVERSATION]:
            status = self.status(name)
            if status is not None:
                self.identity_never_changes(status)
                self.turns_are_whole_and_once(status)
                self.tokens_rise_and_nobody_is_passed(status)

    def identity_never_changes(self, status: SessionStatus) -> None:
        if status.identity is not None:
            assert self.pinned.setdefault(status.uid, status.identity.digest) == status.identity.digest
        else:
            assert status.uid not in self.pinned
        if status.uid in self.imported:
            assert status.identity is None or status.identity.revision is None

    def turns_are_whole_and_once(self, status: SessionStatus) -> None:
        records = self.records(status.name)
        assert status.messages == len(records)
        mine = [record for record in records if record.task_uid is not None]
        for user, assistant in zip(mine[::2], mine[1::2], strict=True):
            assert (user.role, assistant.role) == (Role.USER, Role.ASSISTANT)
            assert (user.task_uid, user.sequence + 1) == (assistant.task_uid, assistant.sequence)
            self.turn_is_its_tasks(status, assistant)
        turns = [record.task_uid for record in mine[::2]]
        assert len(turns) == len(set(turns))
        self.turns.update(turns)
        self.no_turn_is_missing(status.name)

    def turn_is_its_tasks(self, status: SessionStatus, assistant: SessionRecord) -> None:
        if assistant.unbound:
            assert assistant.reason is not None
            assert assistant.task_uid is not None
            assert not self.do(self.stage.ledger.attempts(assistant.task_uid))
            return
        assert status.identity is not None
        if assistant.reason is None:
            assert assistant.content == f"Answer of {assistant.task_uid}"
            assert assistant.revision == status.identity.digest

    def no_turn_is_missing(self, session: str) -> None:
        for uid, (_, spec) in self.specs.items():
            record = self.tasks.get(uid)
            if record is None or not record.closed or spec.session_ref is None or spec.session_ref.name != session:
                continue
            if record.status.phase is Phase.SUCCEEDED and spec.session_ref.append:
                assert uid in self.turns, f"{uid} succeeded, and its turn is not in {session}"
            elif session != CONVERSATION:
                assert uid not in self.turns

    def tokens_rise_and_nobody_is_passed(self, status: SessionStatus) -> None:
        queue = self.do(self.stage.sessions.queue("default", status.name, 1000))
        arrived, holders = self.arrived[status.name], self.holders[status.name]
        # A Task that comes while nobody has the Session is the holder without having waited.
        for claimant in [*([queue.holder] if queue.holder else []), *queue.next]:
            if claimant.task_uid not in arrived:
                arrived.append(claimant.task_uid)
        if queue.holder is None or (holders and holders[-1] == (queue.holder.token, queue.holder.task_uid)):
            return
        if holders:
            assert queue.holder.token > holders[-1][0]
        holders.append((queue.holder.token, queue.holder.task_uid))
        passed = arrived[: arrived.index(queue.holder.task_uid)]
        for uid in passed:
            found = self.tasks.get(uid)
            assert found is None or found.closed, f"{uid} came before {queue.holder.task_uid} and still waits"

    def teardown(self) -> None:
        try:
            self.settle_everything()
        finally:
            self.do(self.stage.engine.dispose())
            self.loop.close()
            shutil.rmtree(self.directory)

    def settle_everything(self) -> None:
        """Without more faults everything ends, and nobody is left waiting."""
        if not self.specs and not self.posted:
            return
        for _ in range(LIMIT):
            if not self.move():
                break
        else:
            raise AssertionError(f"it never ends: {[life.next for life in self.everyone()]}")
        self.each_session_is_as_it_should_be()
        self.jobs_ran_under_their_sessions_identity()
        self.expire()
        self.each_session_is_as_it_should_be()
        for uid in self.specs:
            record = self.record(uid)
            assert record is None or record.closed, uid
        for name in [*SESSIONS, CONVERSATION]:
            if status := self.status(name):
                assert not self.is_used(status)

    def move(self) -> bool:
        for uid in [uid for uid in self.specs if uid not in self.stage.temporal.open]:
            record = self.record(uid)
            if record is not None and not record.closed:
                self.end(uid)
        for job in self.running():
            self.finish(job, next(self.numbers) % 3 > 0)
        for session in SESSIONS:
            self.drive(session, Step.LOOK)
        if self.posted:
            self.stage.temporal.woken.add(SessionKey("default", CONVERSATION, conversation=True))
            self.tell()
        awake = [life for life in self.everyone() if not life.waits]
        for life in awake:
            if life.next is not None and life in self.everyone():
                self.advance(life)
        pending = self.do(self.stage.conversations.pending("default", CONVERSATION)) if self.posted else []
        return bool(self.lives or pending)


def run(examples: int) -> None:
    run_state_machine_as_test(
        SessionMachine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=40,
            deadline=None,
            print_blob=True,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.parametrize(
    "sequences",
    [
        pytest.param(30),
        pytest.param(300, marks=[pytest.mark.verify, pytest.mark.timeout(900)]),
        pytest.param(3000, marks=[pytest.mark.soak, pytest.mark.timeout(7200)]),
    ],
)
def test_no_sequence_changes_a_persona_or_loses_or_doubles_a_turn(sequences: int) -> None:
    run(sequences)
