"""``python -m workers.gateway``"""

import sys

from workers.gateway.process import main

if __name__ == "__main__":
    sys.exit(main())
