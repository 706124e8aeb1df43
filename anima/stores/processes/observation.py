"""What the files and the lock of a Job say of it."""

import json
import time
from collections.abc import Iterator
from datetime import datetime

from anima.model.errors import Unavailable
from anima.model.jobs import JobObservation, JobPhase, JobSpec
from anima.stores.ports import JobRecord
from anima.stores.processes import census
from anima.stores.processes.directory import SPEC, Claim, Ending, JobDirectory

_LOST = "its supervisor died before it could write down the exit status"
_KILL_PAUSE = 0.01
_KILL_TRIES = 500


def record(directory: JobDirectory) -> JobRecord | None:
    """Return what the Job is; none if there is none."""
    content = directory.read(SPEC)
    if content is None:
        return None
    return JobRecord(spec=JobSpec.model_validate_json(json.dumps(content["spec"])), uid=content["uid"])


def observe(directory: JobDirectory, now: datetime) -> JobObservation:
    """Say how the Job is; of a lost one, first kill and remove what is left.

    Args:
        directory: of the Job.
        now: written down as the end of a Job that turns out to be lost.
    """
    spec = directory.read(SPEC)
    claim = directory.claim()
    uid = spec["uid"] if spec else None
    if claim is None:
        return JobObservation(phase=JobPhase.PENDING if spec else JobPhase.ABSENT, uid=uid)
    if claim.started_at is None:
        return JobObservation(phase=JobPhase.ABSENT, uid=uid, message="deleted before it started")
    started = datetime.fromisoformat(claim.started_at)
    # In this order: the lock is released only after the end was written down.
    running = directory.holder() is not None
    ending = directory.ending()
    if ending is None and running:
        return JobObservation(phase=JobPhase.RUNNING, uid=uid, started_at=started)
    if ending is None:
        ending = _settle(directory, claim, now)
    return JobObservation(
        phase=JobPhase.LOST if ending.lost else JobPhase.ENDED,
        uid=uid,
        exit_code=ending.exit_code,
        timed_out=ending.timed_out,
        message=ending.message,
        started_at=started,
        ended_at=datetime.fromisoformat(ending.ended_at),
    )


def _settle(directory: JobDirectory, claim: Claim, now: datetime) -> Ending:
    _kill_leftovers(claim)
    directory.remove_scratch()
    directory.end(Ending(ended_at=now.isoformat(), lost=True, message=_LOST))
    ending = directory.ending()
    assert ending is not None
    return ending


def _kill_leftovers(claim: Claim) -> None:
    for _ in range(_KILL_TRIES):
        leftovers = list(_leftovers(claim))
        if not leftovers:
            return
        for process in leftovers:
            census.kill(process)
        time.sleep(_KILL_PAUSE)
    raise Unavailable(f"process {leftovers[0].pid} of a lost Job was killed and does not end")


def _leftovers(claim: Claim) -> Iterator[census.Process]:
    """Yield what still runs of the Job: its group, in its session, since its start.

    One pid alone may be another's by now; both together, in the same boot, are not.
    What left group and session is found by a living supervisor only.
    """
    if claim.boot == census.boot():
        for process in census.processes():
            mine = (process.group, process.session) == (claim.group, claim.session)
            if mine and process.started >= claim.ticks:
                yield process
