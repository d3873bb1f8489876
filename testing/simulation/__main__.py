"""python -m kohort.testing.simulation: see `runner.py`, which its worker processes import."""

import sys

from kohort.testing.simulation.runner import main

if __name__ == "__main__":
    sys.exit(main())
