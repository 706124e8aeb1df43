"""Exported transcripts: whole files, and what a terminal may be shown of them."""

import codecs
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from anima.cli.output import emit_bytes, printable_json


@contextmanager
def whole_file(file: Path) -> Iterator[IO[bytes]]:
    """Give what is to be written; it gets its name once it is complete, and leaves nothing if it fails.

    Args:
        file: its path, without links.
    """
    with tempfile.NamedTemporaryFile(dir=file.parent, prefix=f".{file.name}-", delete=False) as new:
        try:
            yield new
            new.flush()
            os.fsync(new.fileno())
            Path(new.name).replace(file)
        except BaseException:
            Path(new.name).unlink(missing_ok=True)
            raise


async def print_lines(pieces: AsyncIterator[bytes]) -> None:
    """Print lines of JSON byte for byte; to a terminal, as the same JSON without what could steer it."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    async for piece in pieces:
        if sys.stdout.isatty():
            sys.stdout.write(printable_json(decoder.decode(piece)))
        else:
            emit_bytes(piece)
