"""The file of buckets: what is damaged in it is never believed, and one of an older version is."""

from __future__ import annotations

import random
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from waterclock.errors import EnvironmentMissing, StateMismatch
from waterclock.local.snapshots import NAME, Snapshots, Written
from waterclock.streaming.state.bucket import StoredBucket

BUCKETS, BLOBS, FLIPS = 4, 3, 400
Found = tuple[dict[int, tuple[int, StoredBucket]], dict[int, dict[int, bytes]]]


def written(path: Path, chance: random.Random) -> Found:
    """Some buckets, and what a start finds of them."""
    with closing(Snapshots(path)) as snapshots:
        for bucket in range(BUCKETS):
            stored = StoredBucket(chance.randbytes(900), chance.randbytes(9000))
            blobs = {number: chance.randbytes(3000) for number in range(BLOBS)}
            snapshots.write("q", [Written(bucket, 7, stored, blobs, frozenset(), 0)])
    return read(path)


def read(path: Path) -> Found:
    with closing(Snapshots(path)) as snapshots:
        return snapshots.load("q", 7), {bucket: snapshots.shelf(bucket) for bucket in range(BUCKETS)}


def test_no_flipped_bit_is_believed(tmp_path: Path) -> None:
    """Whichever it is, a start finds what was written, sets the file aside, or says what it lacks."""
    chance = random.Random(31)
    whole = written(tmp_path / NAME, chance)
    place, noticed = tmp_path / "damaged", 0
    for _ in range(FLIPS):
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        data = bytearray((tmp_path / NAME).read_bytes())
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        (place / NAME).write_bytes(data)
        try:
            buckets, shelves = read(place / NAME)
        except (EnvironmentMissing, StateMismatch):
            noticed += 1
            continue
        if list(place.glob("*.damaged-1")):
            assert buckets == {}
            noticed += 1
        else:
            assert buckets == whole[0]
            assert all(shelves[bucket] == whole[1][bucket] for bucket in range(BUCKETS))
    assert noticed > FLIPS // 2  # most of the file is what counts


def test_no_flipped_bit_of_its_head_or_its_tables_stops_a_start(tmp_path: Path) -> None:
    # it was told as a disk or rights that are in the way, and so was each start behind it
    chance = random.Random(31)
    whole = written(tmp_path / NAME, chance)
    data, place, aside = (tmp_path / NAME).read_bytes(), tmp_path / "damaged", 0
    tables = range(int.from_bytes(data[105:107], "big"), int.from_bytes(data[16:18], "big"))  # of the first page
    renamed = [data.index(name) for name in (b"checksum", b"engine", b"number")]
    for at in [47, *renamed, *chance.sample([*range(20, 100), *tables], FLIPS // 2)]:
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        damaged = bytearray(data)
        damaged[at] ^= 1 << (0 if at in renamed else chance.randrange(8))
        (place / NAME).write_bytes(damaged)
        with closing(Snapshots(place / NAME)) as snapshots:
            assert snapshots.load("q", 7) in ({}, whole[0])
            snapshots.write("q", [Written(0, 8, StoredBucket(b"engine", b"rows"), {9: b"blob"}, frozenset({0}), 0)])
            assert snapshots.load("q", 8)[0] == (8, StoredBucket(b"engine", b"rows"))
            assert snapshots.blob(0, 9) == b"blob"
        aside += len(list(place.glob("*.damaged-1")))
    assert aside > FLIPS // 8


def test_a_file_of_an_older_version_is_believed_and_gets_checksums(tmp_path: Path) -> None:
    path = tmp_path / NAME
    whole = written(path, random.Random(1))
    with closing(sqlite3.connect(path)) as db:
        for table in ("bucket", "shelf"):
            db.execute(f"ALTER TABLE {table} DROP COLUMN checksum")
        db.commit()
    assert read(path) == whole
    with closing(Snapshots(path)) as snapshots:
        snapshots.write("q", [Written(0, 7, whole[0][0][1], {0: b"new"}, frozenset(), 0)])
    assert read(path)[1][0][0] == b"new"
    with closing(sqlite3.connect(path)) as db:
        db.execute("UPDATE shelf SET blob = ? WHERE number = 0 AND bucket = 0", (b"other",))
        db.commit()
    with pytest.raises(StateMismatch, match="lacks the blob 0 of bucket 0, or it is damaged"):
        read(path)
