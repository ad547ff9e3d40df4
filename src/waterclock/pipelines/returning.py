"""A pipeline's state from Spark into a checkpoint of this machine's engine; what is carried, moving.py says.

Numbered; killed between any two of them, one of the two checkpoints is to be used:

    1. what cannot be carried over is refused; nothing is written yet
    2. where the pipeline goes on is written down: settings, the first place, the new query
    3. Spark reads the old state, taken apart by the keys' new buckets; each is put together here, and written before the
       next one is read
    4. the old folder says which one is to take its place
    5. the sink is handed over: a batch without rows, of the new query, with the record of where it goes on
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import astuple, dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from waterclock.errors import StateMismatch, UsageError
from waterclock.pipelines.moving import refuse_csv
from waterclock.sinks import Sink
from waterclock.streaming.checkpoint import NOTES, give_sink, hand_over, refuse_in_each_other, stored
from waterclock.streaming.layout import was_closed
from waterclock.streaming.owner import LOCK
from waterclock.streaming.places.place import names_in
from waterclock.streaming.toml.config import Config, Files

if TYPE_CHECKING:
    from waterclock.local.checkpoint import LocalCheckpoint
    from waterclock.local.record import Clock, Place
    from waterclock.rules.model import Rules
    from waterclock.spark.checkpoint.folder import Checkpoint
    from waterclock.spark.rescaling.carry import NewState
    from waterclock.spark.rescaling.parts import StateSeen
    from waterclock.spark.rescaling.stored import Written


@dataclass(frozen=True, slots=True)
class _Stop:
    """Where Spark stopped: the sink's number of its last batch, the place behind that, and each partition's watermark."""

    number: int
    first: Place
    place: Place
    clock: Clock


def to_local(
    config: Config,
    new: Path,
    begin: Callable[[int | None], Any],
    report: Callable[[str], None] = lambda line: None,
) -> NewState:
    """Carry the state of a pipeline which ran on Spark, and does not run, into the checkpoint `new`; UsageError,
    StateMismatch or EnvironmentMissing if it cannot be done. `begin` makes Spark's session."""
    from waterclock.local.checkpoint import LocalCheckpoint
    from waterclock.local.command import source_of
    from waterclock.local.record import Record
    from waterclock.local.sources import refuse_spark
    from waterclock.spark.pipeline import configured
    from waterclock.spark.rescaling.carry import NewState
    from waterclock.spark.rescaling.stored import look

    rules = refuse_spark(config.source, config.rules, config.outlets, new)
    refuse_csv(config)
    session = begin(config.buckets) if config.is_remote() else None
    with closing(configured(config)) as pipeline, closing(LocalCheckpoint(new, str(config.checkpoint))) as checkpoint:
        old, _, sink, schema = pipeline.kept()
        number = _refuse(old, sink, new)  # 1
        session = session or begin(pipeline.buckets)
        before = look(session, old)
        report(f"reads {before.keys} keys in {before.buckets} buckets")
        with closing(source_of(config.source, rules, config.watermark_delay_us)) as source:
            source.check()
            stop = _stop(config, old, before, number)
            query, place = str(uuid4()), " and ".join(outlet.sink.place for outlet in config.outlets)
            digest = _noted(checkpoint, source, config, place, query, stop)  # 2
        with closing(checkpoint.snapshots()) as snapshots:
            write = partial(snapshots.write, query)
            snapshots.forget_others(query, stop.number)  # of a try that was killed
            made = _written(session, old, before, rules, config.local.buckets, stop.number + 1, write)  # 3
        hand_over(old.path, new, query)  # 4
        report("hands the sink over")
        record = Record(digest, version("waterclock"), stop.place, stop.place, stop.clock).text()
        give_sink(sink, schema, query, stop.number + 1, record, made.bytes - before.bytes, is_logged=True)  # 5
    return NewState(new, config.local.buckets, 1, made.keys, made.deadlines, made.bytes)


