"""A start after a crash: what the write-ahead log holds is put back into the partitions' own files.

    the last run        a half's frames     then
    was stopped         any                 set aside: everything stands in its own files
    R                   of run R            put back
    R                   of another run      set aside: they are of before, or of another folder
    R, or not known     without a run       put back, as far as rule 3 lets them: an earlier version wrote them
    not known           of any run          the same: the store that knew the run is gone

Rule 1: bytes are put where they were, at their place in their segment's file; those that are there already are left.
    After kill -9 that is all of them; after a power cut, what the file itself had lost.
Rule 2: nothing is made: a partition or segment that is gone was removed, what is being removed needs nothing, and a gap in
    a file is for the recovery to find.
Rule 3: no whole batch of a file is overwritten, but for the bytes of it that no checksum covers; nothing is put where its
    offset does not follow.
Rule 4: frames that cannot be read are said, with their numbers. What they held is lost only where the file itself lost it.
    At the beginning of the earlier half that is a warning: power that is cut while it is begun anew leaves it so.
Rule 5: the files are flushed before the log goes: a crash in between has it put back once more. A disk that does not
    take all of it ends the start, and the log stays.
Rule 6: the log is removed if everything of it stands in the files, or belongs to what was removed. Otherwise it is set
    aside, and that is said.
"""

from __future__ import annotations

import logging
import re
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator
from contextlib import suppress
from operator import attrgetter
from typing import Final, NamedTuple, TypeAlias

from crc32c import crc32c

from waterclock.broker.errors import LogDamaged, set_aside
from waterclock.broker.log.batch import BASE, HEADER, PREFIX, header_of
from waterclock.broker.log.segment import Segment
from waterclock.broker.log.write_ahead import HEAD, MARK, NAMES, ROW, STANDS, SUMMED, remove
from waterclock.disk import write_all
from waterclock.outside import open_file, os

ENDING: Final = ".log"
WITHOUT_RUN: Final = b"wcA1"  # the mark of earlier versions' frames, which lack the eight bytes of the run
MARKS: Final = re.compile(b"|".join(re.escape(mark) for mark in (MARK, WITHOUT_RUN)))  # one pass for both
BEGUN: Final = (
    "the write-ahead log in %s lacks frames %d to %d: the half that had them was being begun anew, which it is once they "
    "stand in the logs; or it is damaged, and the logs have what they held, unless power was cut"
)
DAMAGED: Final = (
    "the write-ahead log in %s is damaged: frames %d to %d cannot be read. The logs have what they held, unless power was "
    "cut"
)
RUN_BYTES: Final = 8
MAGIC_AT: Final = 16  # behind a batch's offset, length and epoch
log = logging.getLogger("waterclock.broker")


class WriteAheadFrame(NamedTuple):
    """A whole frame: its number, that of its half's first one, its rows, and its run (None: it does not say)."""

    number: int
    first: int
    rows: bytes
    run: int | None


class Piece(NamedTuple):
    """Bytes of a segment, and where they were in its file."""

    at: int
    data: bytes


Pieces: TypeAlias = "dict[str, dict[int, list[Piece]]]"  # partition's path -> base of the segment -> in their order


class WriteAheadReplay(NamedTuple):
    """What was put back from the write-ahead log in `folder`; it is there still, for a start that may yet be refused.

    `ends`: the offset behind the last record that it holds of each partition, by the partition's folder. `whole`: whether
    everything of it stands in its own files now.
    """

    folder: str
    ends: dict[str, int]
    whole: bool

    def finish(self) -> None:
        """Have the log gone (rule 6); OSError."""
        if self.whole:
            remove(self.folder)
        else:
            _away(self.folder, _halves(self.folder), "not all of it could be put back")


def replay(folder: str, run: int | None, *, stopped: bool, removed: Container[str] = ()) -> WriteAheadReplay:
    """Put back what the write-ahead log in a data folder holds, durably; OSError.

    `run` is the last run, if that is known; `stopped`, whether it ended with a clean stop. Folders whose names have an
    ending in `removed` (behind the last dot) were being removed with their topics: nothing of them is missed.
    """
    halves = _halves(folder)
    if stopped:
        _away(folder, halves, "the last stop was a clean one, so nothing of it is needed")
        halves = []
    frames = _frames_of(folder, halves, run)
    _say_gaps(folder, frames)
    pieces = {path: some for path, some in _pieces(frames).items() if path.rpartition(".")[2] not in removed}
    outcomes = [
        _put_back(os.path.join(folder, path), base, several)
        for path, segments in pieces.items()
        for base, several in segments.items()
    ]
    if restored := sum(size for size, _ in outcomes):
        log.warning("%d bytes that a power cut had taken were put back from the write-ahead log", restored)
    ends = {os.path.join(folder, path): _end(segments) for path, segments in pieces.items() if segments}
    return WriteAheadReplay(folder, ends, all(whole for _, whole in outcomes))


def _halves(folder: str) -> list[str]:
    return [path for name in NAMES if os.path.exists(path := os.path.join(folder, name))]


def _away(folder: str, halves: Iterable[str], why: str) -> None:
    for path in halves:
        log.error("%s lies in %s from now on: %s", path, set_aside(folder, path), why)


def _frames_of(folder: str, halves: Iterable[str], run: int | None) -> list[WriteAheadFrame]:
    """The frames of both halves in their order; a half of another run is set aside."""
    frames: list[WriteAheadFrame] = []
    for path in halves:
        with open_file(path, "rb") as file:
            found = list(whole_frames(file.read()))
        first = max((frame.first for frame in found), default=0)
        found = [frame for frame in found if frame.first == first]  # of the last time that it was begun
        strange = {frame.run for frame in found} - {run, None} if run is not None else set()
        if strange:
            _away(folder, [path], f"it is of the run {strange.pop():016x}, and the last one here was {run:016x}")
        else:
            frames += found
    return sorted(frames, key=attrgetter("number"))


