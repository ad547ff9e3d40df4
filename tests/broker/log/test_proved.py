"""After a crash: what the log itself proves was durable once, and is not there any more."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

pytest.importorskip("crc32c")
pytest.importorskip("cramjam")

from tests.broker.log.damage import (
    COMPACTED,
    MARK,
    NOW,
    append,
    compact,
    deleted,
    flushes,
    follow_the_remedy,
    opened,
    read,
    recorded,
    refused,
)  # fmt: skip
from tests.broker.log.test_aborted import begin
from tests.broker.log.test_clean_stop import SETTINGS, fill, offsets, path
from tests.broker.record_batches import Rec, batch
from waterclock.broker.errors import LogDamaged
from waterclock.broker.log.clean_stop import CleanStop
from waterclock.broker.log.durable import close_durably
from waterclock.broker.log.index import Index
from waterclock.broker.log.recovery import open_partition
from waterclock.broker.log.removal import begin_anew
from waterclock.broker.log.swap import CLEANED
from waterclock.broker.wire.errors import Error


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A durable log of 50 batches in three segments, without a snapshot, that nobody closed."""
    fill(opened(tmp_path, SETTINGS), 50)
    return tmp_path


def go_on(data: Path, *gone: str) -> list[int]:
    """Do what the errors say, which deletes these files; the offsets that are there then, twice the same."""
    deleted = []
    while (error := refused(data, SETTINGS)) is not None:
        deleted += follow_the_remedy(error)
    assert deleted == [*gone]
    found = offsets(opened(data, SETTINGS))
    assert offsets(opened(data, SETTINGS)) == found
    return found


# Segments


@pytest.mark.parametrize("base", [0, 18])
def test_a_closed_segment_of_no_bytes_is_an_error(data: Path, base: int) -> None:
    os.truncate(path(data, base), 0)
    path(data, base, "index").unlink()
    for _ in range(2):
        with pytest.raises(LogDamaged, match=rf"{base:020}\.log is empty, and at offset {base + 18} the next segment"):
            opened(data, SETTINGS)
    assert go_on(data, f"{base:020}.log") == [n for n in range(50) if not base <= n < base + 18]


