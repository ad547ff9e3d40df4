"""How a compaction's new file takes the place of old ones, so that a crash at any step leaves one good state.

1. `<base>.log.cleaned` and `<base>.aborted.cleaned` are written and flushed.
2. `<base>.log.cleaned` becomes `<base>-<upto>.swap`. From here on it counts, and the old segments from `base` to before
   `upto` do not.
3. The old segments' files are removed.
4. `<base>.aborted.cleaned` becomes `<base>.aborted`.
5. `<base>-<upto>.swap` becomes `<base>.log`, with an index written anew.

`finish` makes good what a crash left: before step 2 the new files go, after it the remaining steps are done. The old ones
go only if the new one is whole, and has nothing but what those of them that are there still have: a compaction makes
batches smaller, or leaves them out. One that was put back from before, or is another partition's, is known by that.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from contextlib import suppress
from itertools import pairwise
from typing import Final

from crc32c import crc32c

from waterclock.broker.errors import LogDamaged, renaming
from waterclock.broker.log.batch import CHECKED, HEADER, PREFIX, Batch, header_of
from waterclock.broker.log.index import Index
from waterclock.broker.log.segment import FILES
from waterclock.disk import flush_folder, set_aside
from waterclock.outside import open_file, os

CLEANED: Final = ".cleaned"
UNKNOWN: Final = ".unknown"
SWAP: Final = re.compile(r"(\d{20})-(\d{20})\.swap")
SEGMENT: Final = re.compile(r"(\d{20})\.(log|index|aborted)")
log = logging.getLogger("waterclock.broker")


def swap(folder: str, base: int, upto: int, index: Index) -> None:
    """Steps 2 to 5, after step 1 was done. `index` is the new file's, all of it."""
    path = os.path.join(folder, f"{base:020}")
    between = os.path.join(folder, f"{base:020}-{upto:020}.swap")
    os.rename(path + ".log" + CLEANED, between)  # 2
    flush_folder(folder)
    _remove(folder, base, upto)  # 3
    flush_folder(folder)
    os.rename(path + ".aborted" + CLEANED, path + ".aborted")  # 4
    index.save(os.path.getsize(between))  # 5
    os.rename(between, path + ".log")
    flush_folder(folder)


def finish(folder: str, names: list[str], *, stopped: bool) -> list[str]:
    """After a crash: the swaps that had begun are done, and what was not complete is removed; the files then.

    `stopped`: no crash came, so no swap had begun, and one that is there belongs to nothing. It is set aside, and so is
    one that is damaged, if the files that it was to replace are there. LogDamaged if they are not.
    """
    begun = [found for name in names if (found := SWAP.fullmatch(name))]
    cleaned = [name for name in names if name.endswith(CLEANED)]
    if not begun and not cleaned:
        return names
    for found in begun:
        base, upto = int(found[1]), int(found[2])
        old = sorted(int(name[:20]) for name in names if SEGMENT.fullmatch(name) and name.endswith(".log"))
        path = os.path.join(folder, found[0])
        error = _damage(path, base, upto)
        is_strange = error is None and _is_strange(folder, path, old, base, upto)
        if is_strange or (base in old and (stopped or error is not None)):
            place = set_aside(path, path + UNKNOWN)
            log.warning("%s is damaged, or belongs to nothing here: it is set aside as %s", path, place)
        elif error is not None:
            raise error
        else:
            _go_on(folder, found[0], base, upto)
    for name in cleaned:
        with suppress(FileNotFoundError):
            os.unlink(os.path.join(folder, name))
    return os.listdir(folder)


def _damage(path: str, base: int, upto: int) -> LogDamaged | None:
    """What is wrong with a new file."""
    at, end = 0, base
    with open_file(path, "rb") as file:
        while head := file.read(HEADER):
            batch = header_of(head) if len(head) == HEADER else None
            body = file.read(max(0, batch.length + PREFIX - HEADER)) if batch is not None else b""
            if batch is None or batch.base < end or crc32c(body, crc32c(head[CHECKED:])) != batch.crc:
                break
            at, end = at + PREFIX + batch.length, batch.last + 1
        else:
            if at and end <= upto:
                return None
    return LogDamaged(
        f"{path}, which a compaction has written, is broken at byte {at}. Restore it; or {renaming(path)}, to go on "
        f"without the records from offset {base} to before {upto}"
    )


def _is_strange(folder: str, path: str, old: list[int], base: int, upto: int) -> bool:
    """Whether a new file has something that the old ones have not, or lies within another segment."""
    before = [one for one in old if one < base]
    if before and base not in old:
        previous = _batches(os.path.join(folder, f"{before[-1]:020}.log"))
        if any(batch.last >= base for batch in previous):
            return True
    new = _batches(path)
    there = [one for one in old if base <= one < upto]
    for first, following in pairwise([*there, upto]):
        known = {one.base: one for one in _batches(os.path.join(folder, f"{first:020}.log"))}
        if not all(_is_left_of(one, known.get(one.base)) for one in new if first <= one.base < following):
            return True
    return False


def _batches(path: str) -> list[Batch]:
    """The headers in a file, as far as they are good."""
    found, at = [], 0
    with open_file(path, "rb") as file:
        while len(head := file.read(HEADER)) == HEADER and (batch := header_of(head)).length >= HEADER - PREFIX:
            found.append(batch)
            at += PREFIX + batch.length
            file.seek(at)
    return found


def _is_left_of(new: Batch, old: Batch | None) -> bool:
    """Whether a compaction can have made one batch of the other."""
    if old is None or new.last_delta != old.last_delta or new.records > old.records:
        return False
    if (new.producer_id, new.producer_epoch, new.sequence) != (old.producer_id, old.producer_epoch, old.sequence):
        return False
    return new.max_timestamp <= old.max_timestamp and (new.attributes != old.attributes or new.records < old.records
                                                       or new.crc == old.crc)  # fmt: skip


def abandon(folder: str) -> bool:
    """After an error in the midst of it: remove what step 1 wrote. False if step 2 was done: a start goes on then."""
    try:
        names = os.listdir(folder)
        if any(SWAP.fullmatch(name) for name in names):
            return False
        for name in names:
            if name.endswith(CLEANED):
                os.unlink(os.path.join(folder, name))
    except OSError:
        return False
    return True


def _go_on(folder: str, name: str, base: int, upto: int) -> None:
    path = os.path.join(folder, f"{base:020}")
    fourth_is_done = not os.path.exists(path + ".aborted" + CLEANED)
    _remove(folder, base, upto, keep=(path + ".aborted",) if fourth_is_done else ())
    flush_folder(folder)
    if not fourth_is_done:
        os.rename(path + ".aborted" + CLEANED, path + ".aborted")
    os.rename(os.path.join(folder, name), path + ".log")
    flush_folder(folder)


def _remove(folder: str, base: int, upto: int, keep: Iterable[str] = ()) -> None:
    """The old files, those of each segment in the order in which a segment is removed."""
    old = sorted({int(found[1]) for found in map(SEGMENT.fullmatch, os.listdir(folder)) if found})
    for segment in old:
        for ending in FILES if base <= segment < upto else ():
            path = os.path.join(folder, f"{segment:020}{ending}")
            if path not in keep:
                with suppress(FileNotFoundError):
                    os.unlink(path)
