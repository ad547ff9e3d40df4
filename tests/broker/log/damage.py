"""A partition with one of everything, what a client reads of it, and ways to damage a file of it."""

from __future__ import annotations

import logging
import os
import random
import re
import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.broker.record_batches import CONTROL, TRANSACTIONAL, Rec, batch, end_marker, stored
from waterclock.broker.errors import LogDamaged
from waterclock.broker.log import compaction
from waterclock.broker.log.clean_stop import NAME as MARK
from waterclock.broker.log.clean_stop import CleanStop
from waterclock.broker.log.durable import close_durably, make_durable
from waterclock.broker.log.partition import Partition
from waterclock.broker.log.records import records
from waterclock.broker.log.recovery import Said, open_partition
from waterclock.broker.settings import Settings, TopicSettings
from waterclock.broker.wire.errors import Error

NOW: Final = 1_700_000_000_000
PLAIN: Final = TopicSettings(Settings({"log.segment.bytes": "9000"}))
COMPACTED: Final = TopicSettings(Settings({"log.segment.bytes": "9000"}))
COMPACTED.replace({"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"})
UNCHECKED: Final = (
    *range(8),
    *range(12, 16),
)  # bytes of a batch outside of its checksum: its offset, its leader's epoch


class View(NamedTuple):
    """What clients get: the start, the end, and the records of each level by their offsets."""

    start: int
    end: int
    stable: int
    committed: dict[int, Any]
    every: dict[int, Any]


def opened(data: Path, settings: TopicSettings, name: str = "log", *, rebooted: bool = False) -> Partition:
    """The partition in the data folder `data`, held against the mark if there is one, which is removed then."""
    stop, folder = CleanStop(str(data)), str(data / name)
    partition = open_partition("t", 0, folder, settings, Said(stop.take(folder), stop.ends.get(folder), 0, rebooted))
    stop.remove()
    return partition


def read(log: Partition) -> View:
    """Everything, checksums looked at; LogDamaged, AssertionError, struct.error or ValueError where they are wrong."""
    every = dict(_records(log, log.high))
    aborted = log.aborted.between(log.start, log.stable)
    committed = {o: row for o, row in _records(log, log.stable) if not _passed_over(o, row, aborted)}
    return View(log.start, log.end, log.stable, committed, every)


def _records(log: Partition, upto: int) -> Iterator[tuple[int, Any]]:
    offset = log.start
    while offset < upto and (found := log.read(offset, 1 << 20, upto)) is not None:
        for one in stored(found.read()):
            if not one.attributes & CONTROL:
                for r in records(one.raw):
                    if r.offset >= log.start:
                        transactional = one.producer_id if one.attributes & TRANSACTIONAL else -1
                        yield r.offset, (r.key, r.value, r.timestamp, transactional)
            offset = one.last + 1


def _passed_over(offset: int, row: Any, aborted: list[Any]) -> bool:
    return any(row[3] == one.producer_id and one.first <= offset < one.last for one in aborted)


def recorded(monkeypatch: Any, *names: str) -> list[str]:
    """The names of those functions of `os`, in the order in which they are called from now on."""
    called: list[str] = []

    def recording(name: str, real: Any) -> Any:
        def call(*arguments: Any) -> Any:
            called.append(name)
            return real(*arguments)

        return call

    for name in names:
        monkeypatch.setattr(os, name, recording(name, getattr(os, name)))
    return called


def flushes(monkeypatch: Any) -> list[tuple[str, int]]:
    """The files whose bytes are flushed from now on, and how large each is then."""
    flushed: list[tuple[str, int]] = []
    real = os.fdatasync

    def flush_one(fd: int) -> None:
        flushed.append((os.readlink(f"/proc/self/fd/{fd}"), os.fstat(fd).st_size))
        real(fd)

    monkeypatch.setattr(os, "fdatasync", flush_one)
    return flushed


# What is done to a log


def append(log: Partition, *recs: Rec, now_ms: int = NOW, **fields: Any) -> None:
    """A batch of these records, which is taken at the log's end."""
    base = log.end
    assert log.append(memoryview(bytearray(batch(recs, **fields))), now_ms) == (Error.NONE, base)


def end(log: Partition, pid: int, commit: bool) -> None:
    """A transaction's marker, which is taken."""
    assert log.mark(bytearray(end_marker(pid, 0, commit, NOW)))[0] == Error.NONE


def flush(log: Partition) -> None:
    """All of it is durable, and readers may see it."""
    make_durable(log)
    log.high = log.durable


def compact(log: Partition, now_ms: int = NOW) -> None:
    """As upkeep.py does; there must be something to do."""
    plan = compaction.plan(log, now_ms)
    assert plan is not None
    work = compaction.Compaction(plan)
    for swapped in work.steps():
        if swapped is not None:
            compaction.adopt(log, swapped)
    log.memo.cleaned = work.covered
    log.memo.save()


# One of everything


def fill(data: Path, settings: TopicSettings, name: str = "log", first: int = 0) -> Path:
    """A log in `data`, closed as by a clean stop, and beside it what its files were before: in `data/before`."""
    log = opened(data, settings, name)
    _some(log, first, 14)
    log.take_snapshot()
    _memo(log, 3)
    _compact(log)
    close_durably(log)
    shutil.copytree(log.folder, data / "before")
    CleanStop(str(data)).write([log])
    shutil.copy(data / MARK, data / "before")
    CleanStop(str(data)).remove()
    _some(log, 14, 26)
    _memo(log, 7)
    _compact(log)
    close_durably(log)
    return data


