"""A worker that no Job may be forked from: its import starts a thread."""

import threading

from tests.stores.processes.worker import main

__all__ = ["main"]

threading.Thread(target=threading.Event().wait, daemon=True).start()
