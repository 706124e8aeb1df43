"""``python -m workers.orchestrator`` runs the orchestrator."""

from anima.termination import leave
from workers.orchestrator.process import main

leave(main)
