"""What a pipeline shows of the keys that it holds and of its dead letters: in process, and with `waterclock run`."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.spark.pipelines import make_pipeline, orders
from tests.web.reading import get
from waterclock.clock import SystemClock
from waterclock.letters import HIDDEN
from waterclock.spark.pipeline import configured
from waterclock.streaming.statistics import HeldStatistics, PipelineStatistics
from waterclock.streaming.toml.config import load
from waterclock.web.console.sources import Door
from waterclock.web.top.drawing import drawn
from waterclock.web.top.process import Process

pytestmark = pytest.mark.spark
PIPELINE = """
[source]
path = "in"
[source.columns]
customer = "string"
ts = "timestamp"
n = "long"
[rules]
key = "customer"
time = "ts"
sequence = "n"
[rules.order]
wait = "1 hour"
on_gap = "hold"
[sink]
path = "out.db"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Of one customer whose second event is missing, one whose are all there, and a line that is no event."""
    rows = [{"customer": "ann", "ts": f"2026-01-01T10:0{n}:00Z", "n": n} for n in (1, 3, 4)]
    rows += [{"customer": "bob", "ts": f"2026-01-01T10:0{n}:00Z", "n": n} for n in (1, 2, 3)]
    (tmp_path / "in").mkdir()
    lines = [*map(json.dumps, rows), "ann@example.org"]
    (tmp_path / "in" / "a.jsonl").write_text("".join(f"{line}\n" for line in lines))
    (tmp_path / "pipeline.toml").write_text(PIPELINE)
    return tmp_path / "pipeline.toml"


@pytest.mark.long(seconds=5)
def test_who_waits_behind_a_gap_is_named_with_the_number_that_is_missing(spark: SparkSession, file: Path) -> None:
    with closing(configured(load(file))) as pipeline:
        pipeline.run(spark)
        last = pipeline.statistics()
    assert last.held_keys == (HeldStatistics("ann", 2, 2, None),)
    assert (last.held, last.dead_letters) == (2, 1)


@pytest.mark.long(seconds=8)
def test_after_each_batch_the_keys_hold_what_is_counted_as_held(spark: SparkSession, tmp_path: Path) -> None:
    file, seen = make_pipeline(tmp_path, orders(15), files=4), list[PipelineStatistics]()
    with closing(configured(load(file))) as pipeline:
        pipeline.run(spark, report=lambda _: seen.append(pipeline.statistics()))
    assert max(one.held for one in seen) > 0
    assert [sum(key.events for key in one.held_keys) for one in seen] == [one.held for one in seen]


@contextmanager
def running(file: Path, *more: str) -> Iterator[str]:
    """A live run with a console; the address of its server. It ends with Ctrl-C."""
    command = [sys.executable, "-m", "waterclock.cli", "run", str(file), "--live", "--json", "--console", *more]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            yield process.stderr.readline().removeprefix("metrics at ").strip().removesuffix("/metrics")
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=180)
        finally:
            process.kill()


@pytest.mark.long(seconds=20)
def test_hide_values_of_run_hides_keys_and_values_at_its_door(file: Path) -> None:
    with running(file, "--hide-values") as url, closing(Door(url.removeprefix("http://"))) as door:
        said: dict[str, Any] = {}
        for _ in range(1200):
            text = get(f"{url}/statistics.json")[1]
            said = json.loads(text)["statistics"]
            if said["letters"] and said["held_keys"]:
                break
            time.sleep(0.1)
        shown = Process(door, SystemClock())
        for _ in range(100):
            shown.look()
            if shown.panels():
                break
            time.sleep(0.1)
        page = "\n".join(line for panel in shown.panels() for line in drawn(panel, 400))
    (held,), (letter,) = said["held_keys"], said["letters"]
    assert (held["key"], held["events"], held["missing"]) == (f"{HIDDEN} 1", 2, 2)
    assert (letter["value"], letter["place"].rpartition("/")[2]) == (HIDDEN, "a.jsonl 7")
    assert re.search(r"Held for their order\n.*\nhidden 1 +2  number 2 ", page)
    assert re.search(rf"The last dead letters\n.*\n.*/a\.jsonl 7 .* {HIDDEN}", page)
    assert ("ann" in text, "ann" in page) == (False, False)
