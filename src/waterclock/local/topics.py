"""Topics of Kafka as a source. A place is the ends of all known partitions, as Spark keeps them.

Rule 1: how far a batch goes, and who is gone, is the planner's (streaming/topics/planner.py), as it is on Spark.
Rule 2: a compacted topic loses records from inside of what was read: a replay would read others. It is refused.
Rule 3: a topic that was made anew under its name is another one: its id is in the checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from waterclock.errors import UsageError
from waterclock.kafka.admin import Admin
from waterclock.local.record import Place
from waterclock.local.sources import Input, Source
from waterclock.rules.model import Rules
from waterclock.streaming import frames
from waterclock.streaming.layout import END_US, end_of
from waterclock.streaming.toml.topics import Topics
from waterclock.streaming.topics.fetcher import PATIENCE_S, Fetcher, client_for, resolved, settings_of
from waterclock.streaming.topics.offsets import from_json, ranges, to_json
from waterclock.streaming.topics.planner import Planner
from waterclock.streaming.topics.records import Records, TopicLayout, read_records


class TopicSource(Source):
    """Records of topics, in the order of topic, partition and offset."""

    unit, idle_s = "records", 0.002

    def __init__(self, topics: Topics, rules: Rules, delay_us: int) -> None:
        self._topics, self._delay_us = topics, delay_us
        self._layout = TopicLayout(dict(topics.columns), dict(topics.record), rules)
        self._client = client_for(settings_of(topics), PATIENCE_S)
        self._planner = Planner(self._client, topics.topics, topics.starting, None, topics.on_loss)
        self._at: Place = {}
        self.where = ", ".join(topics.topics)
        self.refuses_another = topics.on_loss == "fail"

    def schema(self) -> pa.Schema:
        return self._layout.schema()

    def settings(self) -> Mapping[str, Any]:
        topics = self._topics
        return {"columns": dict(topics.columns), "record": dict(topics.record), "topics": list(topics.topics)}

    def check(self) -> None:
        there = {topic for topic, _ in self._client.partitions(self._topics.topics)}
        admin = Admin(settings_of(self._topics))
        for topic in self._topics.topics:
            if topic not in there:
                raise UsageError(
                    f"the topic {topic!r} is not on the broker at {self._topics.servers}: create it, or mend 'topics' in "
                    "[source]"
                )
            if "compact" in admin.settings(topic).get("cleanup.policy", ""):
                raise UsageError(
                    f'the topic {topic!r} is compacted, and engine = "local" may need its records once more after a crash: '
                    'write engine = "spark" in [pipeline]'
                )

    def first(self) -> Place:
        return to_json(self._planner.first())

    def identity(self) -> Mapping[str, str]:
        admin = Admin(settings_of(self._topics))
        return {topic: admin.topic_id(topic) for topic in self._topics.topics}

    def begin(self, places: Sequence[Place], live: bool) -> None:
        self._at = places[-1]
        if not live:
            there = self._client.partitions(self._topics.topics)
            ending = self._topics.ending
            found = resolved(self._client, ending, () if isinstance(ending, Mapping) else there)
            ends = {**self._client.ends(there), **found}
            self._planner = Planner(
                self._client, self._topics.topics, self._topics.starting, ends, self._topics.on_loss
            )

    def take(self) -> Input | None:
        start = self._at
        place = to_json(self._planner.ends(from_json(start), self._topics.per_batch))
        if place == start:
            return None
        self._at = place
        return self._read(start, place, self._topics.on_loss)

    def again(self, start: Place, place: Place) -> Input:
        return self._read(start, place, "fail")  # without what is gone the state would be another one

    def behind(self, place: Place) -> Mapping[str, int]:
        done = from_json(place)
        ends = self._client.ends(sorted({*done, *self._client.partitions(self._topics.topics)}))
        return {f"{topic}/{n}": max(0, end - done.get((topic, n), 0)) for (topic, n), end in sorted(ends.items())}

    def close(self) -> None:
        self._client.close()

    def _read(self, start: Place, place: Place, on_loss: str) -> Input:
        before, after = from_json(start), from_json(place)
        found = ranges(before, after)
        parts = list(Fetcher(self._client, found, on_loss).records()) if found else []
        parts.sort(key=lambda each: (each.topic, each.partition, each.offsets[0]))
        return self._input(parts, place, [each for each in before if each not in after])

    def _input(self, parts: Iterable[Records], place: Place, gone: Iterable[tuple[str, int]]) -> Input:
        clock: dict[str, int | None] = {f"{topic}/{n}": None for topic, n in from_json(place)}
        clock |= {f"{topic}/{n}": END_US for topic, n in gone}
        made, counted = Input(place, clock), []
        for records in parts:
            read = read_records(records, self._layout)
            made.rows.append(read.rows)
            made.dead.append(read.dead)
            counted.append(read.counters)
            if read.latest_us is not None:
                own, before = end_of(read.latest_us) - self._delay_us, clock[records.place]
                clock[records.place] = own if before is None else max(own, before)
        made.counters = frames.sum_counters(counted)
        return made
