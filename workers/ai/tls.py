"""The TLS context of all clients, built once: it costs more than a whole request."""

import os
import ssl
from functools import lru_cache

import httpx2

from anima.model.errors import Refusal
from anima.model.reasons import Reason


def tls_context() -> ssl.SSLContext:
    """Return the context for the certificates that this environment names.

    Raises:
        Refusal: `JobFailed` if they cannot be read.
    """
    try:
        return _context(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))
    except OSError as error:
        cause = error.strerror or type(error).__name__
        raise Refusal(
            Reason.JOB_FAILED, f"the certificates that SSL_CERT_FILE or SSL_CERT_DIR names cannot be used: {cause}"
        ) from None


@lru_cache(maxsize=1)
def _context(cert_file: str | None, cert_dir: str | None) -> ssl.SSLContext:  # noqa: ARG001 - they are the cache's key
    return httpx2.create_ssl_context()
