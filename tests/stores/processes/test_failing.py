"""What cannot be started, and what it says."""

import os
from pathlib import Path

import pytest

from anima.model.errors import Refusal, Unavailable
from anima.model.jobs import JobPhase
from anima.model.persona import SensitiveText
from anima.model.reasons import Reason
from tests.stores.processes.bench import (
    Bench,
    Witness,
    spec_of,
)


async def test_a_read_only_home_is_an_operational_failure(bench: Bench, unprivileged: None) -> None:
    if os.getuid() != 0:
        bench.home.jobs.chmod(0o500)
    with pytest.raises(Unavailable, match=r"jobs/team: Permission denied; check its permissions"):
        await bench.start("")
    if os.getuid() != 0:
        bench.home.jobs.chmod(0o700)


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    for name, mode in (("not-executable", 0o644), ("not-a-program", 0o755)):
        (tmp_path / name).write_bytes(b"\0")
        (tmp_path / name).chmod(mode)
    (tmp_path / "directory").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("command", "code", "message"),
    [
        (["no-such-program"], 127, "command 'no-such-program' was not found"),
        (["/no/such/program", "x"], 127, "command '/no/such/program' was not found"),
        (["{}/directory"], 126, "directory' could not be started: Permission denied"),
        (["{}/not-executable"], 126, "not-executable' could not be started: Permission denied"),
        (["{}/not-a-program"], 126, "not-a-program' could not be started: Exec format error"),
        (["true", "a\0b"], 126, "command 'true' could not be started: ValueError: embedded null byte"),
        (["true", "x" * 200_000], 126, "command 'true' could not be started: Argument list too long"),
    ],
)
async def test_a_command_that_cannot_be_started_ends_the_job_and_says_why(
    bench: Bench, programs: Path, command: list[str], code: int, message: str
) -> None:
    spec = spec_of(command=[command[0].format(programs), *command[1:]])
    uid = await bench.jobs.create(spec, {})
    ended = await bench.end()
    assert ended.exit_code == code
    assert message in ended.message
    assert message.encode() in await bench.jobs.log("team", "job")
    assert await bench.jobs.create(spec, {}) == uid


async def test_what_hinders_the_supervisor_is_operational_and_passes(bench: Bench, witness: Witness) -> None:
    (bench.directory() / "log").mkdir(parents=True)
    for _ in range(2):
        with pytest.raises(Unavailable, match=r"cannot start the Job in .*team/job: Is a directory: .*log"):
            await bench.start(witness.testify)
    assert (await bench.observe()).phase is JobPhase.PENDING
    (bench.directory() / "log").rmdir()
    await bench.start(witness.testify)
    assert (await bench.end()).exit_code == 0
    assert witness.starts == 1


async def test_a_worker_that_raises_leaves_its_traceback_in_the_log(bench: Bench) -> None:
    await bench.start("raise RuntimeError('oh no')")
    assert (await bench.end()).exit_code == 1
    assert (await bench.jobs.log("team", "job")).endswith(b"RuntimeError: oh no\n")


@pytest.mark.parametrize("variable", [("", "x"), ("A=B", "x"), ("A", "x\0y"), ("A\0", "x"), ("A", "\ud800")])
async def test_variables_that_no_system_can_carry_are_refused_without_showing_them(
    bench: Bench, variable: tuple[str, str]
) -> None:
    name, value = variable
    with pytest.raises(Refusal, match="team/job cannot be set") as refused:
        await bench.jobs.create(spec_of(), {name: SensitiveText("geheim" + value)})
    assert refused.value.reason is Reason.JOB_FAILED
    assert "geheim" not in str(refused.value)
    assert (await bench.observe()).phase is JobPhase.ABSENT
