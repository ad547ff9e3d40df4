"""The latency of the main job: each event's own, from sending to the commit of the batch that took it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from waterclock.examples.fines.latency import latencies_s, percentile, taken


def offsets(**ends: int) -> str:
    places = ", ".join(f'"{name[1:]}": {end}' for name, end in ends.items())
    return f'v1\n{{}}\n{{"fines": {{{places}}}}}\n-'


def database(folder: Path, *batches: str) -> Path:
    with closing(sqlite3.connect(folder / "fines.db")) as db, db:
        db.execute("CREATE TABLE results_batches (batch_id, offsets)")
        db.executemany("INSERT INTO results_batches VALUES (?, ?)", enumerate(batches))
    return folder / "fines.db"


def test_a_batch_took_what_lies_between_its_end_and_the_one_before() -> None:
    found = [(0, offsets(p0=2, p1=0)), (1, offsets(p0=2, p1=3)), (2, offsets(p0=5, p1=3))]
    assert [each for each in taken(found) if each[2] < each[3]] == [(0, 0, 0, 2), (1, 1, 0, 3), (2, 0, 2, 5)]


def test_each_event_is_counted_from_its_own_sending_to_its_batch(tmp_path: Path) -> None:
    sent_s = {(0, 1): 10.0, (0, 2): 11.0, (1, 0): 12.0}  # (0, 0) is a heartbeat: nobody waits for it
    db = database(tmp_path, offsets(p0=2, p1=0), offsets(p0=3, p1=1))
    assert latencies_s(db, sent_s, {0: 10.5, 1: 13.0}) == [0.5, 1.0, 2.0]


def test_a_batch_of_an_earlier_run_is_left_out(tmp_path: Path) -> None:
    db = database(tmp_path, offsets(p0=1), offsets(p0=2))
    assert latencies_s(db, {(0, 0): 1.0, (0, 1): 2.0}, {1: 2.5}) == [0.5]


def test_half_and_ninety_nine_of_a_hundred() -> None:
    ordered = [float(number) for number in range(1, 201)]
    assert (percentile(ordered, 50), percentile(ordered, 99), percentile([7.0], 99)) == (100.0, 198.0, 7.0)
