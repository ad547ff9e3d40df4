"""What a user writes today: the same waiting by hand, with Spark's own tools, one state a key.

    rows a key          transformWithState a key, released by sequence, one timer a key for its gap
    timer a message     transformWithState a key, a Spark timer for every message to be delivered
    DataFrame           dropDuplicatesWithinWatermark, then applyInPandasWithState a key, one timeout a key

Each does one rule, gives the events back whole as ours does, and skips what ours does besides: late events, dead letters,
counters, result ids, a sink that commits its offsets. The comparison is on their side.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

WAIT_MS = 120_000
OUT = "id string, key string, seq bigint, kind string, ts_ms bigint, deliver_ms bigint"
COLUMNS = ("id", "key", "seq", "kind", "ts_ms", "deliver_ms")
Out = Row(*COLUMNS)


def whole(row: Row) -> tuple[Any, ...]:
    return row.id, row.key, row.seq, row.kind, row.ts_ms, row.deliver_ms


class TimerPerMessage(StatefulProcessor):
    """Deliver each message at its time: one Spark timer a message; messages seen are remembered."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._held = handle.getMapState("held", "seq bigint", "at bigint, message binary")
        self._seen = handle.getValueState("seen", "numbers binary")

    def handleInputRows(self, key: Any, rows: Iterable[Row], timerValues: Any) -> Iterator[Row]:
        now_ms, before = timerValues.getCurrentWatermarkInMs(), self._seen.get()
        seen = set(before[0]) if before else set()
        for row in rows:
            if row.seq in seen:
                continue
            seen.add(row.seq)
            if row.deliver_ms <= now_ms:
                yield Out(*whole(row))
            else:
                self._held.updateValue((row.seq,), (row.deliver_ms, pickle.dumps(whole(row), 5)))
                self._handle.registerTimer(row.deliver_ms)
        self._seen.update((bytes(sorted(seen)),))

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        at_ms = expiredTimerInfo.getExpiryTimeInMs()
        for (number,), (deliver_ms, message) in list(self._held.iterator()):
            if deliver_ms == at_ms:
                self._held.removeKey((number,))
                yield Out(*pickle.loads(message))


class RowsPerKey(StatefulProcessor):
    """Release by sequence, give a gap up after two minutes: one state and at most one timer a key."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._state = handle.getValueState("state", "next bigint, alarm bigint, held binary")

    def handleInputRows(self, key: Any, rows: Iterable[Row], timerValues: Any) -> Iterator[Row]:
        due, alarm, packed = self._state.get() or (1, 0, None)
        held = pickle.loads(packed) if packed else {}
        for row in rows:
            if row.seq >= due:
                held.setdefault(row.seq, whole(row))
        while due in held:
            yield Out(*held.pop(due))
            due += 1
        self._store(due, alarm, held, timerValues.getCurrentWatermarkInMs())

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        due, _, packed = self._state.get()
        held = pickle.loads(packed) if packed else {}
        while held and _patience_ends(held) <= timerValues.getCurrentWatermarkInMs():
            due = min(held)
            while due in held:
                yield Out(*held.pop(due))
                due += 1
        self._store(due, 0, held, timerValues.getCurrentWatermarkInMs())

    def _store(self, due: int, alarm: int, held: dict[int, tuple[Any, ...]], now_ms: int) -> None:
        wanted = max(_patience_ends(held), now_ms + 1) if held else 0
        if wanted != alarm:
            if alarm:
                self._handle.deleteTimer(alarm)
            if wanted:
                self._handle.registerTimer(wanted)
        self._state.update((due, wanted, pickle.dumps(held, 5) if held else None))


def _patience_ends(held: dict[int, tuple[Any, ...]]) -> int:
    return min(message[4] for message in held.values()) + WAIT_MS


def as_it_comes(events: DataFrame) -> DataFrame:
    """No rules at all: what the source and the sink alone take."""
    return _in_ms(events).drop("ts")


def timer_per_message(events: DataFrame) -> DataFrame:
    return _per_key(events, TimerPerMessage())


def rows_per_key(events: DataFrame) -> DataFrame:
    return _per_key(events, RowsPerKey())


def data_frame(events: DataFrame) -> DataFrame:
    """The recipe of the documentation: drop duplicates, then hold in applyInPandasWithState."""
    once = events.withWatermark("ts", "2 minutes").dropDuplicatesWithinWatermark(["key", "seq"])
    return (
        _in_ms(once)
        .groupBy("key")
        .applyInPandasWithState(_hold, OUT, "held binary", "append", GroupStateTimeout.EventTimeTimeout)
    )


def _hold(key: Any, frames: Iterable[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    held = pickle.loads(state.get[0]) if state.exists else []
    for frame in frames:
        held.extend(frame[list(COLUMNS)].itertuples(index=False, name=None))
    now_ms = state.getCurrentWatermarkMs()
    due = sorted((message for message in held if message[5] <= now_ms), key=lambda message: message[5])
    held = [message for message in held if message[5] > now_ms]
    if held:
        state.update((pickle.dumps(held),))
        state.setTimeoutTimestamp(max(min(message[5] for message in held), now_ms + 1))
    elif state.exists:
        state.remove()
    if due:
        yield pd.DataFrame(due, columns=COLUMNS)


def _per_key(events: DataFrame, processor: StatefulProcessor) -> DataFrame:
    rows = _in_ms(events.withWatermark("ts", "2 minutes"))
    return rows.groupBy("key").transformWithState(processor, OUT, outputMode="append", timeMode="EventTime")


def _in_ms(events: DataFrame) -> DataFrame:
    ms = [
        (F.unix_micros(name) / 1000).cast("bigint").alias(f"{name.split('_')[0]}_ms") for name in ("ts", "deliver_at")
    ]
    return events.select("id", "key", "seq", "kind", "ts", *ms)
