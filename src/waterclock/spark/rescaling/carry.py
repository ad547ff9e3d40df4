"""A pipeline's state into a new checkpoint of Spark's: in another number of buckets, in more parts, or from another engine
(arrival.py). The sink goes with it.

Numbered; a test dies between any two of them:

    1. what cannot be carried over is refused; nothing is written yet
    2. the new folder says that it is being made; what a killed try left in it goes
    3. the old state is read, taken apart by the keys' new buckets, and laid down as parts
    4. a query of Spark's puts the parts together: the new state, batch 0 of a query with an id of its own
    5. offsets, the sources' logs, heartbeats and settings are laid beside it
    6. the old folder says which one is to take its place
    7. the sink is handed over: a batch without rows, of the new query, in one transaction of the sink
    8. the new folder's mark goes, and the parts with it

Step 5, where the sources go on: the old one's offsets, under the new one's numbers and settings of state.

    offsets/0    the old one's last batch that is done, and commits/0: the state that was carried over is that after it
    offsets/1    only if the old one had begun a batch more: it is run again with the same offsets

A file of Spark's log is a version, a line of JSON, and in offsets/ a line for each source, which is its own affair.

Rule 1: the sink decides. Before 7 it belongs to the old checkpoint, and the new one is refused; after 7 it is the other way
        round. So one of the two can be used at every moment, and never both.
Rule 2: the old checkpoint is kept. Nothing in it changes but the note of step 6.
Rule 3: as many keys and deadlines are written as were read, or nothing is handed over.
Rule 4: what the sources say is copied as it stands, their own logs (sources/) with it; only what says how state is stored
        is the new one's: Spark goes by that.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from waterclock.disk import flush_file, flush_folder
from waterclock.errors import StateMismatch, UsageError
from waterclock.rules.model import Rules
from waterclock.sinks import Sink
from waterclock.spark.checkpoint import state_files
from waterclock.spark.checkpoint.folder import Checkpoint, logged, others_in
from waterclock.spark.rescaling.parts import StateSeen
from waterclock.spark.rescaling.stored import PARTITIONS, PartsProcessor, StateQuery, Written, lay_down, look, parts
from waterclock.streaming.buckets import checked
from waterclock.streaming.checkpoint import refuse_in_each_other, stored, write
from waterclock.streaming.layout import was_closed
from waterclock.streaming.owner import LOCK, OWNERS, owner_of
from waterclock.streaming.places.place import Place, copy_folder, make_folder, place_of, remove
from waterclock.wording import counted

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from waterclock.spark.pipeline import Pipeline

_VERSION = "v1"
_NEXT = "nextBatchWatermarkMs"


def carry_offsets(old: Checkpoint, new: Checkpoint, done: int, begun: int) -> None:
    """Put the old one's offsets of batches `done` to `begun` in the place of what the query that wrote the state noted."""
    noted, _ = known(old.path / "commits" / str(done))
    reached = new.last_done()
    before = 1 if reached else 0  # Spark asks for the offsets before the last ones, unless these are batch 0's
    logs = [known(old.path / "offsets" / str(number)) for number in range(done - before, begun + 1)]
    lay_offsets(new, logs, noted.get(_NEXT), before)
    if (old.path / "sources").is_dir():
        copy_folder(old.path / "sources", new.path / "sources")


def lay_offsets(
    new: Checkpoint, batches: Sequence[tuple[dict[str, Any], list[str]]], next_ms: int | None, before: int = 0
) -> None:
    """Put offsets in the place of what the query that wrote the state noted: of each batch what is beside them, and a line
    for each source. The first batches, `before` of them, lie before the last one that is done. `next_ms` is the watermark
    that follows that, None if nothing is noted of it."""
    last = new.last_done()
    assert last is not None
    (settings, _), (done, _) = (known(new.path / folder / str(last)) for folder in ("offsets", "commits"))
    reached = done | ({} if next_ms is None else {_NEXT: next_ms})
    for folder in ("offsets", "commits", "sources"):
        with suppress(FileNotFoundError):
            remove(new.path / folder)
    for folder in ("offsets", "commits"):
        make_folder(new.path / folder)
    for number, (beside, sources) in enumerate(batches, last - before):
        write(
            new.path / "offsets" / str(number),
            "\n".join([_VERSION, json.dumps({**beside, "conf": settings["conf"]}), *sources]),
        )
    write(new.path / "commits" / str(last), f"{_VERSION}\n{json.dumps(reached)}")


def known(file: Place) -> tuple[dict[str, Any], list[str]]:
    """What a file of Spark's log says, as in `logged`; UsageError if it is of another version."""
    version, noted, sources = logged(file)
    if version != _VERSION:
        raise UsageError(
            f"{file} is of the version {version!r} of Spark's logs, and this waterclock carries over {_VERSION!r}: leave "
            "out the settings of [spark.conf] that choose another one, or use the waterclock that goes with that Spark"
        )
    return noted, sources


