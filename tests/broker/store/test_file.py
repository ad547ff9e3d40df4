"""The store's file: whatever is damaged costs no more than the commits that it hits, and is said."""

from __future__ import annotations

import logging
import os
import resource
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("crc32c")

from waterclock.broker.errors import LogDamaged
from waterclock.broker.knobs import Knobs
from waterclock.broker.store import Entry, Store
from waterclock.broker.store.file import ALL_BUT, Row, StoreDamage, StoreFile, frame, packed, read

COMMITS = 5
TEXTS = st.text(st.characters(exclude_categories=[]), max_size=8)  # lone surrogates too
ROWS = st.builds(Row, st.text("abc", min_size=1, max_size=2), TEXTS, st.none() | st.binary(max_size=9))


def frames(*commits: list[Row], first: int = 1) -> list[bytes]:
    return [frame(number, b"".join(map(packed, rows))) for number, rows in enumerate(commits, first)]


FIVE = frames(*([Row("r", str(number), b"%d" % number)] for number in range(COMMITS)))
WHOLE = b"".join(FIVE)


def held(data: bytes) -> dict[str, bytes]:
    return read(data).contents.get("r", {})


@given(st.lists(st.lists(ROWS, max_size=4), max_size=4))
def test_what_is_read_is_what_a_dictionary_would_hold(commits: list[list[Row]]) -> None:
    expected: dict[tuple[str, str], bytes | None] = {}
    for row in (row for rows in commits for row in rows):
        expected[row.namespace, row.key] = row.value
    found = read(b"".join(frames(*commits)))
    here = {(name, key): value for name, keys in found.contents.items() for key, value in keys.items()}
    assert here == {place: value for place, value in expected.items() if value is not None}
    assert (found.number, found.damages) == (len(commits), [])


def test_a_file_cut_at_any_byte_holds_the_commits_that_are_whole_and_says_that_it_ends_badly() -> None:
    ends = [sum(map(len, FIVE[:count])) for count in range(COMMITS + 1)]
    for size in range(len(WHOLE)):
        whole = sum(end <= size for end in ends) - 1
        found = read(WHOLE[:size])
        assert len(found.contents.get("r", {})) == found.number == whole
        left = size - ends[whole]
        assert found.damages == ([StoreDamage(ends[whole], left, whole + 1, None)] if left else [])


def test_a_flipped_bit_anywhere_costs_one_commit_and_is_said_with_its_number() -> None:
    starts = [sum(map(len, FIVE[:count])) for count in range(COMMITS + 1)]
    for at in range(len(WHOLE)):
        for bit in range(8):
            data = bytearray(WHOLE)
            data[at] ^= 1 << bit
            hit = sum(start <= at for start in starts) - 1
            found = read(bytes(data))
            assert sorted(found.contents["r"]) == [str(number) for number in range(COMMITS) if number != hit]
            upto = None if hit == COMMITS - 1 else hit + 2
            assert found.damages == [StoreDamage(starts[hit], len(FIVE[hit]), hit + 1, upto)]


def test_zeros_behind_the_last_commit_are_room_for_the_next_and_anything_else_is_damage() -> None:
    assert read(WHOLE + bytes(1000)).damages == []
    assert read(WHOLE + bytes(1000) + b"x").damages == [StoreDamage(len(WHOLE), 1001, COMMITS + 1, None)]


def test_a_range_of_zeros_is_said_as_one_damage() -> None:
    start, end = len(FIVE[0]) + 3, len(FIVE[0] + FIVE[1]) + 5
    data = WHOLE[:start] + bytes(end - start) + WHOLE[end:]
    assert sorted(held(data)) == ["0", "3", "4"]
    assert read(data).damages == [StoreDamage(len(FIVE[0]), len(FIVE[1] + FIVE[2]), 2, 4)]


def test_a_commit_that_was_taken_out_whole_is_missed_by_its_number() -> None:
    data = WHOLE.replace(FIVE[2], b"")
    assert sorted(held(data)) == ["0", "1", "3", "4"]
    assert read(data).damages == [StoreDamage(len(FIVE[0] + FIVE[1]), 0, 3, 4)]


def test_an_old_commit_that_comes_again_is_not_done_again() -> None:
    old, new = frames([Row("r", "k", b"1")], [Row("r", "k", b"2")])
    assert held(old + new + old) == {"k": b"2"}
    assert read(old + new + old).damages == [StoreDamage(len(old + new), len(old), 3, None)]


def test_a_value_that_looks_like_a_commit_is_none() -> None:
    inner = frames([Row("r", "inner", b"1")], first=7)[0]
    outer = frames([Row("r", "outer", inner)])[0]
    assert list(held(outer)) == ["outer"]


def test_all_but_some_namespaces_go_at_their_place() -> None:
    data = b"".join(
        frames([Row("own", "a", b"1"), Row("r", "a", b"1")], [Row(ALL_BUT, '["own"]', None), Row("r", "b", b"2")])
    )
    assert read(data).contents == {"own": {"a": b"1"}, "r": {"b": b"2"}}


