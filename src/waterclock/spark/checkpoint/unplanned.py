"""Notes of files that no batch takes yet: what a kill leaves between two of Spark's steps.

Spark plans a batch of a folder's files in steps of its own:

    1. sources/0/7    the next files, the oldest first, at most `files_per_batch`: an entry of its log (taken.py)
    2. offsets/5      batch 5 ends with entry 7
    3. the batch is run

Killed between 1 and 2, Spark goes on behind entry 7: it does step 1 again, for the files that come next, and batch 5 takes
both entries: more files than it may, and other batches after it than without the kill. So before a query starts:

    a. entries behind the last offsets are those that no batch takes
    b. each of their files is there as it was noted: the entries are set aside, the last one first, into
       waterclock.unplanned/. Spark's step 1 finds the same files again: the same ones first, if none came that is older
    c. one is gone, or was written again: the entries stay, for nothing else knows of it: it becomes a dead letter. That
       batch takes up to twice as many files

Rule 1: nothing of them was read: what no offsets name, no batch has taken.
Rule 2: killed in the middle, the next start does it again: an entry is copied before it is removed.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from pathlib import Path

from waterclock.spark.checkpoint.folder import Checkpoint
from waterclock.spark.checkpoint.taken import TakenFile, entries_of, entry_of, files_of_entry
from waterclock.streaming.places.place import make_folder, names_in, place_of, remove, write_whole, written_ms

log = logging.getLogger(__name__)
ASIDE = "waterclock.unplanned"


def set_aside(checkpoint: Checkpoint) -> None:
    """Have the next batch take what it would have taken without a kill; a warning says which files come again."""
    last = checkpoint.last_batch()
    offsets = [] if last is None else (checkpoint.offsets(last) or "").splitlines()[2:]  # behind a version and settings
    for source in names_in(checkpoint.path / "sources"):
        if source.isdecimal():
            _set_aside(checkpoint, source, entry_of("".join(offsets[int(source) :][:1])))


def _set_aside(checkpoint: Checkpoint, source: str, end: int) -> None:
    folder = checkpoint.path / "sources" / source
    names = {number: name for number, name in entries_of(folder).items() if number > end}  # a
    noted = [_files(checkpoint, source, number) for number in names]
    files = [file for each in noted for file in each]
    if not files or not all(noted) or not all(map(_is_there, files)):  # c
        return
    aside = checkpoint.path / ASIDE
    make_folder(aside)
    for _, name in sorted(names.items(), reverse=True):  # b
        write_whole(aside / f"{source}-{name}", (folder / name).read_bytes())
        for spent in (name, f".{name}.crc"):
            with suppress(FileNotFoundError):
                remove(folder / spent)
    log.warning(
        "a run was killed when Spark had noted %d files (such as %s) and no batch took them yet: the note was set aside as "
        "%s, and they are taken now",
        len(files),
        files[0].name,
        aside,
    )


def _files(checkpoint: Checkpoint, source: str, number: int) -> list[TakenFile]:
    """The files of an entry; none where it is no list of files, such as the offsets at which Spark's Kafka begins."""
    try:
        return files_of_entry(checkpoint.path / "sources" / source, number)
    except (ValueError, KeyError, TypeError):
        return []


def _is_there(file: TakenFile) -> bool:
    try:
        return written_ms(place_of(file.path.removeprefix("file://"), Path("/"))) == file.written_ms
    except OSError:
        return False
