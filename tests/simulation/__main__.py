"""python -m tests.simulation: universes by their seeds, one after the other, or `attack`: on all cores for minutes."""

import sys

from tests.simulation import command

if __name__ == "__main__":
    sys.exit(command.main(sys.argv[1:]))