def _say_gaps(folder: str, frames: list[WriteAheadFrame]) -> None:
    before = frames[0].first - 1 if frames else 0
    for frame in frames:
        if frame.number != before + 1:
            begun = before + 1 == frame.first < frames[-1].first
            say, words = (log.warning, BEGUN) if begun else (log.error, DAMAGED)
            say(words, folder, before + 1, frame.number - 1)
        before = frame.number


def whole_frames(data: bytes) -> Iterator[WriteAheadFrame]:
    """Every whole frame in a half's bytes, those of earlier times behind the last one's too."""
    found = MARKS.search(data)
    while found is not None and (at := found.start()) + HEAD.size <= len(data):
        frame = _frame_at(data, at, named=found[0] == MARK)
        if frame is None:
            at += 1
        else:
            yield frame
            at += HEAD.size - (RUN_BYTES if frame.run is None else 0) + len(frame.rows)
        found = MARKS.search(data, at)


def _frame_at(data: bytes, at: int, *, named: bool) -> WriteAheadFrame | None:
    """The frame at byte `at`, if it is whole; `named`, if it is one with a run."""
    skipped = 0 if named else RUN_BYTES
    head = data[at : at + len(MARK)] + bytes(skipped) + data[at + len(MARK) : at + HEAD.size - skipped]
    _, run, number, first, length, checksum = HEAD.unpack(head)
    rows = data[at + HEAD.size - skipped : at + HEAD.size - skipped + length]
    summed = SUMMED.pack(run, number, first, length)[skipped:]
    if len(rows) != length or crc32c(rows, crc32c(summed)) != checksum:
        return None
    return WriteAheadFrame(number, first, rows, run if named else None)


def _pieces(frames: list[WriteAheadFrame]) -> Pieces:
    """What is to be put back."""
    pieces: Pieces = defaultdict(lambda: defaultdict(list))
    for rows in (frame.rows for frame in frames):
        here = 0
        while here < len(rows):
            names, size, base, at = ROW.unpack_from(rows, here)
            here += ROW.size + names
            path = os.fsdecode(rows[here - names : here])
            if size == STANDS:
                pieces[path].pop(base, None)
                continue
            data = rows[here : here + size]
            pieces[path][base].append(Piece(at, data))
            here += len(data)
    return pieces


def _put_back(folder: str, base: int, pieces: list[Piece]) -> tuple[int, bool]:
    """Put these into a segment's file, and flush it: how many bytes it lacked, and whether all of them are there now."""
    path = os.path.join(folder, f"{base:020}{ENDING}")
    if not os.path.exists(path):
        if missed := _is_missed(folder, base):
            log.error("%s is gone, and the write-ahead log has records of it", path)
        return 0, not missed
    segment, restored, good = Segment(folder, base), 0, None
    for at, data in pieces:
        there = os.pread(segment.fd, len(data), at)
        if there == data:
            continue
        good = good or _whole_part(segment)
        if (why := _why_not(Piece(at, data), there, segment, *good)) is not None:
            log.error("%s %s", path, why)
            return restored, False
        try:
            write_all(segment.fd, data, at)
        except OSError as error:
            raise OSError(
                error.errno, f"{error.strerror}: {path} lacks what the write-ahead log has of it, and cannot take it. "
                f"Nothing is lost: make room, and start again"
            ) from error  # fmt: skip
        restored += len(data)
    os.fdatasync(segment.fd)
    return restored, True


def _is_missed(folder: str, base: int) -> bool:
    """Whether a segment's file should be there: its partition has no later one, or none at all."""
    with suppress(FileNotFoundError, NotADirectoryError):
        there = [int(name[: -len(ENDING)]) for name in os.listdir(folder) if name.endswith(ENDING)]
        return not any(later > base for later in there)
    return False


def _whole_part(segment: Segment) -> tuple[int, int]:
    """Up to which byte a file has whole batches, one after the other, and the offset behind the last one."""
    good, end = 0, segment.base
    with suppress(LogDamaged):
        for at, batch, data in segment.batches():
            if batch.base < end:
                break
            good, end = at + len(data), batch.last + 1
    return good, end


def _why_not(piece: Piece, there: bytes, segment: Segment, good: int, end: int) -> str | None:
    """Why a piece cannot be put where other bytes are (rule 3); None if it can."""
    at, data = piece
    if at > os.fstat(segment.fd).st_size:
        return f"ends before byte {at}, which was written once: what lies between is missing"
    known = max(0, good - at)
    if _checked(there[:known]) != _checked(data[:known]):
        return f"has whole batches up to byte {good}, others than the write-ahead log from byte {at} on: they are kept"
    if at <= good and len(data) - known >= BASE.size and BASE.unpack_from(data, known)[0] < end:
        return f"ends with offset {end - 1} at byte {good}, and the write-ahead log has an earlier one there"
    return None


def _checked(data: bytes) -> bytes:
    """What of whole batches is under their checksums, or says how long they are: not the offset, nor the leader's epoch."""
    parts, at = bytearray(), 0
    while at < len(data):
        length = data[at + BASE.size : at + PREFIX]
        after = at + PREFIX + int.from_bytes(length, "big")
        parts += length + data[at + MAGIC_AT : after]
        at = after
    return bytes(parts)


def _end(segments: dict[int, list[Piece]]) -> int:
    """The offset behind the last record of all these."""
    data, at, end = segments[max(segments)][-1].data, 0, max(segments)
    while at + HEADER <= len(data) and (batch := header_of(data, at)).length >= HEADER - PREFIX:
        at, end = at + PREFIX + batch.length, batch.last + 1
    return end
