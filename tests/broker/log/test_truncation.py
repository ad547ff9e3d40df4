"""A crash at any step of cutting a log: what is left can be opened, and nothing before the cut is gone.

The step that a crash comes before is a change of a file: the deeds are done again and again, and end one change later
each time.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Final

import pytest

pytest.importorskip("crc32c")

from tests.broker.record_batches import stored
from waterclock.broker.log import removal
from waterclock.broker.log.durable import flush_files, make_durable
from waterclock.broker.log.index import Index
from waterclock.broker.log.partition import Partition
from waterclock.broker.log.records import packed
from waterclock.broker.log.recovery import open_partition
from waterclock.broker.settings import Settings, TopicSettings

SETTINGS: Final = TopicSettings(Settings({"log.segment.bytes": "600"}))  # two batches
CHANGES: Final = ("unlink", "truncate", "ftruncate", "replace", "pwrite", "open", "fsync", "fdatasync")
END: Final = 8


class Killed(BaseException):
    """The process ends here."""


def opened(folder: Path) -> Partition:
    return open_partition("t", 0, str(folder), SETTINGS)


def filled(folder: Path) -> Partition:
    """A durable log of END records in four segments, with a snapshot before the cut and one at its end."""
    log = opened(folder)
    for number in range(END):
        log.mark(packed([b"%d" % number * 200], 1))
        make_durable(log)
        if log.end in (2, END):
            log.take_snapshot()
    assert [segment.base for segment in log.segments] == [0, 2, 4, 6]
    return log


def offsets(log: Partition) -> list[int]:
    found = (log.read(segment.base, 1 << 30, log.high) for segment in log.segments)
    return [batch.base for one in found if one is not None for batch in stored(one.read())]


def killed_before(step: int, deed: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> bool:
    """Do the deed up to that change; False where it came to its end."""
    left = [step]

    def counted(change: Callable[..., Any]) -> Callable[..., Any]:
        def changed(*arguments: Any, **more: Any) -> Any:
            if not left[0]:
                raise Killed
            left[0] -= 1
            return change(*arguments, **more)

        return changed

    with monkeypatch.context() as patch:
        for name in CHANGES:
            patch.setattr(os, name, counted(getattr(os, name)))
        try:
            deed()
        except Killed:
            return True
    return False


@pytest.mark.parametrize("end", [3, 4, 0])
def test_a_log_killed_at_any_step_of_a_cut_opens_and_can_be_cut_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: int
) -> None:
    for step in count():
        folder = tmp_path / str(step)
        if not killed_before(step, partial(removal.cut, filled(folder), end), monkeypatch):
            break
        log = opened(folder)
        assert end <= log.end <= END
        assert offsets(log) == list(range(log.end))
        log = removal.cut(log, end)
        assert (log.end, offsets(log)) == (end, list(range(end)))
    assert step > len(CHANGES)


def begun_at(folder: Path, start: int) -> Partition:
    """A durable log whose first segments are gone: three segments from `start` on, of two leaders."""
    log = removal.begin_anew(opened(folder), start)
    log.memo.epochs = [(0, 0), (2, start - 20)]
    log.memo.save()
    for number in range(5):
        log.mark(packed([b"%d" % number * 200], 1))
        make_durable(log)
    log.take_snapshot()
    assert [segment.base for segment in log.segments] == [start, start + 2, start + 4]
    return log


@pytest.mark.parametrize(("end", "epochs"), [(100, [(0, 0), (2, 80)]), (90, [(0, 0), (2, 80)]), (50, [(0, 0)])])
def test_a_log_cut_to_before_its_start_begins_anew_there(
    tmp_path: Path, end: int, epochs: list[tuple[int, int]]
) -> None:
    """It stayed at its own start, ahead of what it had been cut to, and its leader took that for a copy of everything."""
    log = removal.cut(begun_at(tmp_path, 100), end)
    assert (log.start, log.end, log.durable, log.memo.epochs) == (end, end, end, epochs)
    log.mark(packed([b"next"], 1))
    again = opened(tmp_path)
    assert (again.start, again.end, offsets(again)) == (end, end + 1, [end])


def left_alone(folder: Path, base: int, offset: int) -> Path:
    """An index whose log is gone, of the segment from `base` on; it says that the log had come behind `offset` once."""
    path = folder / f"{base:020}.index"
    index = Index(str(path), base)
    index.note(offset, 0, 1)
    index.save(1)
    return path


@pytest.mark.parametrize("base", [20, 60, 101])
def test_what_says_that_the_log_was_longer_goes_before_the_records(tmp_path: Path, base: int) -> None:
    """The log went on where such an index said, behind where it was to end: it was cut there again, and so for ever."""
    log, said = begun_at(tmp_path, 100), left_alone(tmp_path, base, max(base, 70))
    log = removal.cut(log, 50)
    assert (log.start, log.end, said.exists()) == (50, 50, False)
    left_alone(tmp_path, base, 150)
    log = removal.begin_anew(log, 110)
    assert (log.start, log.end, opened(tmp_path).end) == (110, 110, 110)


def test_what_says_that_records_before_a_cut_were_lost_stays(tmp_path: Path) -> None:
    log, said = begun_at(tmp_path, 100), left_alone(tmp_path, 20, 30)
    log = removal.cut(log, 50)
    assert (log.start, log.end, said.exists()) == (50, 50, True)


def test_who_flushes_or_reads_what_is_removed_leaves_no_file(tmp_path: Path) -> None:
    """A flush that had begun before wrote the index again: that said, alone, that the log had come so far."""
    log = opened(tmp_path)
    log.mark(packed([b"0"], 1))
    files = log.unflushed()
    log.active.delete()
    flush_files(files)
    log.flushed(log.end, files)
    log.active.index_anew()
    assert log.active.tail.end == 1
    assert [*tmp_path.glob("0*")] == []


def test_a_log_that_has_no_epoch_left_after_a_cut_takes_the_first_that_comes(tmp_path: Path) -> None:
    log = removal.begin_anew(opened(tmp_path), 100)
    log.memo.epochs = [(5, 100)]
    assert removal.cut(log, 50).memo.epochs == [(0, 50)]


def test_a_log_killed_at_any_step_of_a_cut_to_before_its_start_still_shows_that_it_must_be_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for step in count():
        folder = tmp_path / str(step)
        if not killed_before(step, partial(removal.cut, begun_at(folder, 100), 50), monkeypatch):
            break
        log = opened(folder)
        assert log.memo.epochs == [(0, 0), (2, 80)] or (log.start, log.end) == (50, 50)
        assert log.end in range(100, 106) or (log.start, log.end) == (50, 50)
        log = removal.cut(log, 50)
        assert (log.start, log.end, log.memo.epochs) == (50, 50, [(0, 0)])
    assert step > len(CHANGES)


def test_a_log_killed_at_any_step_of_beginning_anew_opens_and_takes_what_comes_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for step in count():
        folder = tmp_path / str(step)
        if not killed_before(step, partial(removal.begin_anew, filled(folder), 100), monkeypatch):
            break
        log = opened(folder)
        if log.start == 0:  # nothing has happened yet
            assert offsets(log) == list(range(END))
            log = removal.begin_anew(log, 100)
        assert (log.start, log.end) == (100, 100)
        log.mark(packed([b"next"], 1))
        again = opened(folder)
        assert (again.end, offsets(again)) == (101, [100])
    assert step > len(CHANGES)
