"""A checkpoint's state: whether it was carried over from another checkpoint, and whether it lies where the driver sees it.

carried.json           in the new one: from where, and how far the sink's numbers of batches lie before Spark's
waterclock.carrying    in the new one, until the sink is its own: it is being made
waterclock.parts/      in the new one, as long: the state taken apart
carried-over.json      in the old one: the one that is to take its place
state/0/3/8.changelog  Spark's: what batch 7 changed in the state of partition 3

Spark counts the batches of a new checkpoint from 0. A sink goes on counting: its last batch is that of the largest number.

On a cluster each executor writes its partitions' part under the checkpoint's path on its own machine. If that is not one
folder for all, the batches go on as long as the executors live, and the state of none of them outlives them.

Rule 1: the sink alone decides which of the two counts (streaming/checkpoint.py, rule 3). These files only say it in words.
Rule 2: a folder that comes over a network may show a new file a while later: it is waited for.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING

from waterclock.clock import Clock
from waterclock.errors import EnvironmentMissing, StateMismatch
from waterclock.sinks import LastBatch, Sink
from waterclock.spark.checkpoint.folder import Checkpoint
from waterclock.streaming.checkpoint import give_sink as give
from waterclock.streaming.checkpoint import hand_over, heir_of, stored, write
from waterclock.streaming.checkpoint import refuse_handed_over as refuse_old
from waterclock.streaming.places.place import is_remote, names_in, remove

if TYPE_CHECKING:
    import pyarrow as pa

CARRIED, CARRYING = "carried.json", "waterclock.carrying"
PARTS = "waterclock.parts"


def ahead(checkpoint: Checkpoint) -> int:
    """What is added to Spark's number of a batch for the sink's."""
    file = checkpoint.path / CARRIED
    return int(stored(file)["ahead"]) if file.exists() else 0


def number_in_sink(checkpoint: Checkpoint, batch_id: int | None) -> int | None:
    """The sink's number of Spark's batch `batch_id`; None if there is none."""
    return None if batch_id is None else batch_id + ahead(checkpoint)


def begin(new: Checkpoint, old: Checkpoint) -> None:
    """Write down that `new` is being made out of `old`."""
    write(new.path / CARRYING, json.dumps({"from": str(old.path)}) + "\n")


def is_begun(new: Checkpoint, old: Checkpoint) -> bool:
    """Whether `new` is being made out of `old`, or was when that was killed."""
    mark = new.path / CARRYING
    return mark.exists() and stored(mark).get("from") == str(old.path)


def carried_from(new: Checkpoint, old: Checkpoint, before: int, grown: int) -> None:
    """Write into `new` where it comes from, and that its state is `grown` bytes larger; the sink's number of its batch 0 is
    `before`."""
    write(new.path / CARRIED, json.dumps({"from": str(old.path), "ahead": before, "grown": grown}) + "\n")


def carried_over(old: Checkpoint, new: Checkpoint) -> None:
    """Write into `old` that `new` is to take its place; again is the same."""
    hand_over(old.path, new.path, new.query_id())


def is_carried_over(old: Checkpoint, new: Checkpoint) -> bool:
    """Whether `old` says that `new`, as it is now, is to take its place."""
    return heir_of(old.path).get("query_id") == new.query_id() is not None


def number_of_handing_over(old: Checkpoint, new: Checkpoint, applied: LastBatch | None) -> int:
    """The sink's number of the batch that hands it over.

    It is that of the new one's last batch. If the old one had begun a batch more than is done, which the new one runs
    again, and the sink has that already, it is the number of that one: so nothing of it is written a second time.
    """
    begun, is_done = old.last_batch(), old.last_batch() == old.last_done()
    both = applied is not None and begun is not None and not is_done and applied.batch_id == ahead(old) + begun
    return ahead(new) + (new.last_done() or 0) + both


def give_sink(old: Checkpoint, new: Checkpoint, sink: Sink, schema: pa.Schema) -> None:
    """Have the sink, which was that of `old`, belong to `new`."""
    query_id, reached = new.query_id(), new.last_done()
    assert query_id is not None
    assert reached is not None
    number, grown = number_of_handing_over(old, new, sink.last_applied()), stored(new.path / CARRIED)["grown"]
    give(sink, schema, query_id, number, new.offsets(reached), grown)


def refuse_handed_over(checkpoint: Checkpoint, applied: LastBatch | None) -> None:
    """Raise StateMismatch if the sink, whose last batch is `applied`, belongs to the other one of the two.

    Where `checkpoint` has been given the sink, what says that it is being made goes now.
    """
    query_id = None if applied is None else applied.query_id
    refuse_old(checkpoint.path, query_id)
    mark = checkpoint.path / CARRYING
    if not mark.exists():
        return
    if query_id is None or query_id != checkpoint.query_id():
        raise StateMismatch(
            f"the checkpoint {checkpoint.path} is being made out of {stored(mark).get('from')}, and that did not come to "
            "its end: the old one still counts. Run that command of `waterclock state` again, or go on with the old one"
        )
    with suppress(FileNotFoundError):
        remove(checkpoint.path / PARTS)
    remove(mark)


_PATIENCE_S, _LOOK_EVERY_S = 60.0, 0.2  # NFS keeps what a folder listed for up to a minute


def refuse_unseen_state(checkpoint: Checkpoint, batch_id: int, master: str, clock: Clock) -> None:
    """Raise EnvironmentMissing if the state that batch `batch_id` stored is not there, or not that of all partitions.

    Nothing if Spark's `master` is this machine alone, or the checkpoint lies behind a URI: all write to one place then.
    """
    if master.startswith("local") or is_remote(checkpoint.path):
        return
    until = clock.monotonic_s() + _PATIENCE_S
    while missing := _missing(checkpoint, batch_id):
        if clock.monotonic_s() >= until:
            raise EnvironmentMissing(
                f"executors stored the state of batch {batch_id}, and in the checkpoint {checkpoint.path}, as the driver "
                f"sees it, that of {len(missing)} of {_partitions(checkpoint, batch_id)} partitions is not there: mount "
                "the folder there, on every machine of the cluster, under the same path, or give a URI that all reach. "
                "Nothing of the batch was written"
            )
        clock.sleep_s(_LOOK_EVERY_S)


def _missing(checkpoint: Checkpoint, batch_id: int) -> list[int]:
    """The partitions of which no file of the batch's version is there."""
    state, version = checkpoint.path / "state" / "0", str(batch_id + 1)
    return [
        partition
        for partition in range(_partitions(checkpoint, batch_id))
        if not any(version_of(name) == version for name in names_in(state / str(partition)))
    ]


def version_of(name: str) -> str:
    """The version that a file of state is of: 8.changelog, 8.zip, 8_UNIQUE.zip.

    >>> [version_of(name) for name in ("8.changelog", "8_1b2c.zip", "SSTs", ".8.tmp")]
    ['8', '8', '', '']
    """
    number = name.partition(".")[0].partition("_")[0]
    return number if number.isdecimal() else ""


def _partitions(checkpoint: Checkpoint, batch_id: int) -> int:
    """In how many partitions Spark keeps the state; 0 if its notes do not say."""
    lines = (checkpoint.offsets(batch_id) or "").splitlines()
    settings = json.loads(lines[1]).get("conf", {}) if len(lines) > 1 else {}
    return int(settings.get("spark.sql.shuffle.partitions", 0))
