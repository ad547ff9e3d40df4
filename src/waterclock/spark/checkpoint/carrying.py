"""A checkpoint whose state was carried over from another one, and the one that it came from.

carried.json           in the new one: from where, and how far the sink's numbers of batches lie before Spark's
waterclock.carrying    in the new one, until the sink is its own: it is being made
waterclock.parts/      in the new one, as long: the state taken apart
carried-over.json      in the old one: the one that is to take its place

Spark counts the batches of a new checkpoint from 0. A sink goes on counting: its last batch is that of the largest number.

Rule 1: the sink alone decides which of the two counts: the one whose query wrote its last batch. These files only say it in
        words. So a crash at any moment leaves one of them to be used, and no more.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

from waterclock.errors import StateMismatch
from waterclock.sinks import LastBatch
from waterclock.spark.checkpoint.folder import Checkpoint, stored, write
from waterclock.streaming.places.place import remove

CARRIED, CARRYING, OVER = "carried.json", "waterclock.carrying", "carried-over.json"
PARTS = "waterclock.parts"


def ahead(checkpoint: Checkpoint) -> int:
    """What is added to Spark's number of a batch for the sink's."""
    file = checkpoint.path / CARRIED
    return int(stored(file)["ahead"]) if file.exists() else 0


def number_in_sink(checkpoint: Checkpoint, batch_id: int | None) -> int | None:
    """The sink's number of Spark's batch `batch_id`; None where there is none."""
    return None if batch_id is None else batch_id + ahead(checkpoint)


def begin(new: Checkpoint, old: Checkpoint) -> None:
    """Write down that `new` is being made out of `old`."""
    write(new.path / CARRYING, json.dumps({"from": str(old.path)}) + "\n")


def is_begun(new: Checkpoint, old: Checkpoint) -> bool:
    """Whether `new` is being made out of `old`, or was when that was killed."""
    mark = new.path / CARRYING
    return mark.exists() and stored(mark).get("from") == str(old.path)


def carried_from(new: Checkpoint, old: Checkpoint, before: int) -> None:
    """Write into `new` where it comes from; the sink's number of its batch 0 is `before`."""
    write(new.path / CARRIED, json.dumps({"from": str(old.path), "ahead": before}) + "\n")


def carried_over(old: Checkpoint, new: Checkpoint) -> None:
    """Write into `old` that `new` is to take its place; again is the same."""
    write(old.path / OVER, json.dumps({"to": str(new.path), "query_id": new.query_id()}) + "\n")


def settle(checkpoint: Checkpoint, applied: LastBatch | None) -> None:
    """Raise StateMismatch where the sink, whose last batch is `applied`, belongs to the other one of the two.

    Where a handing over was killed behind the sink's commit, its mark goes now.
    """
    query_id = None if applied is None else applied.query_id
    over, mark = checkpoint.path / OVER, checkpoint.path / CARRYING
    if over.exists() and query_id is not None and stored(over).get("query_id") == query_id:
        raise StateMismatch(_is_over(checkpoint, stored(over).get("to")))
    if not mark.exists():
        return
    if query_id is None or query_id != checkpoint.query_id():
        raise StateMismatch(
            f"the checkpoint {checkpoint.path} is being made out of {stored(mark).get('from')}, and that did not come to "
            "its end: the old one still counts. Run `waterclock state rescale` again, or go on with the old one"
        )
    with suppress(FileNotFoundError):
        remove(checkpoint.path / PARTS)
    remove(mark)


def _is_over(checkpoint: Checkpoint, new: Any) -> str:
    return (
        f"the state of the checkpoint {checkpoint.path} was carried over to {new}, to which the sink belongs now: name "
        "that one as checkpoint. The old one is of no more use, and may be removed"
    )