def _refuse(old: Checkpoint, sink: Sink, new: Path) -> int:
    """The sink's number of the last batch; UsageError or StateMismatch if its state cannot be carried over."""
    from waterclock.spark.checkpoint.state_files import number_in_sink

    if old.is_closed() or old.is_source_closed():
        raise was_closed(old.path)
    done, applied = old.last_done(), sink.last_applied()
    number = number_in_sink(old, done)
    if old.last_batch() != done or applied is None or applied.batch_id != number:
        raise StateMismatch(
            f"a batch of the checkpoint {old.path} has begun and did not end: start the pipeline once more with "
            'engine = "spark", let it end, then carry over'
        )
    refuse_in_each_other(Path(str(old.path)), new)
    is_ours = (new / NOTES).exists() and stored(new / NOTES).get("carried_from") == str(old.path)
    if (others := sorted({*names_in(new)} - {LOCK, f".{NOTES}.new"})) and not is_ours:
        raise UsageError(
            f"the folder {new} holds other things ({others[0]}, ...): name one that is empty, or is not there yet (--to)"
        )
    return applied.batch_id


def _stop(config: Config, old: Checkpoint, before: StateSeen, number: int) -> _Stop:
    from waterclock.spark.checkpoint.source_files import taken_files
    from waterclock.spark.rescaling.carry import known

    if not isinstance(config.source, Files):
        place = old.source_offsets()
        return _Stop(number, old.starting() or place, place, before.clock.partitions)
    folder, end = Path(str(config.source.path)), old.source_offsets().get("logOffset", -1)
    names = dict.fromkeys(file.name for file in taken_files(old.path / "sources" / "0") if file.entry <= end)
    noted, _ = known(old.path / "commits" / str(before.batch_id))
    ms = int(noted.get("nextBatchWatermarkMs") or 0)  # 0: none yet
    files = [[name, (folder / name).stat().st_size if (folder / name).exists() else -1] for name in names]
    return _Stop(number, {"files": []}, {"files": files}, {"files": ms * 1000 if ms else None})


def _noted(checkpoint: LocalCheckpoint, source: Any, config: Config, sink: str, query: str, stop: _Stop) -> str:
    """Have the new checkpoint, and write its notes; the digest of the settings."""
    from waterclock.local.checkpoint import settings_with

    assert config.rules is not None, "refused"
    settings, digest = settings_with(source, config.rules, config.watermark_delay_us, config.local.buckets)
    checkpoint.take(settings, sink, source)
    checkpoint.begin(query, stop.first)
    return digest


def _written(
    session: Any,
    old: Checkpoint,
    before: StateSeen,
    rules: Rules,
    count: int,
    batch_id: int,
    write: Callable[..., None],
) -> Written:
    """Put the buckets together and write them, so that the last one, and all before it, outlast a power cut. What they
    hold; StateMismatch if that are not all keys."""
    from waterclock.spark.rescaling.stored import Written, parts
    from waterclock.streaming.buckets import labels

    rows = parts(session, old, before, rules, count).persist()
    found = Written(0, 0, 0)
    for place, label in enumerate(labels(count)):
        of_bucket = rows.where(f"bucket = {label}").select("origin", "frame")
        last = partial(write, lasts=place == count - 1)
        made = _bucket(of_bucket, rules, before.clock.watermark_us, place, batch_id, last)
        found = Written(*map(sum, zip(astuple(found), astuple(made), strict=True)))
    rows.unpersist()
    if found.keys != before.keys:
        raise StateMismatch(
            f"of {before.keys} keys {found.keys} were read: nothing was handed over, and the old checkpoint goes on. "
            "Please report this"
        )
    return found


def _bucket(
    rows: Any, rules: Rules, watermark_us: int, place: int, batch_id: int, write: Callable[..., None]
) -> Written:
    """One bucket; nothing of it stays in memory."""
    from waterclock.local import snapshots
    from waterclock.spark.rescaling.parts import JoinedBucket, StateClock, part_of
    from waterclock.spark.rescaling.stored import Written

    parts = [part_of(bytes(row.frame)) for row in sorted(rows.collect())]
    keys, deadlines, shelf = sum(part.keys for part in parts), sum(part.deadlines for part in parts), dict[int, bytes]()
    with closing(JoinedBucket(rules, StateClock(watermark_us), parts, shelf)) as bucket:
        stored = bucket.store()
        write([snapshots.Written(place, batch_id, stored, shelf, frozenset(), bucket.grown)])
    return Written(keys, deadlines, len(stored) + sum(map(len, shelf.values())))
