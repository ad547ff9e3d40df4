"""`waterclock bench pipeline`: a tiny size through the command. Figures are not looked at; answers and the record are."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from waterclock.bench import tables

FIGURE = {"batch_ms": 100, "rows_per_second": 400_000, "all_rules_faster_by": 0.32, "right": True}


def test_who_has_no_rules_is_compared_with_all_of_ours_alone() -> None:
    record = {"contender": "no rules: read and write", "rows_a_batch": 40_000, "same_rule_faster_by": None, **FIGURE}
    (line,) = [line for line in tables.pipeline([record]).splitlines() if line.startswith("no rules")]
    assert line.split()[-6:] == ["40,000", "100", "400,000", "-", "0.32x", "right"]


@pytest.mark.spark
@pytest.mark.long(seconds=170)
def test_everybody_answers_right_and_the_record_is_written(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "waterclock.cli", "bench", "pipeline", "--contenders", "spark", "--sizes", "100"]
    command += ["--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "pipeline.json").read_text())
    shown = "waterclock bench pipeline --contenders spark --sizes 100 --events 100000,700000 --rounds 1"
    assert found["command"] == shown
    from waterclock.bench.pipeline import EVERYBODY

    by_hand = found["figures"]["by_hand"]
    assert [(figure["contender"], figure["right"]) for figure in by_hand] == [(n, True) for n in EVERYBODY]
    assert (tmp_path / "pipeline.txt").read_text() == done.stdout
    assert (tmp_path / "pipeline.png").stat().st_size > 10_000
    told = done.stderr.splitlines()
    assert [line for line in told if line.startswith("round 1 of 1, 7 of 7: no rules: read and write, batch")]