def _some(log: Partition, first: int, last: int) -> None:
    """Batches of an idempotent producer, transactions that end either way, and one that stays open for long."""
    for turn in range(first, last):
        rows = [Rec(b"%d" % (turn % 7), b"%d" % turn * 90, NOW + turn), Rec(b"k%d" % turn, b"v" * 50, NOW)]
        append(log, *rows, producer=(5, 0, 2 * turn))
        for pid, commit in ((7, False), (8, True)):
            append(log, *rows, producer=(pid, 0, 2 * turn), attributes=TRANSACTIONAL)
            if turn % 3 != 1:
                end(log, pid, commit)
        if turn % 4 == 3:
            flush(log)
    flush(log)


def _memo(log: Partition, start: int) -> None:
    log.memo.start = start
    log.memo.epochs.append((log.memo.epoch + 1, log.end))
    log.memo.save()


def _compact(log: Partition) -> None:
    if log.settings.compact and compaction.plan(log, NOW) is not None:
        compact(log)


def leave(data: Path, log: Partition, how: str) -> None:
    """Close the log as a stop does, or let it be as kill -9 does, with a little more behind the snapshot."""
    if how == "clean stop":
        close_durably(log)
        CleanStop(str(data)).write([log])
        return
    _some(log, 26, 28)


# Damage


class Damage(NamedTuple):
    """What is done to the file `name`: `deed` is given its path and its copy of before, and says if it did anything."""

    name: str
    what: str
    deed: Callable[[Path, Path], bool]


def flipped(place: int, bit: int) -> Callable[[Path, Path], bool]:
    def deed(path: Path, before: Path) -> bool:
        data = bytearray(path.read_bytes())
        data[place] ^= 1 << bit
        path.write_bytes(data)
        return True

    return deed


def cut(size: int) -> Callable[[Path, Path], bool]:
    return lambda path, before: (os.truncate(path, size), True)[1]


def zeroed(place: int, size: int) -> Callable[[Path, Path], bool]:
    def deed(path: Path, before: Path) -> bool:
        data = bytearray(path.read_bytes())
        gone = bytes(min(size, len(data) - place))
        changed = data[place : place + size] != gone
        data[place : place + size] = gone
        path.write_bytes(data)
        return changed

    return deed


def deleted(path: Path, before: Path) -> bool:
    path.unlink()
    return True


def put_back(path: Path, before: Path) -> bool:
    if not before.exists() or before.read_bytes() == path.read_bytes():
        return False
    shutil.copy(before, path)
    return True


def another(path: Path, before: Path) -> bool:
    """The file of that name of another partition, which has the same offsets and producers."""
    return put_back(path, before.parent.with_name("another") / before.name)


def damages(path: Path, luck: random.Random, many: int) -> Iterator[Damage]:
    """`many` flips, cuts and zeroed ranges of a file, each byte once if there are not so many, and its loss."""
    size, name = path.stat().st_size, path.name
    places = range(size) if size <= many else sorted(luck.sample(range(size), many))
    for place in places:
        bit = luck.randrange(8)
        yield Damage(name, f"bit {bit} of byte {place} flipped", flipped(place, bit))
        yield Damage(name, f"cut at {place}", cut(place))
        length = luck.choice([1, 36, 200, size])
        yield Damage(name, f"{length} bytes from {place} on zeroed", zeroed(place, length))
    yield Damage(name, "deleted", deleted)
    yield Damage(name, "put back from before", put_back)
    yield Damage(name, "another partition's", another)


# What came of it


def outcome(data: Path, settings: TopicSettings, expected: View, caplog: Any) -> str:
    """What became of it: "as before", "told" by clients' checksums, or other words. `caplog` has what was said."""
    caplog.clear()
    try:
        seen = read(opened(data, settings))
    except LogDamaged as error:
        logging.getLogger("waterclock.broker").error("%s", error)
        return "an error"
    except (AssertionError, struct.error, ValueError):
        return "told"
    if seen == expected:
        return "as before"
    return f"{_difference(seen, expected)}"


def _difference(seen: View, expected: View) -> str:
    parts = [f"{n}: {getattr(seen, n)} for {getattr(expected, n)}" for n in ("start", "end", "stable")
             if getattr(seen, n) != getattr(expected, n)]  # fmt: skip
    for level in ("committed", "every"):
        ours, theirs = getattr(seen, level), getattr(expected, level)
        if ours != theirs:
            parts.append(
                f"{level}: without {sorted(theirs.keys() - ours.keys())}, with {sorted(ours.keys() - theirs.keys())}"
            )
    return "; ".join(parts)


def refused(data: Path, settings: TopicSettings) -> LogDamaged | None:
    """Why the log cannot be opened."""
    try:
        opened(data, settings)
    except LogDamaged as error:
        return error
    return None


def follow_the_remedy(error: LogDamaged) -> list[str]:
    """Rename what an error's sentence says, and no more; the names before."""
    said = str(error)
    renamed = re.findall(r"(?:rename|and) (/\S+) to (/\S+?)(?=[\s,;.]*(?: |$))", said[said.index("rename ") :])
    for path, to in renamed:
        if os.path.exists(path):
            os.rename(path, to)
    return [os.path.basename(path) for path, _ in renamed]
