"""Become a program that the kernel kills when its starter dies (Linux only).

Run by path, without site packages, so that it costs a few milliseconds.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Tie this process to the parent whose id is the first argument, and become the rest."""
    parent, program, *arguments = sys.argv[1:]
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    # The parent may have died before the tie existed.
    if os.getppid() == int(parent):
        os.execv(program, [program, *arguments])  # noqa: S606


if __name__ == "__main__":
    main()
