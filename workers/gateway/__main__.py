"""``python -m workers.gateway``"""

from anima.termination import leave
from workers.gateway.process import main

if __name__ == "__main__":
    leave(main)
