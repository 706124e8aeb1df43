"""``python -m workers.ai``: run one attempt in an interpreter of its own."""

import sys

from workers.ai import main

sys.exit(main())
