"""The built-in worker of the tests: runs the program that its environment holds."""

import os
import sys
import tempfile


def preload() -> None:
    sys.stdout.write("what is printed here must not get between requests and answers\n")
    sys.stdout.flush()
    # Many a module asks for it when it is imported.
    tempfile.gettempdir()


def main() -> int:
    exec(os.environ["PROGRAM"], {"sys": sys})
    return 0
