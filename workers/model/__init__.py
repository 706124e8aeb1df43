"""The small model: real answers on the CPU, without a key and without a network."""

from workers.model.server import main

__all__ = ["main"]
