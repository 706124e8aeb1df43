"""``python -m workers.model --port N``: serve the small model on loopback."""

import sys

from workers.model import main

sys.exit(main())
