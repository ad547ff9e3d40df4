"""How a compaction's new file takes the place of old ones, so that a crash at any step leaves one good state.

1. `<base>.log.cleaned` and `<base>.aborted.cleaned` are written and flushed.
2. `<base>.log.cleaned` becomes `<base>-<upto>.swap`. From here on it counts, and the old segments from `base` to before
   `upto` do not.
3. The old segments' files are removed.
4. `<base>.aborted.cleaned` becomes `<base>.aborted`.
5. `<base>-<upto>.swap` becomes `<base>.log`, with an index written anew.

`finish` makes good what a crash left: before step 2 the new files go, after it the remaining steps are done.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from waterclock.broker.log.index import Index
from waterclock.broker.log.segment import FILES
from waterclock.disk import flush_folder

CLEANED: Final = ".cleaned"
SWAP: Final = re.compile(r"(\d{20})-(\d{20})\.swap")
SEGMENT: Final = re.compile(r"(\d{20})\.(log|index|aborted)")


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


def finish(folder: str) -> None:
    """After a crash: the swaps that had begun are done, and what was not complete is removed."""
    names = os.listdir(folder)
    for name in names:
        if begun := SWAP.fullmatch(name):
            _go_on(folder, name, int(begun[1]), int(begun[2]))
    for name in names:
        if name.endswith(CLEANED):
            with suppress(FileNotFoundError):
                os.unlink(os.path.join(folder, name))


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
