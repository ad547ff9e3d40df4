"""All benchmarks, their results written down: `make bench`, or `python -m bench.run [wheel|pipeline] ...`.

bench/results/<name>.json holds the figures with the machine and the versions; docs/performance.md tells what they mean.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

from waterclock.bench import pipeline, wheel

RESULTS = Path(__file__).parent / "results"


def versions() -> dict[str, str]:
    """What the figures were measured with, beside the machine."""
    return {name: version(name) for name in ("pyspark", "pyarrow", "msgpack", "numpy")}


def run_wheel() -> dict[str, Any]:
    """CPU ns an operation, at three sizes."""
    return {str(pending): wheel.run(pending, rounds=5, seed=1) for pending in (1_000, 100_000, 1_000_000)}


def run_pipeline(rows_a_batch: int = 40_000, rounds: int = 1) -> list[dict[str, Any]]:
    """Ours and what users write by hand."""
    with tempfile.TemporaryDirectory() as folder:
        runs = pipeline.measure(rows_a_batch, rows_a_batch, rounds, Path(folder))
    return pipeline.table(runs, rows_a_batch)


BENCHMARKS = {"wheel": run_wheel, "pipeline": run_pipeline}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which: {', '.join(BENCHMARKS)} (default: all)")
    RESULTS.mkdir(exist_ok=True)
    for name in parser.parse_args().names or BENCHMARKS:
        print(f"{name}: measuring, minutes ...")
        figures = {"machine": wheel.machine(), "versions": versions(), "figures": BENCHMARKS[name]()}
        (RESULTS / f"{name}.json").write_text(json.dumps(figures, indent=1) + "\n")
        print(json.dumps(figures["figures"], indent=1))


if __name__ == "__main__":
    main()
