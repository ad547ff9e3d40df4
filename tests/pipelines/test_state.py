"""`waterclock state show` of a pipeline without Spark: no Spark is needed, nothing is written, and it may run meanwhile."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.local.running import counts, living, run_locally
from tests.spark.pipelines import make_pipeline, orders
from waterclock import cli
from waterclock.local.snapshots import NAME

BLOCK = "import sys; sys.modules['pyspark'] = None\nfrom waterclock.cli import main; sys.exit(main(sys.argv[1:]))"


def not_closed(file: Path) -> Path:
    file.write_text(file.read_text().replace('watermark_delay = "1 hour"', 'watermark_delay = "1 hour"\nclose = false'))
    return file


def test_a_state_is_shown_without_spark(tmp_path: Path) -> None:
    file = not_closed(make_pipeline(tmp_path, orders(20), 5))
    run_locally(file)
    before = {each: (each.read_bytes(), each.stat().st_mtime_ns) for each in (tmp_path / "checkpoint").iterdir()}
    shown = [
        subprocess.run(
            [sys.executable, "-c", BLOCK, "state", "show", str(place), *more], capture_output=True, text=True
        )
        for place, more in ((file, ["--json"]), (tmp_path / "checkpoint", []))
    ]
    assert [each.stderr for each in shown] == ["", ""]
    found = json.loads(shown[0].stdout)
    assert (found["keys"], found["buckets"], found["batch_id"]) == (20, 4, 4)
    assert sum(each["keys"] for each in found["stored"]) == 20
    assert found["bytes"] == sum(each["bytes"] for each in found["stored"]) > 1000
    assert "20 keys in 4 buckets in 1 partition" in shown[1].stdout
    assert "after batch 4\n" in shown[1].stdout
    assert {each: (each.read_bytes(), each.stat().st_mtime_ns) for each in before} == before


def test_a_state_is_shown_while_its_pipeline_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = not_closed(make_pipeline(tmp_path, orders(20), 5, files_per_batch=1))
    run_locally(file)
    with living(file) as (pipeline, _):
        counts(pipeline, "files", 5)
        assert cli.main(["state", "show", str(file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["keys"] == 20


def test_what_holds_no_state_and_what_cannot_be_read_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, state = not_closed(make_pipeline(tmp_path, orders(5), 1)), tmp_path / "checkpoint" / NAME
    run_locally(file)
    kept = state.read_bytes()
    state.write_bytes(b"x" * len(kept))
    assert cli.main(["state", "show", str(file)]) != 0
    assert "cannot be read" in capsys.readouterr().err
    os.unlink(state)
    assert cli.main(["state", "show", str(file)]) == 2
    assert "holds no state of rules yet" in capsys.readouterr().err