Report = Callable[[str], None]
_MAY_STAND = {LOCK, OWNERS, f".{state_files.CARRYING}.new"}  # in the new folder, when nothing is written in it yet
_OURS = ("starting.json", "closed-at.json", "inferred.json", "waterclock.sink")


@dataclass(frozen=True, slots=True)
class NewState:
    """A state that was carried over: the new checkpoint, its buckets and partitions, and how much was moved."""

    checkpoint: Place
    buckets: int
    partitions: int
    keys: int
    deadlines: int
    bytes: int

    def told(self) -> str:
        """How much was moved, for people."""
        return f"{counted(self.keys, 'key')}, {counted(self.deadlines, 'deadline')}, {counted(self.bytes, 'byte')}"


def rescale(
    pipeline: Pipeline,
    buckets: int,
    to: str | Path | Place | None = None,
    session: SparkSession | None = None,
    report: Report = lambda line: None,
) -> NewState:
    """Carry the state of `pipeline`, which does not run, over into a new checkpoint with `buckets` buckets.

    The new one is the folder or URI `to`, by default beside the old one under its name with the number behind. The pipeline
    must not have been given another number of buckets than its checkpoint has. It goes on from there when it is made with
    the new checkpoint; the old one is refused from then on. UsageError if it cannot be done.

    Its state is in as many partitions as a new pipeline's would be: as `session` has shuffle partitions, or buckets if
    these are fewer.
    """
    from waterclock.spark.session.session import session_for

    checked("rescale(buckets=)", buckets)
    spark = session or session_for("rescale")
    old, rules, sink, schema = pipeline.kept(spark)
    if rules is None or schema is None:
        raise UsageError("the pipeline has no rules of its own, so there is no state of rules to carry over here")
    beside = old.path.parent / f"{old.path.name}-{buckets}"
    new = Checkpoint(place_of(to, Path.cwd()) if to else beside)
    pipeline.check_place(new.path)
    return Rescale(spark, old, new, rules, buckets, report).run(sink, schema)