# A disk


@contextmanager
def room_for(size: int) -> Iterator[None]:
    """No file of this process can be longer: a write that would make it so is cut off, and the next refused."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_what_a_disk_takes_in_part_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "store.log"
    file = StoreFile(str(path), 0, 0)
    file.append([Row("r", "a", b"1")])
    size = path.stat().st_size
    with room_for(size + 100), pytest.raises(OSError, match=r"bytes written|File too large"):
        file.append([Row("r", "b", b"2" * 2 * Knobs().store_reserved)])
    assert path.stat().st_size == file.size < size
    file.append([Row("r", "c", b"3")])
    file.close()
    assert read(path.read_bytes()).contents == {"r": {"a": b"1", "c": b"3"}}


# The store over it


def opened(folder: Path) -> Any:
    return closing(Store(str(folder), lambda *arguments: None))


def kept(folder: Path) -> dict[str, Any]:
    with opened(folder) as store:
        return dict(store.load("r"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with opened(tmp_path) as store:
        for number in range(COMMITS):
            store.commit_at_once(Entry("r", str(number), number))
    return tmp_path


def test_damage_is_said_with_its_place_moved_aside_and_not_there_at_the_next_start(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = folder / "store.log"
    data = path.read_bytes()
    starts = [at for at in range(len(data)) if data.startswith(b"wcS1", at)]
    path.write_bytes(bad := data[: starts[2] + 9] + b"?" + data[starts[2] + 10 :])
    assert kept(folder) == {"0": 0, "1": 1, "3": 3, "4": 4}
    aside = folder / "unknown" / f"store.log.{starts[2]}"
    assert aside.read_bytes() == bad[starts[2] : starts[3]]
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert f"store.log is damaged: {starts[3] - starts[2]} bytes from byte {starts[2]} on" in record.getMessage()
    assert str(aside) in record.getMessage()
    assert "commits 3 to 3 are missing" in record.getMessage()
    caplog.clear()
    assert kept(folder) == {"0": 0, "1": 1, "3": 3, "4": 4}
    assert not caplog.records


def test_a_torn_end_is_said_and_the_next_commit_stands(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = folder / "store.log"
    path.write_bytes(path.read_bytes()[:-3])
    with opened(folder) as store:
        store.commit_at_once(Entry("r", "new", 1))
    assert "what was committed last is missing" in caplog.text
    assert kept(folder) == {"0": 0, "1": 1, "2": 2, "3": 3, "new": 1}


# The file of earlier versions


def sqlite(folder: Path, *rows: tuple[str, str, str]) -> None:
    with closing(sqlite3.connect(folder / "store.sqlite")) as database, database:
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("CREATE TABLE kept (room TEXT, key TEXT, value TEXT, PRIMARY KEY (room, key)) WITHOUT ROWID")
        database.executemany("INSERT INTO kept VALUES (?, ?, ?)", rows)


def test_the_store_of_an_earlier_version_is_taken_over_and_moved_aside(tmp_path: Path) -> None:
    sqlite(tmp_path, ("r", "a", "1"), ("r", "b", '{"x":[2]}'))
    for _ in range(2):
        assert kept(tmp_path) == {"a": 1, "b": {"x": [2]}}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["store.log", "store.number", "unknown"]
    assert [path.name for path in (tmp_path / "unknown").iterdir()] == ["store.sqlite"]


def test_one_that_a_user_brings_back_is_not_read_over_a_newer_one(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sqlite(folder, ("r", "0", '"old"'))
    assert kept(folder)["0"] == 0
    assert "was not read" in caplog.text
    assert (folder / "unknown" / "store.sqlite").exists()


def test_a_row_of_it_that_cannot_be_read_is_said_and_costs_no_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sqlite(tmp_path, ("r", "a", "1"), ("r", "b", '{"x":[2'))
    assert kept(tmp_path) == {"a": 1}
    assert "r 'b' cannot be read" in caplog.text


def test_one_that_is_no_store_is_said_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    path.write_bytes(b"not a database at all " * 100)
    with pytest.raises(LogDamaged, match=r"store\.sqlite cannot be read .*restore it"):
        Store(str(tmp_path), lambda *arguments: None)
    assert path.read_bytes() == b"not a database at all " * 100


def test_what_is_read_of_a_file_is_flushed_before_anything_is_done_by_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever wrote it may have died before its own flush."""
    path = tmp_path / "store.log"
    path.write_bytes(WHOLE)
    flushed: list[int] = []
    monkeypatch.setattr(os, "fdatasync", lambda fd: flushed.append(os.fstat(fd).st_ino))
    with closing(StoreFile(str(path), COMMITS, len(WHOLE))):
        assert flushed == [path.stat().st_ino]
