"""All pictures of the documents, drawn anew: `make pictures`, or `python -m bench.pictures`. Nothing is measured.

1. docs/pictures/wheel.svg: a wheel in use, from a seeded run        wheel_in_use.py
2. a PNG beside each record of bench/results that has a picture      plots.py
3. docs/pictures/timers.png: a copy of one of these, for docs/performance.md
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

from waterclock.bench.plots import draw
from waterclock.bench.wheel_in_use import live, svg

ROOT = Path(__file__).parents[1]
WHEEL = ROOT / "docs" / "pictures" / "wheel.svg"
RESULTS = ROOT / "bench" / "results"
TIMERS = WHEEL.with_name("timers.png")


def main() -> int:
    WHEEL.parent.mkdir(exist_ok=True)
    WHEEL.write_text(svg(live()), encoding="utf-8")
    print(WHEEL.relative_to(ROOT))
    for record in sorted(RESULTS.rglob("*.json")):
        picture = record.with_suffix(".png")
        if draw(json.loads(record.read_text(encoding="utf-8")), picture):
            print(picture.relative_to(ROOT))
    shutil.copyfile(RESULTS / TIMERS.name, TIMERS)
    print(TIMERS.relative_to(ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main())