class Carry(ABC):
    """A state's way into the checkpoint `new`, from step 1 to 8. Where it comes from, `old`, its kind knows."""

    def __init__(
        self, session: SparkSession, old: Checkpoint, new: Checkpoint, rules: Rules, buckets: int, report: Report
    ) -> None:
        self._session, self._old, self._new, self._rules = session, old, new, rules
        self._seen = old  # where it is read, if that is another place
        self._buckets, self._report, self._owner = buckets, report, owner_of(new.path)
        self._partitions = min(int(session.conf.get(PARTITIONS, "200")), buckets)
        self._query_id = str(uuid4())
        self._query: StateQuery | None = None
        self._folder = new.path / state_files.PARTS / "rows"

    def run(self, sink: Sink, schema: pa.Schema) -> NewState:
        try:
            before = self.refuse()  # 1
            self.make_room()  # 2
            written = self.copy(before)  # 3, 4
            self.complete(before.batch_id, written.bytes - self.counted(before))  # 5, 6
            self._report("hands the sink over")
            state_files.give_sink(self._old, self._new, sink, schema)  # 7
            state_files.refuse_handed_over(self._new, sink.last_applied())  # 8
        finally:
            self.end()
        made = (self._new.path, self._buckets, self._partitions)
        return NewState(*made, written.keys, written.deadlines, written.bytes)

    def make_room(self) -> None:
        """Step 2."""
        self._refuse_other_things()
        make_folder(self._new.path)
        self._owner.take()
        self._refuse_other_things()  # once more: nobody else is at it now
        state_files.begin(self._new, self._old)
        for part in [*self._new.path.iterdir()]:
            if part.name not in {LOCK, OWNERS, state_files.CARRYING}:
                remove(part)

    def copy(self, before: StateSeen) -> Written:
        """Steps 3 and 4."""
        self._report(
            f"reads {counted(before.keys, 'key')} in {counted(before.buckets, 'bucket')}, {counted(before.bytes, 'byte')}"
        )
        laid = lay_down(self._session, self.parts(before), self._folder, self._buckets)
        self._report(f"writes them into {self._buckets} buckets in {self._partitions} partitions")
        write(self._new.path / "metadata", json.dumps({"id": self._query_id}))
        processor = PartsProcessor(self._rules, before.clock, self.watermark_ms(before))
        self._query = StateQuery(self._session, self._new, self._folder, processor, self._partitions)
        written = Written(*map(sum, zip(*self._query.batch(0, self.look), strict=True)))
        counts = (before.keys, laid.keys, written.keys), (laid.deadlines, written.deadlines)
        if any(len(set(each)) != 1 for each in counts):
            raise StateMismatch(
                f"of {before.keys} keys {laid.keys} were read and {written.keys} written, of {laid.deadlines} deadlines "
                f"{written.deadlines}: nothing was handed over, and the old checkpoint goes on. Please report this"
            )
        return written

    # what a kind of old state knows ----------------------------------------------------------------------------

    @abstractmethod
    def refuse(self) -> StateSeen:
        """What there is; UsageError if it cannot be carried over."""

    @abstractmethod
    def parts(self, before: StateSeen) -> Iterable[DataFrame]:
        """All of it, as rows of PARTS."""

    @abstractmethod
    def watermark_ms(self, before: StateSeen) -> int:
        """Spark's watermark in its last batch; 0 for none."""

    @abstractmethod
    def lay_beside(self, done: int) -> tuple[dict[str, Any], int]:
        """Lay down offsets, the sources' logs and what else is beside the state after batch `done`. The settings, and the
        sink's number of the new one's batch 0."""

    def counted(self, before: StateSeen) -> int:
        """How many bytes of state the sink's counters come to."""
        return before.bytes

    # the steps -------------------------------------------------------------------------------------------------

    def _refuse_other_things(self) -> None:
        """UsageError if the new folder is no place for a checkpoint."""
        path = self._new.path
        refuse_in_each_other(self._old.path, path)
        if path.exists() and not path.is_dir():
            raise UsageError(f"the new checkpoint {path} is a file: name another folder (--to)")
        names = {part.name for part in path.iterdir()} - _MAY_STAND if path.is_dir() else set()
        others = others_in(path) if state_files.is_begun(self._new, self._old) else names
        if others:
            raise UsageError(
                f"the folder {path} holds other things ({min(others)}, ...): name a folder that is empty, or is not there "
                "yet (--to)"
            )

    def look(self) -> object:
        """What is looked at again and again while the query is at work; an error ends all."""
        return None

    def stop(self) -> None:
        """The query is at its end."""
        query, self._query = self._query, None
        if query is not None:
            query.stop()

    def end(self) -> None:
        """Nobody is at work any more."""
        self.stop()
        self._owner.let_go()

    def complete(self, done: int, grown: int) -> None:
        """Steps 5 and 6, behind batch `done` of the old one; the state is `grown` bytes larger than the sink knows."""
        self.stop()
        self._owner.check()  # behind a URI somebody may have taken it over meanwhile
        settings, number = self.lay_beside(done)
        reached = self._new.last_done()
        assert reached is not None
        state_files.carried_from(self._new, self._old, number - reached, grown)
        own = {**settings, "buckets": self._buckets, "checkpoint": str(self._new.path)}
        write(self._new.path / "waterclock.json", json.dumps(own, indent=1))
        # All is forced onto the disk, Spark's files too: the sink's commit is to mean that it is there. Behind a URI it
        # is the store's affair: what it has acknowledged is there.
        self.flush()
        state_files.carried_over(self._old, self._new)  # 6

    def flush(self) -> None:
        """Force all of a folder of this machine onto the disk but the parts, which serve no more after a crash."""
        if not isinstance(self._new.path, Path):
            return
        parts = self._new.path / state_files.PARTS
        for part in self._new.path.rglob("*"):
            if part.is_relative_to(parts):
                continue
            with suppress(FileNotFoundError):  # Spark tidies up its state now and then
                flush_folder(part) if part.is_dir() else flush_file(part)
        flush_folder(self._new.path)


class Rescale(Carry):
    """From a checkpoint of Spark's into another number of buckets."""

    def refuse(self) -> StateSeen:
        """See `Carry`."""
        self.refuse_closed()
        before = look(self._session, self._seen)
        if (before.buckets, before.partitions) == (self._buckets, self._partitions):
            raise UsageError(
                f"the checkpoint {self._old.path} has {before.buckets} buckets in {before.partitions} partitions already"
            )
        self.watermark_ms(before)  # of another version of Spark's logs, it says so now
        return before

    def refuse_closed(self) -> None:
        """UsageError if there is nothing to carry, or nothing would go on."""
        self._old.refuse_without_state()
        if self._old.is_source_closed():
            raise was_closed(self._old.path)

    def parts(self, before: StateSeen) -> Iterable[DataFrame]:
        """See `Carry`."""
        return [parts(self._session, self._seen, before, self._rules, self._buckets)]

    def watermark_ms(self, before: StateSeen) -> int:
        """See `Carry`."""
        settings, _ = known(self._seen.path / "offsets" / str(before.batch_id))
        return int(settings.get("batchWatermarkMs", 0))

    def lay_beside(self, done: int) -> tuple[dict[str, Any], int]:
        """See `Carry`."""
        begun = self._old.last_batch()
        assert begun is not None  # one is done
        carry_offsets(self._old, self._new, done, begun)
        copy_folder(self._old.heartbeats, self._new.heartbeats)
        for name in _OURS:
            if (self._old.path / name).exists():
                write(self._new.path / name, (self._old.path / name).read_text())
        return stored(self._old.path / "waterclock.json"), state_files.ahead(self._old) + begun + 1
