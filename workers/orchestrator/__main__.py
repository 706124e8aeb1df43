"""``python -m workers.orchestrator`` runs the orchestrator."""

import sys

from workers.orchestrator.process import main

sys.exit(main())
