"""What each batch read, in the words of the run that took it: behind a URI, Spark's own notes of it may change later.

A driver that stood still in the middle of writing one of Spark's files to a store of objects writes it when it wakes up,
over that of the run which took the checkpoint over. Offsets and lists of files that are not those of which the sink has
the rows would have the next start read rows twice, or never.

    waterclock.reads/000000000007    of the run of epoch 7: what its last batches read, by their numbers

    1. a batch begins: what Spark noted of it is read, and written down here, before anything of it reaches the sink
    2. the next start compares Spark's notes with that, for every batch that the sink holds

Rule 1: a file is of one epoch: that of the largest counts, and who was taken over writes another one.
Rule 2: offsets matter for the last two batches: a start goes on from them. A list of files matters until Spark has put it
        into a larger one, ten lists on.
Rule 3: what is gone, and what was never written down, cannot be compared: it is passed over.
"""

from __future__ import annotations

import json
from contextlib import suppress
from hashlib import sha256
from typing import Any

from waterclock.errors import StateMismatch
from waterclock.sinks.ledger import Epoch
from waterclock.spark.checkpoint.folder import Checkpoint, stored, write
from waterclock.spark.checkpoint.taken import entry_of, files_of_entry
from waterclock.streaming.places.place import Place, make_folder, names_in, remove

READS = "waterclock.reads"
_KEPT = 12  # batches: more than Spark's lists of files that are not in a larger one yet


class Reads:
    """What the batches of a checkpoint read; nothing is done where its owner has no epoch, for nobody takes it over."""

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
        told = stored(self._folder / numbers[-1]) if numbers else {}
        self._batches = {}
        if told.get("query_id") == self._checkpoint.query_id():
            self._batches = dict(told.get("batches", {}))
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

    def _compare(self, number: int, told: dict[str, Any]) -> None:
        found, last = noted(self._checkpoint, number), self._checkpoint.last_batch()
        if last is not None and number >= last - 1 and found["offsets"] not in (None, told["offsets"]):
            raise self._overwritten(number, self._checkpoint.path / "offsets" / str(number))
        for name, files in told["lists"].items():
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
