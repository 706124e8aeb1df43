"""The home directory of an embedded Anima, and the addresses of its parts."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

DEFAULT_GATEWAY = "http://127.0.0.1:8420"


@dataclass(frozen=True, slots=True)
class Home:
    """Paths below one directory; nothing is created by naming them."""

    root: Path

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> "Home":
        """Use ``ANIMA_HOME``, or ``~/.anima``."""
        return cls(Path(environ.get("ANIMA_HOME") or "~/.anima").expanduser().absolute())

    @property
    def database(self) -> Path:
        """Catalog and Ledger."""
        return self.root / "anima.db"

    @property
    def temporal_database(self) -> Path:
        return self.root / "temporal.db"

    @property
    def attempt_key(self) -> Path:
        """The secret that attempt tokens are derived from."""
        return self.root / "keys" / "attempt.key"

    @property
    def user_token(self) -> Path:
        """The token of the gateway's user routes."""
        return self.root / "keys" / "user.token"

    @property
    def jobs(self) -> Path:
        """One directory a Job: ``jobs/<namespace>/<name>``."""
        return self.root / "jobs"

    @property
    def run(self) -> Path:
        """Sockets, and what the running stack says of itself."""
        return self.root / "run"

    @property
    def stack(self) -> Path:
        """The addresses of the running stack, as JSON."""
        return self.run / "stack.json"

    @property
    def logs(self) -> Path:
        return self.root / "logs"
