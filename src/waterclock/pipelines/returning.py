"""A pipeline's state from Spark into a checkpoint of this machine's engine; what is carried, moving.py says.

Numbered; killed between any two of them, one of the two checkpoints is to be used:

    1. what cannot be carried over is refused; nothing is written yet
    2. Spark reads the old state, taken apart by the keys' new buckets; each is put together here, and written
    3. where the pipeline goes on is written down: settings, the first place, the new query
    4. the old folder says which one is to take its place
    5. the sink is handed over: a batch without rows, of the new query, with the record of where it goes on
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
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
    from waterclock.local.snapshots import Written
    from waterclock.rules.model import Rules
    from waterclock.spark.checkpoint.folder import Checkpoint
    from waterclock.spark.rescaling.carry import NewState
    from waterclock.spark.rescaling.parts import StateSeen


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
    with closing(configured(config)) as pipeline, closing(LocalCheckpoint(new)) as checkpoint:
        pipeline.check()
        old, _, sink, schema = pipeline.kept()
        number = _refuse(old, sink, new)  # 1
        session = session or begin(pipeline.buckets)
        before = look(session, old)
        report(f"reads {before.keys} keys in {before.buckets} buckets")
        with closing(source_of(config.source, rules, config.watermark_delay_us)) as source:
            source.check()
            stop = _stop(config, old, before, number)
            query, place = str(uuid4()), " and ".join(outlet.sink.place for outlet in config.outlets)
            written, keys, deadlines = _written(session, old, before, rules, config.local.buckets, number + 1)  # 2
            digest = _laid(checkpoint, source, config, place, written, query, stop, str(old.path))  # 3
        hand_over(old.path, new, query)  # 4
        size = sum(len(each.stored) + sum(map(len, each.put.values())) for each in written)
        report("hands the sink over")
        record = Record(digest, version("waterclock"), stop.place, stop.place, stop.clock).text()
        give_sink(sink, schema, query, stop.number + 1, record, size - before.bytes, is_logged=True)  # 5
    return NewState(new, config.local.buckets, 1, keys, deadlines, size)


def _refuse(old: Checkpoint, sink: Sink, new: Path) -> int:
    """The sink's number of the last batch; UsageError or StateMismatch if its state cannot be carried over."""
    from waterclock.spark.checkpoint.state_files import number_in_sink

    old.refuse_without_state()
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
    if (others := sorted({*names_in(new)} - {LOCK})) and not is_ours:
        raise UsageError(
            f"the folder {new} holds other things ({others[0]}, ...): name one that is empty, or is not there yet (--to)"
        )
    return applied.batch_id


def _stop(config: Config, old: Checkpoint, before: StateSeen, number: int) -> _Stop:
    if not isinstance(config.source, Files):
        place = old.source_offsets()
        return _Stop(number, old.starting() or place, place, before.clock.partitions)
    folder = Path(str(config.source.path))
    names = dict.fromkeys(name for batch in range(before.batch_id + 1) for name in old.files_of(batch))
    noted = (old.path / "commits" / str(before.batch_id)).read_text().splitlines()
    ms = int(json.loads(noted[1]).get("nextBatchWatermarkMs") or 0)  # 0: none yet
    files = [[name, (folder / name).stat().st_size if (folder / name).exists() else -1] for name in names]
    return _Stop(number, {"files": []}, {"files": files}, {"files": ms * 1000 if ms else None})


def _written(
    session: Any, old: Checkpoint, before: StateSeen, rules: Rules, count: int, batch_id: int
) -> tuple[list[Written], int, int]:
    """The buckets, put together; how many keys and deadlines they hold. StateMismatch if that are not all."""
    from waterclock.local.snapshots import Written
    from waterclock.spark.rescaling.parts import JoinedBucket, StateClock, part_of
    from waterclock.spark.rescaling.stored import parts
    from waterclock.streaming.buckets import labels

    rows = parts(session, old, before, rules, count).persist()
    found, keys, deadlines = [], 0, 0
    for place, label in enumerate(labels(count)):
        given = rows.where(f"bucket = {label}").select("origin", "frame").collect()
        taken = [part_of(bytes(frame)) for _, frame in sorted((row.origin, bytes(row.frame)) for row in given)]
        shelf: dict[int, bytes] = {}
        bucket = JoinedBucket(rules, StateClock(before.clock.watermark_us), taken, shelf)
        stored = bucket.store()
        found.append(Written(place, batch_id, stored, dict(shelf), frozenset(), bucket.grown))
        bucket.close()
        keys, deadlines = keys + sum(each.keys for each in taken), deadlines + sum(each.deadlines for each in taken)
    rows.unpersist()
    if keys != before.keys:
        raise StateMismatch(
            f"of {before.keys} keys {keys} were read: nothing was handed over, and the old checkpoint goes on. Please "
            "report this"
        )
    return found, keys, deadlines


def _laid(
    checkpoint: LocalCheckpoint, source: Any, config: Config, sink: str, written: list[Written], query: str, stop: _Stop,
    old: str,
) -> str:  # fmt: skip
    """Write buckets and notes, so that they outlast a power cut; the digest of the settings."""
    from waterclock.local.checkpoint import settings_with

    assert config.rules is not None, "refused"
    settings, digest = settings_with(source, config.rules, config.watermark_delay_us, config.local.buckets)
    checkpoint.take(settings, sink, source)
    with closing(checkpoint.snapshots()) as snapshots:
        snapshots.forget_others(query, stop.number)  # of a try that was killed
        snapshots.write(query, written, lasts=True)
    checkpoint.carry(query, stop.first, old)
    return digest
