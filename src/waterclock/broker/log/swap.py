"""How a compaction's new file takes the place of old ones, so that a crash at any step leaves one good state.

1. `<base>.log.cleaned` and `<base>.aborted.cleaned` are written and flushed.
2. `<base>.log.cleaned` becomes `<base>-<upto>.swap`. From here on it counts, and the old segments from `base` to before
   `upto` do not.
3. The old segments' files are removed.
4. `<base>.aborted.cleaned` becomes `<base>.aborted`.
5. `<base>-<upto>.swap` becomes `<base>.log`, with an index written anew.

`finish` makes good what a crash left: before step 2 the new files go, after it the remaining steps are done. The old ones
go only if the new one is whole.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from crc32c import crc32c

from waterclock.broker.errors import LogDamaged, renaming
from waterclock.broker.log.batch import CHECKED, HEADER, PREFIX, header_of
from waterclock.broker.log.index import Index
from waterclock.broker.log.segment import FILES
from waterclock.disk import flush_folder

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
        old_is_there = os.path.exists(os.path.join(folder, f"{base:020}.log"))
        error = _damage(os.path.join(folder, found[0]), base, upto)
        if old_is_there and (stopped or error is not None):
            _set_aside(folder, found[0])
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
    with open(path, "rb") as file:
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


def _set_aside(folder: str, name: str) -> None:
    path = os.path.join(folder, name)
    log.warning("%s is damaged, or belongs to nothing here: it is set aside as %s%s", path, path, UNKNOWN)
    os.rename(path, path + UNKNOWN)


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
