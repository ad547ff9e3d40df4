"""Files that vanish, that somebody still writes, and whose records are gone: told, and nothing is read twice."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.local.running import run_locally
from tests.local.test_pipeline import change, replayed
from tests.spark.pipelines import make_pipeline, orders, table
from waterclock.errors import StateMismatch, WaterclockError
from waterclock.local import sources
from waterclock.local.command import configured
from waterclock.local.snapshots import NAME
from waterclock.streaming.layout import Block, Layout, dead_file
from waterclock.streaming.statistics import Progress
from waterclock.streaming.toml.config import load

AS_NOBODY = """
import os, sys
from pathlib import Path
from tests.streaming.files.ways import LAYOUT
from waterclock.local.sources import FileSource
from waterclock.streaming.toml.config import Files
source = FileSource(Files("jsonl", Path(sys.argv[1]), 16, LAYOUT.columns), LAYOUT.rules, 0)
os.setuid(65534)
source.check()
given = source.take()
print(given.counters, [row["reason"] for table in given.dead for row in table.to_pylist()])
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A pipeline that does not close, four files a batch."""
    made = make_pipeline(tmp_path, orders(40), 4, 4)
    change(made, "[time]\n", "[time]\nclose = false\n")
    return made


def dead_letters(file: Path) -> list[tuple[str, str]]:
    with closing(sqlite3.connect(file.parent / "out.db")) as db:
        found = db.execute("SELECT file, reason FROM results_dead_letters").fetchall()
    return [(name.rpartition("/")[2], reason) for name, reason in found]


def delete(file: Path, where: str) -> None:
    with closing(sqlite3.connect(file.parent / "out.db", isolation_level=None)) as db:
        for part in ("", "_batches", "_dead_letters"):
            db.execute(f"DELETE FROM results{part} WHERE {where}")


def test_a_file_that_goes_while_its_batch_is_read_is_a_dead_letter_and_stays_one(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, gone = sources._size, file.parent / "in" / "002.jsonl"

    def moved_away(path: Path) -> int | None:
        size = seen(path)
        if path == gone:
            path.unlink()
        return size

    monkeypatch.setattr(sources, "_size", moved_away)
    assert run_locally(file).batches == 1
    assert dead_letters(file) == [("002.jsonl", sources._GONE)]
    before = table(file.parent)
    (file.parent / "checkpoint" / NAME).unlink()
    assert replayed(file) == 1
    assert table(file.parent) == before != []


def test_a_file_that_goes_while_it_is_read_once_more_is_missed(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_locally(file)
    (file.parent / "checkpoint" / NAME).unlink()
    sizes = {path.name: path.stat().st_size for path in (file.parent / "in").iterdir()}
    (file.parent / "in" / "002.jsonl").unlink()
    monkeypatch.setattr(sources, "_size", lambda path: sizes[path.name])  # it goes behind the look at it
    with pytest.raises(StateMismatch, match=r"002.jsonl is gone since it was read"):
        run_locally(file)


def test_a_file_that_cannot_be_read_once_more_is_missed(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_locally(file)
    (file.parent / "checkpoint" / NAME).unlink()
    read = sources.read_file

    def forbidden(path: str, layout: Layout) -> Iterator[Block]:
        return iter([dead_file(path, layout, "Permission denied")]) if "001" in path else read(path, layout)

    monkeypatch.setattr(sources, "read_file", forbidden)
    with pytest.raises(StateMismatch, match="batch 0 was read once more, and says other counts than before"):
        run_locally(file)
    monkeypatch.undo()
    assert replayed(file) == 1


def test_a_file_of_the_same_length_and_with_the_same_times_is_another_one(file: Path) -> None:
    run_locally(file)
    (file.parent / "checkpoint" / NAME).unlink()
    path = file.parent / "in" / "001.jsonl"
    path.write_text(path.read_text().replace('"n": 1', '"n": "'))
    with pytest.raises(StateMismatch, match=r"says other counts than before \(\{.*'dead_letters': [1-9]"):
        run_locally(file)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_link_that_this_user_may_not_follow_is_a_dead_letter_and_stops_nobody() -> None:
    with tempfile.TemporaryDirectory() as folder:  # pytest's own are closed to others
        closed, source = Path(folder, "closed"), Path(folder, "in")
        Path(folder).chmod(0o755)
        closed.mkdir(0o700)
        source.mkdir(0o755)
        (closed / "a.jsonl").touch()
        (source / "link.jsonl").symlink_to(closed / "a.jsonl")
        command = [sys.executable, "-c", AS_NOBODY, str(source)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.startswith("{'files': 1, 'dead_letters': 1, 'heartbeats': 0} "), done.stderr
    assert "cannot be read: " in done.stdout


def test_a_file_that_hadoop_still_writes_is_read_once_it_has_its_name(file: Path) -> None:
    whole = file.parent / "in" / "000.jsonl"
    half = whole.rename(whole.with_name(f"{whole.name}._COPYING_"))
    assert run_locally(file).totals["files"] == 3
    half.rename(whole)
    totals = run_locally(file).totals
    assert (totals["files"], totals["events"]) == (4, len(orders(40)))


def test_rows_of_batches_that_somebody_deleted_are_missed(file: Path) -> None:
    run_locally(file)
    late = {"order": "late", "at": "2026-01-09T00:00:00Z", "what": "created", "id": "late", "n": 1}
    (file.parent / "in" / "late.jsonl").write_text(json.dumps(late) + "\n")
    run_locally(file)
    whole = Path(shutil.copy(file.parent / "out.db", file.parent / "copy"))
    delete(file, "batch_id < 1")
    before = table(file.parent)
    with pytest.raises(StateMismatch, match=r"lacks the record of batch 0.*restore its rows of batches"):
        run_locally(file)
    assert table(file.parent) == before
    whole.replace(file.parent / "out.db")
    assert run_locally(file).batches == 0


def test_where_another_engine_handed_the_sink_over_records_begin_there_and_a_state_that_is_lost_is_missed(
    file: Path,
) -> None:
    run_locally(file)
    path = file.parent / "checkpoint" / NAME
    with closing(sqlite3.connect(file.parent / "out.db", isolation_level=None)) as db:
        ((text,),) = db.execute("SELECT offsets FROM results_batches").fetchall()
        record = json.loads(text)
        record["start"] = record["place"]
        db.execute("UPDATE results_batches SET batch_id = 7, offsets = ?", (json.dumps(record),))
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("UPDATE bucket SET batch = 7, checksum = NULL")
    assert run_locally(file).batches == 0
    path.unlink()
    with pytest.raises(StateMismatch, match="lacks the record of batch 0"):
        run_locally(file)


def test_a_sink_that_was_put_back_is_told(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    run_locally(file)
    assert run_locally(file).batches == 0
    assert "is read again" not in caplog.text
    delete(file, "batch_id > -1")
    (file.parent / "in" / "002.jsonl").unlink()
    assert run_locally(file).totals["files"] == 3
    assert "has no batch behind -1, and the checkpoint" in caplog.text


def test_a_source_is_closed_when_nobody_reads_it_any_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, reads, at_the_end = make_pipeline(tmp_path, orders(40), 12), list[int](), list[int]()
    take = sources.FileSource.take

    def slowly(source: sources.FileSource) -> sources.Input | None:
        reads.append(1)
        time.sleep(0.1)
        found = take(source)
        reads.pop()
        return found

    def fail(progress: Progress) -> None:
        raise WaterclockError("the disk is full")

    monkeypatch.setattr(sources.FileSource, "take", slowly)
    monkeypatch.setattr(sources.FileSource, "close", lambda source: at_the_end.extend(reads))
    with pytest.raises(WaterclockError, match="full"), closing(configured(load(file))) as pipeline:
        pipeline.run(report=fail)
    assert at_the_end == []
