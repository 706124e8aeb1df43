"""How a program leaves."""

import subprocess
import sys

import pytest

PROGRAM = "from anima.termination import leave\nimport atexit\nleave(lambda: {body})"


@pytest.mark.parametrize(
    ("body", "code", "err"),
    [
        ("None", 0, ""),
        ("3", 3, ""),
        ("exit(4)", 4, ""),
        ("exit()", 0, ""),
        ("exit('why')", 1, "why\n"),
        ("1 / 0", 1, "ZeroDivisionError: division by zero\n"),
    ],
)
def test_the_status_of_a_program_is_its_own(body: str, code: int, err: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(body=body)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.endswith(err)


def test_what_was_printed_arrives_whatever_thread_is_still_at_work() -> None:
    program = """
import threading
from anima.termination import leave

def main():
    threading.Thread(target=threading.Event().wait).start()
    print("x" * 100_000)
    return 0

leave(main)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, len(done.stdout)) == (0, 100_001)


def test_a_reader_that_went_away_is_no_failure_of_leaving() -> None:
    program = "from anima.termination import leave\nleave(lambda: print('x' * 10) or 5)"
    # Buffered, so that the pipe is found broken at the end.
    reader = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={})
    assert reader.stdout
    assert reader.stderr
    reader.stdout.close()
    assert (reader.stderr.read(), reader.wait()) == (b"", 5)
