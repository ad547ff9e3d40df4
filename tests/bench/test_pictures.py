"""The pictures of the documents: each is what its record, or its seeded run, draws today."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

pytest.importorskip("matplotlib", reason="the records are drawn with matplotlib")
from matplotlib.image import imread

from tests.wheel.wheels import WHEELS, Make
from waterclock.bench import wheel_in_use
from waterclock.bench.pictures import RESULTS, ROOT, TIMERS, WHEEL
from waterclock.bench.plots import draw

RECORDS = sorted(RESULTS.rglob("*.json"))
AGAIN = "draw it again: make pictures"


@pytest.mark.parametrize("make", WHEELS)
def test_readmes_wheel_is_drawn_from_the_occupancy_of_each_wheel(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wheel_in_use, "TimingWheel", make)
    assert wheel_in_use.svg(wheel_in_use.live()) == WHEEL.read_text(encoding="utf-8"), AGAIN


def test_it_shows_a_sector_for_each_bucket_in_use_and_a_hand_for_each_level() -> None:
    picture, day = ElementTree.parse(WHEEL).getroot(), wheel_in_use.live()
    kinds = [path.get("class") for path in picture.iter("{http://www.w3.org/2000/svg}path")]
    assert kinds.count("timers") == sum(map(len, day.occupancy))
    assert kinds.count("hand") == len(wheel_in_use.SLOTS) == len(day.occupancy)
    assert kinds.count("track") == sum(wheel_in_use.SLOTS) - len(wheel_in_use.SLOTS)


def test_what_readme_says_of_the_picture_is_in_it() -> None:
    day = wheel_in_use.live()
    told = re.search(r"([\d,]+) timers wait in (\d+) buckets of four levels", (ROOT / "README.md").read_text())
    assert told is not None
    assert told.groups() == (f"{day.pending:,}", str(sum(map(len, day.occupancy))))


@pytest.mark.parametrize("record", RECORDS, ids=lambda file: str(file.relative_to(RESULTS).with_suffix("")))
def test_a_record_has_the_picture_that_it_draws(record: Path, tmp_path: Path) -> None:
    committed, drawn = record.with_suffix(".png"), tmp_path / "drawn.png"
    assert draw(json.loads(record.read_text(encoding="utf-8")), drawn) == committed.exists(), AGAIN
    if committed.exists():
        assert (imread(drawn) == imread(committed)).all(), AGAIN


def test_the_picture_of_the_page_of_speed_is_that_of_the_record() -> None:
    assert TIMERS.read_bytes() == (RESULTS / "timers.png").read_bytes(), AGAIN
