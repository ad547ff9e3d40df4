"""The benchmarks one after the other, their results into bench/results: `make bench`, or `python -m bench.run [NAME ...]`.

Each is `waterclock bench NAME` with its own sizes; docs/performance.md and the pages beside the records say what the
figures mean.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from waterclock.bench.benchmarks import BENCHMARKS
from waterclock.cli import main as waterclock
from waterclock.errors import meant

RESULTS = Path(__file__).parent / "results"


def main(arguments: Sequence[str] | None = None) -> int:
    """The first exit code that is not 0, and nothing is run after it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which: {', '.join(BENCHMARKS)} (default: all)")
    names = parser.parse_args(arguments).names
    if unknown := [name for name in names if name not in BENCHMARKS]:
        parser.error(f"there is no benchmark {unknown[0]!r}; {meant(unknown[0], BENCHMARKS)}")
    for name in names or BENCHMARKS:
        if code := waterclock(["bench", name, "--out", str(RESULTS)]):
            return code
    return 0


if __name__ == "__main__":
    sys.exit(main())
