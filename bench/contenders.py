"""What a user writes today: the same waiting by hand, with Spark's own tools, one state a key.

    timer a message     transformWithState a key, a Spark timer for every message to be delivered
    rows a key          transformWithState a key, sequence order with one timer a key
    DataFrame           dropDuplicatesWithinWatermark, then applyInPandasWithState a key, one timeout a key

Each does less than the pipeline it is compared with (one rule of its three), carries no payload, and skips the sink's
dead letters, counters and lateness: the comparison is on their side.
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
Delivered, Ordered = Row("key", "seq"), Row("key", "seq")
OUT = "key string, seq bigint"


class TimerPerMessage(StatefulProcessor):
    """Deliver each message at its time: one Spark timer a message; messages seen are remembered."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._held = handle.getMapState("held", "seq bigint", "at bigint")
        self._seen = handle.getValueState("seen", "numbers binary")

    def handleInputRows(self, key: Any, rows: Iterable[Row], timerValues: Any) -> Iterator[Row]:
        now_ms, before = timerValues.getCurrentWatermarkInMs(), self._seen.get()
        seen = set(before[0]) if before else set()
        for row in rows:
            if row.seq in seen:
                continue
            seen.add(row.seq)
            if row.deliver_ms <= now_ms:
                yield Delivered(key[0], row.seq)
            else:
                self._held.updateValue((row.seq,), (row.deliver_ms,))
                self._handle.registerTimer(row.deliver_ms)
        self._seen.update((bytes(sorted(seen)),))

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        at_ms = expiredTimerInfo.getExpiryTimeInMs()
        for (number,), (deliver_ms,) in list(self._held.iterator()):
            if deliver_ms == at_ms:
                self._held.removeKey((number,))
                yield Delivered(key[0], number)


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
                held.setdefault(row.seq, row.ts_ms)
        while due in held:
            held.pop(due)
            yield Ordered(key[0], due)
            due += 1
        self._store(due, alarm, held, timerValues.getCurrentWatermarkInMs())

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        due, alarm, packed = self._state.get()
        held = pickle.loads(packed) if packed else {}
        while held and min(held.values()) + WAIT_MS <= timerValues.getCurrentWatermarkInMs():
            due = min(held)
            while due in held:
                held.pop(due)
                yield Ordered(key[0], due)
                due += 1
        self._store(due, 0, held, timerValues.getCurrentWatermarkInMs())

    def _store(self, due: int, alarm: int, held: dict[int, int], now_ms: int) -> None:
        wanted = max(min(held.values()) + WAIT_MS, now_ms + 1) if held else 0
        if wanted != alarm:
            if alarm:
                self._handle.deleteTimer(alarm)
            if wanted:
                self._handle.registerTimer(wanted)
        self._state.update((due, wanted, pickle.dumps(held, 5) if held else None))


def timer_per_message(events: DataFrame) -> DataFrame:
    return _per_key(events, TimerPerMessage())


def rows_per_key(events: DataFrame) -> DataFrame:
    return _per_key(events, RowsPerKey())


def data_frame(events: DataFrame) -> DataFrame:
    """The recipe of the documentation: drop duplicates, then hold in applyInPandasWithState."""
    once = events.withWatermark("ts", "2 minutes").dropDuplicatesWithinWatermark(["key", "seq"])
    rows = once.select("key", "seq", "ts", _ms("deliver_at").alias("deliver_ms"))
    return rows.groupBy("key").applyInPandasWithState(
        _hold, OUT, "held binary", "append", GroupStateTimeout.EventTimeTimeout
    )


def _hold(key: Any, frames: Iterable[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    held = pickle.loads(state.get[0]) if state.exists else []
    for frame in frames:
        held.extend(zip(frame["deliver_ms"].tolist(), frame["seq"].tolist(), strict=True))
    now_ms = state.getCurrentWatermarkMs()
    due = sorted(item for item in held if item[0] <= now_ms)
    held = [item for item in held if item[0] > now_ms]
    if held:
        state.update((pickle.dumps(held),))
        state.setTimeoutTimestamp(max(min(held)[0], now_ms + 1))
    elif state.exists:
        state.remove()
    if due:
        yield pd.DataFrame({"key": key[0], "seq": [number for _, number in due]})


def _per_key(events: DataFrame, processor: StatefulProcessor) -> DataFrame:
    rows = events.withWatermark("ts", "2 minutes").select(
        "key", "seq", "ts", _ms("ts").alias("ts_ms"), _ms("deliver_at").alias("deliver_ms")
    )
    return rows.groupBy("key").transformWithState(processor, OUT, outputMode="append", timeMode="EventTime")


def _ms(column: str) -> Any:
    return (F.unix_micros(column) / 1000).cast("bigint")
