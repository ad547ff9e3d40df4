"""What Spark's notes say that batches read, put right if a kill, or a run that was taken over, left them wrong.

**Before a query starts: notes of files that no batch takes.** Spark plans a batch of a folder's files in steps of its own:

    1. sources/0/7    the next files, the oldest first, at most `files_per_batch`: an entry of its log (source_files.py)
    2. offsets/5      batch 5 ends with entry 7
    3. the batch is run

Killed between 1 and 2, Spark goes on behind entry 7: it does step 1 again, for the files that come next, and batch 5 takes
both entries: more files than it may, and other batches after it than without the kill. So:

    a. entries behind the last offsets are those that no batch takes
    b. each of their files is there as it was noted: the entries are set aside, the last one first, into
       waterclock.unplanned/. Spark's step 1 finds the same files again: the same ones first, if none came that is older
    c. one is gone, or was written again: the entries stay, for nothing else knows of it: it becomes a dead letter. That
       batch takes up to twice as many files

**Behind a URI: what each batch read, in the words of the run that took it.** A driver that stood still in the middle of
writing one of Spark's files to a store of objects writes it when it wakes up, over that of the run which took the
checkpoint over. Offsets and lists of files that are not those of which the sink has the rows would have the next start
read rows twice, or never.

    waterclock.reads/000000000007    of the run of epoch 7: what its last batches read, by their numbers

    1. a batch begins: what Spark noted of it is read, and written down here, before anything of it reaches the sink
    2. the next start compares Spark's notes with that, for every batch that the sink holds

Rule 1: what no offsets name, no batch has taken: nothing of those files was read.
Rule 2: killed while it sets entries aside, the next start does it again: an entry is copied before it is removed.
Rule 3: a file of `reads` is of one epoch: that of the largest counts, and who was taken over writes another one.
Rule 4: offsets matter for the last two batches: a start goes on from them. A list of files matters until Spark has put it
        into a larger one, ten lists on.
Rule 5: what is gone, and what was never written down, cannot be compared: it is passed over.
"""

from __future__ import annotations

import json
import logging
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

from waterclock.errors import StateMismatch
from waterclock.sinks.ledger import Epoch
from waterclock.spark.checkpoint.folder import Checkpoint
from waterclock.spark.checkpoint.source_files import TakenFile, entries_of, entry_of, files_of_entry
from waterclock.streaming.checkpoint import stored, write
from waterclock.streaming.places.place import Place, make_folder, names_in, place_of, remove, write_whole, written_ms
from waterclock.wording import counted

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
        "a run was killed when Spark had noted %s (such as %s) which no batch has taken yet: the note was set aside as "
        "%s, and a batch takes them now",
        counted(len(files), "file"),
        files[0].name,
        aside,
    )


def _files(checkpoint: Checkpoint, source: str, number: int) -> list[TakenFile]:
    """The files of an entry; none if it is no list of files, such as the offsets at which Spark's Kafka begins."""
    try:
        return files_of_entry(checkpoint.path / "sources" / source, number)
    except StateMismatch:
        return []


def _is_there(file: TakenFile) -> bool:
    try:
        return written_ms(place_of(file.path.removeprefix("file://"), Path("/"))) == file.written_ms
    except OSError:
        return False


READS = "waterclock.reads"
_KEPT = 12  # batches: more than Spark's lists of files that are not in a larger one yet


class Reads:
    """What the batches of a checkpoint read; nothing is done if its owner has no epoch, for nobody takes it over."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._checkpoint, self._folder = checkpoint, checkpoint.path / READS
        self._epoch: Epoch | None = None
        self._batches: dict[str, Any] = {}

    def begin(self, epoch: Epoch | None, held: int) -> None:
        """Compare what Spark notes now with what was written down, of batches up to `held`; StateMismatch if it differs."""
        self._epoch = epoch
        if epoch is None:
            return
        numbers = self._numbers()
        written = stored(self._folder / numbers[-1]) if numbers else {}
        self._batches = {}
        if written.get("query_id") == self._checkpoint.query_id():
            self._batches = dict(written.get("batches", {}))
        for number in sorted(map(int, self._batches)):
            if number <= held:
                self._compare(number, self._batches[str(number)])

    def note(self, batch_id: int) -> None:
        """Write down what batch `batch_id`, which begins, reads."""
        if self._epoch is None:
            return
        self._batches[str(batch_id)] = noted(self._checkpoint, batch_id)
        self._batches = dict(sorted(self._batches.items(), key=lambda each: int(each[0]))[-_KEPT:])
        own = f"{self._epoch.number:012d}"
        make_folder(self._folder)
        write(self._folder / own, json.dumps({"query_id": self._checkpoint.query_id(), "batches": self._batches}))
        for name in self._numbers():
            if name < own:
                remove(self._folder / name)

    def _numbers(self) -> list[str]:
        return sorted(name for name in names_in(self._folder) if name.isdecimal())

    def _compare(self, number: int, written: dict[str, Any]) -> None:
        found, last = noted(self._checkpoint, number), self._checkpoint.last_batch()
        if last is not None and number >= last - 1 and found["offsets"] not in (None, written["offsets"]):
            raise self._overwritten(number, self._checkpoint.path / "offsets" / str(number))
        for name, files in written["lists"].items():
            if found["lists"].get(name, files) != files:
                raise self._overwritten(number, self._checkpoint.path / "sources" / name)

    def _overwritten(self, number: int, file: Place) -> StateMismatch:
        return StateMismatch(
            f"the checkpoint's file {file} is not what it was when batch {number} was taken, whose rows the sink holds: "
            "another run that stood still while the checkpoint was taken over has written it when it woke up. Going on "
            "would read rows twice, or never. See that the other run is gone; then restore the checkpoint and the sink "
            "from a copy of both, or start over with --fresh"
        )


def noted(checkpoint: Checkpoint, batch_id: int) -> dict[str, Any]:
    """What Spark notes of what a batch reads: the sources' offsets, None if they are gone, and its lists of files."""
    before, lines = _sources(checkpoint, batch_id - 1), _sources(checkpoint, batch_id)
    lists = {}
    for source, line in enumerate(lines or ()):
        end = entry_of(line)
        begin = end - 1 if before is None and batch_id else entry_of("".join((before or [])[source : source + 1]))
        for entry in range(begin + 1, end + 1):
            with suppress(FileNotFoundError):
                log = checkpoint.path / "sources" / str(source)
                files = sorted((file.name, file.written_ms) for file in files_of_entry(log, entry))
                lists[f"{source}/{entry}"] = sha256(json.dumps(files).encode()).hexdigest()
    return {"offsets": lines, "lists": lists}


def _sources(checkpoint: Checkpoint, batch_id: int) -> list[str] | None:
    """A line for each source, behind a version and Spark's settings; None if the batch's file is gone."""
    text = checkpoint.offsets(batch_id)
    return None if text is None else text.splitlines()[2:]
