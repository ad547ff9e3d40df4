"""Records of partitions as a batch; and a list of events as the records of one partition. No Kafka client in this file."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import pyarrow as pa

from waterclock.local.record import Place
from waterclock.local.sources import Input, Source
from waterclock.streaming import frames
from waterclock.streaming.topics.offsets import from_json, to_json
from waterclock.streaming.topics.records import Records, TopicLayout, read_records, watermarks_of

_EVENTS = ("events", 0)
Own = Callable[[int | None], int | None]


def batch_of(parts: Iterable[Records], start: Place, place: Place, layout: TopicLayout, own: Own) -> Input:
    """The batch of these records, which led from one place to the other, in the order of topic, partition and offset.
    `own` is the watermark that a partition allows by the largest time that was read of it."""
    before, after = from_json(start), from_json(place)
    clock = watermarks_of(after, before.keys() - after.keys())
    made, counted = Input(place, clock), []
    for records in sorted(parts, key=lambda each: (each.topic, each.partition, each.offsets[0])):
        read = read_records(records, layout)
        made.rows.append(read.rows)
        made.dead.append(read.dead)
        counted.append(read.counters)
        known = (clock[records.place], own(read.latest_us))
        clock[records.place] = max((us for us in known if us is not None), default=None)
    made.counters = frames.sum_counters(counted)
    return made


class EventSource(Source):
    """Events of a list, `per_batch` at a time: mappings, or the text of a record as it would stand in a topic."""

    unit, where, idle_s = "records", "events", 0.0

    def __init__(self, events: Iterable[Any], layout: TopicLayout, own: Own, per_batch: int) -> None:
        self._values: list[bytes | None] = list(map(_value, events))
        self._layout, self._own, self._per_batch = layout, own, per_batch
        self._at = 0

    def schema(self) -> pa.Schema:
        return self._layout.schema()

    def settings(self) -> Mapping[str, Any]:
        return {}

    def check(self) -> None:
        """Nothing can be wrong with it."""

    def first(self) -> Place:
        return to_json({_EVENTS: 0})

    def begin(self, places: Sequence[Place], live: bool) -> None:
        self._at = from_json(places[-1])[_EVENTS]

    def take(self) -> Input | None:
        start, self._at = self._at, min(self._at + self._per_batch, len(self._values))
        return self.again(to_json({_EVENTS: start}), to_json({_EVENTS: self._at})) if self._at > start else None

    def again(self, start: Place, place: Place) -> Input:
        offsets = list(range(from_json(start)[_EVENTS], from_json(place)[_EVENTS]))
        nothing: list[Any] = [None] * len(offsets)
        values = [self._values[offset] for offset in offsets]
        return batch_of(
            [Records(*_EVENTS, offsets, nothing, nothing, values, nothing)], start, place, self._layout, self._own
        )

    def behind(self, place: Place) -> Mapping[str, int]:
        return {"events/0": len(self._values) - from_json(place)[_EVENTS]}


def _value(event: Any) -> bytes:
    if isinstance(event, str):
        return event.encode()
    if not isinstance(event, Mapping):
        raise TypeError(f"an event needs to be a mapping of columns, or the text of one, got {event!r}")
    return json.dumps(dict(event), default=_told).encode()


def _told(value: object) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(f"an event's value needs to be a string, a number, a boolean, None or a datetime, got {value!r}")
