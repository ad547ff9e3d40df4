"""Topics of Kafka as a source. A place is the ends of all known partitions, as Spark keeps them.

Rule 1: how far a batch goes, and who is gone, is the planner's (streaming/topics/planner.py), as it is on Spark.
Rule 2: a compacted topic loses records from inside of what was read: a replay would read others. It is refused.
Rule 3: a topic that was made anew under its name is another one: its id is in the checkpoint. It is looked up now and then,
        and where the tail has trouble; if nobody answers, the next time.
Rule 4: a live run that has caught up stays at the end (streaming/topics/tail.py). The planner looks now and then, and where
        the tail has trouble; what it finds to be otherwise, or much, is read as a batch of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import pyarrow as pa

from waterclock.errors import StateMismatch, UsageError, WaterclockError
from waterclock.kafka import Offsets, Partition
from waterclock.kafka.admin import Admin
from waterclock.local.record import Place
from waterclock.local.records import batch_of
from waterclock.local.sources import Input, Source
from waterclock.rules.model import Rules
from waterclock.streaming.toml.topics import Topics
from waterclock.streaming.topics.fetcher import (
    BEHIND_A_LOSS,
    CHUNK,
    PATIENCE_S,
    Fetcher,
    client_for,
    resolved,
    settings_of,
)
from waterclock.streaming.topics.offsets import from_json, ranges, to_json
from waterclock.streaming.topics.planner import Planner
from waterclock.streaming.topics.records import Records, TopicLayout, own_watermark
from waterclock.streaming.topics.tail import Tail

SAME_FOR_S = 10.0  # a topic is taken for the one that it was


class TopicSource(Source):
    """Records of topics, in the order of topic, partition and offset."""

    unit, idle_s = "records", 0.002

    def __init__(self, topics: Topics, rules: Rules, delay_us: int) -> None:
        self._topics, self._own = topics, partial(own_watermark, delay_us=delay_us)
        self._layout = TopicLayout(dict(topics.columns), dict(topics.record), rules)
        self._client = client_for(settings_of(topics), PATIENCE_S)
        self._planner = Planner(self._client, topics.topics, topics.starting, None, topics.on_loss)
        self._at: Place = {}
        self._ids: Mapping[str, str] = {}
        self._anew: Mapping[str, str] = {}  # the ids since others were there, till a batch says so
        self._same_until_s = 0.0
        self._tail: Tail | None = None
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
        found = {topic: admin.topic_id(topic) for topic in self._topics.topics}
        self._ids = self._ids or found
        return found

    def begin(self, places: Sequence[Place], live: bool) -> None:
        topics, self._at, self._client.patience_s = self._topics, places[-1], PATIENCE_S
        ends: Offsets | None = None
        if self._tail is not None:  # of a run before
            self._tail.close()
        self._tail = Tail(client_for(settings_of(topics), PATIENCE_S)) if live else None
        if not live:
            there = self._client.partitions(topics.topics)
            found = resolved(self._client, topics.ending, () if isinstance(topics.ending, Mapping) else there)
            ends = {**self._client.ends(there), **found}
        self._planner = Planner(self._client, topics.topics, topics.starting, ends, topics.on_loss)

    def take(self) -> Input | None:
        tail, most = self._tail, self._topics.per_batch
        if tail is not None and tail.at:
            ends = self._planner.ends(tail.at, most) if self._planner.is_due else None
            if ends is not None:
                self._look_for_another()
            if ends is not None and not self._brings(tail, ends):
                return self._planned(tail.at, ends)
            if (came := tail.take(most)) is not None:
                return self._next(came, tail.at, tail.may_have_more) if came or ends else None
            tail.stand({})
            self._same_until_s = 0.0
        before = from_json(self._at)
        return self._planned(before, self._planner.ends(before, most))

    def _brings(self, tail: Tail, ends: Offsets) -> bool:
        """Whether the tail will bring, and soon, all that the planner says."""
        is_behind = tail.at.keys() == ends.keys() and all(ends[place] >= at for place, at in tail.at.items())
        return is_behind and self._are_near(tail.at, ends)

    def _are_near(self, before: Offsets, ends: Offsets) -> bool:
        return sum(map(len, ranges(before, ends))) < min(CHUNK, self._topics.per_batch)

    def _planned(self, before: Offsets, ends: Offsets) -> Input | None:
        """A batch as far as the planner says; a live run that was not far from the end stays there."""
        if any(at > ends.get(place, -1) for place, at in before.items()):
            self._same_until_s = 0.0  # what was lost may be the topic
        self._look_for_another()
        made = self._next(self._fetched(before, ends, self._topics.on_loss), ends, self._planner.has_more)
        if self._tail is not None:
            self._tail.stand(ends if self._are_near(before, ends) else {})
        return made

    def _look_for_another(self) -> None:
        """Rule 3: StateMismatch, if nothing may be lost."""
        now_s = self._client.clock.monotonic_s()
        if now_s < self._same_until_s:
            return
        self._same_until_s = now_s + SAME_FOR_S
        found: Mapping[str, str] = {}
        with suppress(WaterclockError):
            found = self.identity()
        anew = [topic for topic, known in found.items() if known != self._ids[topic]]
        if anew and self.refuses_another:
            raise StateMismatch(
                f"the topic {anew[0]} was made anew while it was read: some of what is in it now was never read. Start "
                "over with --fresh, or name another checkpoint and another table"
            )
        if anew:
            self._ids = self._anew = found

    def _next(self, parts: Iterable[Records], ends: Mapping[Partition, int], is_full: bool) -> Input | None:
        """The batch that goes on up to there; None if that is where the one before ended."""
        start, place = self._at, to_json(ends)
        if place == start:
            return None
        self._at = place
        made = batch_of(parts, start, place, self._layout, self._own)
        made.is_full, made.anew, self._anew = is_full, self._anew, {}
        return made

    def again(self, start: Place, place: Place) -> Input:
        parts = self._fetched(from_json(start), from_json(place), "fail")  # or the state would be another one
        try:
            return batch_of(parts, start, place, self._layout, self._own)
        except WaterclockError as error:
            told, is_a_loss, _ = str(error).partition(BEHIND_A_LOSS)
            if not is_a_loss:
                raise
            raise StateMismatch(
                f"{told.replace('were read:', 'were read once more:')}The state is to be made of them, and that goes over "
                "no loss, whatever on_loss says: start over with --fresh"
            ) from error

    def behind(self, place: Place) -> Mapping[str, int]:
        done = from_json(place)
        ends = self._client.ends(sorted({*done, *self._client.partitions(self._topics.topics)}))
        return {f"{topic}/{n}": max(0, end - done.get((topic, n), 0)) for (topic, n), end in sorted(ends.items())}

    def hurry(self) -> None:
        self._client.patience_s = 0.0

    def close(self) -> None:
        self._client.close()
        if self._tail is not None:
            self._tail.close()

    def _fetched(self, before: Offsets, after: Offsets, on_loss: str) -> Iterable[Records]:
        return Fetcher(self._client, ranges(before, after), on_loss).records()
