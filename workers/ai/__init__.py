"""The AI worker: the process inside a Job that asks a model and reports its answer."""

from workers.ai.job import main
from workers.ai.warmth import preload

__all__ = ["main", "preload"]