@pytest.mark.parametrize("base", [0, 18, 36])
@pytest.mark.parametrize("left", [0, 6])
def test_a_segment_that_is_shorter_than_its_index_says_is_an_error(data: Path, base: int, left: int) -> None:
    size, rows = path(data, base).stat().st_size, path(data, base, "index").read_bytes()
    os.truncate(path(data, base), size // (14 if base == 36 else 18) * left)
    for _ in range(2):
        with pytest.raises(
            LogDamaged, match=rf"{base:020}\.log has \d+ bytes, and \S+{base:020}\.index has a batch at"
        ):
            opened(data, SETTINGS)
    assert path(data, base, "index").read_bytes() == rows
    ways = [f"{base:020}.index", *[f"{base:020}.log"] * (not left and base < 36)]
    assert go_on(data, *ways) == [n for n in range(50) if not base + left <= n < base + 18]


@pytest.mark.parametrize("base", [0, 18, 36])
def test_a_segment_that_is_gone_is_told_by_its_index(data: Path, base: int, caplog: pytest.LogCaptureFixture) -> None:
    path(data, base).unlink()
    log = opened(data, SETTINGS)
    assert offsets(log) == [n for n in range(50) if not base <= n < base + 18]
    assert f"has no records from offset {base} to before" in caplog.text
    assert f"{base:020}.log is gone" in caplog.text
    assert log.end >= 49  # no offset that a reader may have seen is given again, as far as the index goes


def test_a_log_of_which_its_snapshot_alone_is_left_goes_on_behind_it_and_that_is_told(
    data: Path, caplog: pytest.LogCaptureFixture
) -> None:
    opened(data, SETTINGS).take_snapshot()
    for base in (0, 18, 36):
        path(data, base).unlink()
        path(data, base, "index").unlink()
    log = opened(data, SETTINGS)
    assert (log.start, log.end) == (0, 50)  # who stands among what is lost gets the first record behind
    assert "has no records from offset 0 to before 50: every segment is gone" in caplog.text


@pytest.mark.parametrize("kept", [False, True])
def test_a_first_file_that_is_gone_with_its_index_is_told_by_where_the_log_began(
    data: Path, caplog: pytest.LogCaptureFixture, kept: bool
) -> None:
    if kept:
        opened(data, SETTINGS).memo.save()
    path(data, 0).unlink()
    path(data, 0, "index").unlink()
    assert (opened(data, SETTINGS).start, offsets(opened(data, SETTINGS))) == (0, [*range(18, 50)])
    assert "has no records from offset 0 to before 18: the first file, with its index, is gone" in caplog.text


def test_an_index_that_was_put_back_from_before_is_named_in_the_error(data: Path) -> None:
    """It says that there was more; nobody but its owner knows that it is of another log."""
    index = Index(str(path(data, 40, "index")), 40)
    index.note(40, 0, -1)
    index.note(77, 5000, -1)
    index.save(6000)
    with pytest.raises(LogDamaged, match=r"had come to offset 78 once"):
        opened(data, SETTINGS)
    assert go_on(data, f"{40:020}.index") == list(range(50))


def test_what_was_begun_behind_a_file_that_is_gone_is_kept(data: Path) -> None:
    path(data, 36).unlink()
    log = opened(data, SETTINGS)
    end = log.end
    assert log.append(memoryview(bytearray(batch([Rec(b"k", b"not flushed", NOW)]))), NOW) == (Error.NONE, end)
    assert offsets(opened(data, SETTINGS)) == [*range(36), end]


def test_a_log_that_ends_before_its_snapshot_goes_on_without_the_snapshot(data: Path) -> None:
    log = opened(data, SETTINGS)
    fill(log, 1, idempotent=True)
    log.take_snapshot()
    size = log.active.size
    os.truncate(path(data, 36), size - log.active.locate(50)[1])
    with pytest.raises(LogDamaged, match=r"ends at byte \d+, before offset 50, and the log had come to offset 51 once"):
        opened(data, SETTINGS)
    assert go_on(data, f"{51:020}.snapshot") == list(range(50))


def test_a_torn_tail_that_is_cut_is_told(data: Path, caplog: pytest.LogCaptureFixture) -> None:
    size = path(data, 36).stat().st_size
    with path(data, 36).open("ab") as file:
        file.write(b"torn")
    opened(data, SETTINGS)
    assert f"{36:020}.log was cut at byte {size} of {size + 4}: no whole batch follows" in caplog.text


def test_a_torn_tail_is_gone_for_good_before_anything_is_appended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its one batch needs no flush any more: the index names it."""
    fill(opened(tmp_path, SETTINGS), 1)
    with path(tmp_path, 0).open("ab") as file:
        file.write(b"torn")
    deeds = recorded(monkeypatch, "ftruncate", "fdatasync")
    opened(tmp_path, SETTINGS)
    assert deeds == ["ftruncate", "fdatasync"]


def test_the_end_of_a_file_that_was_closed_is_durable_before_a_start_tells_of_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was cut there, and the process was killed: its one batch needs no flush any more, the cut does."""
    log = opened(tmp_path, SETTINGS)
    fill(log, 1)
    log.roll()
    append(log, Rec(b"k", b"v", NOW))
    flushed = flushes(monkeypatch)
    opened(tmp_path, SETTINGS)
    assert {name for name, _ in flushed} == {str(path(tmp_path, base)) for base in (0, 1)}


def test_a_cut_forgets_the_rows_of_the_index_durably_before_the_records(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a power cut in between leaves rows that say that the log was longer."""
    log = opened(data, SETTINGS)
    deeds = recorded(monkeypatch, "truncate", "ftruncate", "fsync")
    log.active.cut(0)
    assert deeds == ["truncate", "fsync", "ftruncate"]


# What a compaction leaves


def begun(data: Path) -> tuple[Path, Path]:
    """A swap that a crash cut off before an old file was removed: the new file, and the first of the old ones."""
    log = begin(data, COMPACTED)
    folder = Path(log.folder)
    old = {p.name: p.read_bytes() for p in folder.iterdir() if p.name.startswith(f"{0:020}.")}
    upto = log.segments[-1].base
    compact(log)
    new = folder / f"{0:020}-{upto:020}.swap"
    (folder / f"{0:020}.log").rename(new)
    (folder / f"{0:020}.aborted").rename(folder / f"{0:020}.aborted{CLEANED}")
    for name, content in old.items():
        (folder / name).write_bytes(content)
    return new, folder / f"{0:020}.log"


def test_a_new_file_that_is_whole_takes_the_place_of_the_old_ones(tmp_path: Path) -> None:
    new, old = begun(tmp_path)
    whole = new.read_bytes()
    opened(tmp_path, COMPACTED)
    assert old.read_bytes() == whole


@pytest.mark.parametrize("place", [30, -30, None])
def test_a_new_file_that_is_damaged_takes_the_place_of_none(
    tmp_path: Path, place: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    new, old = begun(tmp_path)
    whole, content = bytearray(new.read_bytes()), old.read_bytes()
    if place is None:
        whole.clear()
    else:
        whole[place] ^= 1
    new.write_bytes(whole)
    log = opened(tmp_path, COMPACTED)
    assert old.read_bytes() == content
    assert f"{new} is damaged, or belongs to nothing here: it is set aside as {new}.unknown" in caplog.text
    seen = read(log)
    assert read(opened(tmp_path, COMPACTED)) == seen


def test_a_new_file_that_is_damaged_when_the_old_ones_are_gone_is_an_error(tmp_path: Path) -> None:
    new, old = begun(tmp_path)
    deleted(old, old)
    os.truncate(new, 50)
    with pytest.raises(
        LogDamaged, match=rf"{new}, which a compaction has written, is broken at byte 0\. Restore it"
    ) as error:
        opened(tmp_path, COMPACTED)
    assert follow_the_remedy(error.value) == [new.name]
    assert refused(tmp_path, COMPACTED) is None


@pytest.mark.parametrize("name", [(0, 20), (2, 80)])
def test_a_new_file_with_other_offsets_than_its_name_says_takes_the_place_of_none(
    tmp_path: Path, name: tuple[int, int]
) -> None:
    new, old = begun(tmp_path)
    other = new.rename(new.with_name(f"{name[0]:020}-{name[1]:020}.swap"))
    content = old.read_bytes()
    if not name[0]:
        opened(tmp_path, COMPACTED)
    else:
        with pytest.raises(LogDamaged, match=rf"{other}, which a compaction has written, is broken at byte 0"):
            opened(tmp_path, COMPACTED)
    assert old.read_bytes() == content


def test_a_new_file_beside_a_log_that_was_closed_belongs_to_nothing(tmp_path: Path) -> None:
    """No stop leaves one: it was put back from before, and would bring back what was compacted since."""
    log = begin(tmp_path, COMPACTED)
    compact(log)
    close_durably(log)
    first = Path(log.segments[0].path + ".log")
    CleanStop(str(tmp_path)).write([log])
    (first.parent / f"{0:020}-{log.segments[-1].base:020}.swap").write_bytes(first.read_bytes())
    assert (tmp_path / MARK).exists()
    assert read(opened(tmp_path, COMPACTED)) == read(log)
    assert len(list(first.parent.glob("*.unknown"))) == 1


def test_one_of_another_partition_takes_the_place_of_none(tmp_path: Path) -> None:
    """It has batches of the same offsets, and they are other ones."""
    new, old = begun(tmp_path / "ours")
    content = {path.name: path.read_bytes() for path in old.parent.glob("*.log")}
    other = open_partition("t", 1, str(tmp_path / "other"), COMPACTED)
    for _ in range(len(content[old.name]) // 100):
        append(other, Rec(b"x", b"y", NOW + 1))
    os.truncate(f"{other.folder}/{0:020}.log", len(batch([Rec(b"x", b"y", NOW + 1)])) * 5)
    new.write_bytes(Path(f"{other.folder}/{0:020}.log").read_bytes())
    opened(tmp_path / "ours", COMPACTED)
    assert {path.name: path.read_bytes() for path in old.parent.glob("*.log")} == content
    assert [path.name for path in old.parent.glob("*.unknown")] == [f"{new.name}.unknown"]


def test_one_of_before_whose_place_is_within_another_segment_by_now_takes_none(tmp_path: Path) -> None:
    _, old = begun(tmp_path)
    stale = old.parent / f"{3:020}-{9:020}.swap"
    data = bytearray(batch([Rec(b"x", b"y", NOW)]))
    data[:8] = (5).to_bytes(8, "big")
    stale.write_bytes(data)
    opened(tmp_path, COMPACTED)
    assert not (old.parent / f"{3:020}.log").exists()
    assert stale.with_name(f"{stale.name}.unknown").read_bytes() == data


# What is cut off


def test_whole_batches_behind_what_is_taken_for_a_torn_tail_are_kept_beside_it(
    data: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A flipped bit behind the last row of the index looks like one, after kill -9."""
    fill(opened(data, SETTINGS), 2)
    last = path(data, 36)
    size = last.stat().st_size // 16
    whole = bytearray(last.read_bytes())
    whole[13 * size + 70] ^= 1
    last.write_bytes(whole)
    assert offsets(opened(data, SETTINGS)) == list(range(49))
    kept = path(data, 36, f"log.{13 * size}.unknown")
    assert kept.read_bytes() == whole[13 * size :]
    assert f"what was cut lies in {kept} from now on" in caplog.text


def test_a_segment_behind_a_hole_is_set_aside(data: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = opened(data, SETTINGS)
    log.roll()
    behind = bytearray(batch([Rec(b"k", b"behind", NOW)]))
    assert log.append(memoryview(behind), NOW) == (Error.NONE, 50)
    size = path(data, 36).stat().st_size
    os.truncate(path(data, 36), size - size // 14)
    assert offsets(opened(data, SETTINGS)) == list(range(49))
    assert path(data, 50, "log.unknown").read_bytes() == behind
    assert "what came before it is not there" in caplog.text


@pytest.mark.parametrize("start", [0, 30])
@pytest.mark.parametrize("its_index_too", [False, True])
def test_a_log_of_which_nothing_was_ever_flushed_begins_where_it_began_if_its_first_file_is_gone(
    tmp_path: Path, start: int, its_index_too: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """A power cut may take the first name, and keep a later one. Whoever begins at the start reads from there, and a
    producer sends again what it was not told of."""
    log = opened(tmp_path, SETTINGS)
    if start:
        log = begin_anew(log, start)
        opened(tmp_path, SETTINGS).take_snapshot()  # it proves no record
    sent = [batch([Rec(b"k", b"v" * 1000, NOW)], producer=(7, 0, n)) for n in range(20)]
    for one in sent:
        assert log.append(memoryview(bytearray(one)), NOW)[0] == Error.NONE
    behind = path(tmp_path, start + 18).read_bytes()
    path(tmp_path, start).unlink()
    if its_index_too:
        path(tmp_path, start, "index").unlink()
        path(tmp_path, start + 18, "index").unlink()
    again = opened(tmp_path, SETTINGS, rebooted=True)
    assert (again.start, again.end, offsets(again)) == (start, start, [])
    assert again.append(memoryview(bytearray(sent[0])), NOW) == (Error.NONE, start)
    assert path(tmp_path, start + 18, "log.unknown").read_bytes() == behind
    assert "what came before it is not there" in caplog.text


@pytest.mark.parametrize("proof", ["a snapshot", "a file that was renamed"])
def test_a_log_whose_first_file_is_gone_is_kept_if_anything_proves_that_it_had_come_so_far(
    data: Path, proof: str
) -> None:
    """Of what was flushed the indexes need not be: a power cut may take their rows."""
    if proof == "a snapshot":
        opened(data, SETTINGS).take_snapshot()
        path(data, 0).unlink()
    else:
        path(data, 0).rename(path(data, 0, "log.damaged"))
    for base in (0, 18, 36):
        os.truncate(path(data, base, "index"), 0)
    assert offsets(opened(data, SETTINGS, rebooted=True)) == [*range(18, 50)]


def test_so_is_one_that_begins_with_what_its_leader_had_lost(tmp_path: Path) -> None:
    log = opened(tmp_path, SETTINGS)
    log.resume(18)
    fill(log, 3)
    os.truncate(path(tmp_path, 18, "index"), 0)
    again = opened(tmp_path, SETTINGS, rebooted=True)
    assert (again.start, offsets(again)) == (0, [18, 19, 20])


def test_the_end_before_a_segment_without_an_index_is_torn_only_if_the_machine_was_started_anew(
    data: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A power cut may keep the name of a new segment's log, and lose that of its index, which was made before it."""
    os.truncate(path(data, 18), path(data, 18).stat().st_size - 3)
    path(data, 36, "index").unlink()
    with pytest.raises(LogDamaged, match=rf"{18:020}\.log"):
        opened(data, SETTINGS)
    assert offsets(opened(data, SETTINGS, rebooted=True)) == [*range(35)]
    assert f"{18:020}.log was cut at byte" in caplog.text
    assert f"{36:020}.log lies in" in caplog.text


def test_a_segment_whose_index_is_gone_is_whole_after_any_start(data: Path) -> None:
    for base in (0, 18, 36):
        path(data, base, "index").unlink()
    for rebooted in (True, False):
        assert offsets(opened(data, SETTINGS, rebooted=rebooted)) == [*range(50)]
