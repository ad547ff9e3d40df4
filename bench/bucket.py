"""What an event costs one bucket, all in and by part: the compiled engine beside the plain one, in process, without Spark.

    orders      the orders workload, as many rows a batch as one of 16 buckets gets of a batch of 175,000
    held        keys that each wait for a gap and for a delivery; a batch fills the gaps of some that came together, and
                goes on with them
    scattered   the same, of keys anywhere among those held

A batch is what the operator does with it on Spark: read the frame, load the bucket, step, write the results as a frame,
store. CPU time, the median over batches; each batch goes through both engines, by turns, from states that one engine has
filled.

Rule 1: in each batch both give the same results, row by row, or it is a WrongAnswer.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa

from waterclock.bench import orders
from waterclock.errors import WrongAnswer
from waterclock.rules.engine import NO_WATERMARK
from waterclock.rules.model import Rules
from waterclock.streaming import frames
from waterclock.streaming.layout import ROW_ID
from waterclock.streaming.state import bucket
from waterclock.streaming.state.compiled import COMPILED
from waterclock.streaming.state.plain import PlainEngine

ROWS: Final = 11_000  # a batch
BATCHES: Final = 9
EVENTS: Final = 16  # of a held key in a batch
FILL: Final = 50_000  # keys a batch that brings what is held
PARTS: Final = ("read", "load", "step", "results", "store")
DAY_US: Final = 86_400_000_000
Tell = Callable[[str], None]
Batch = tuple[bytes, int]  # the frame of its rows, its watermark


class PlainBucket(bucket.Bucket):
    """A bucket on the plain engine, whatever was built."""

    engine_for = staticmethod(PlainEngine)


BUCKETS: Final = {"plain": PlainBucket, "compiled": bucket.Bucket}


def rules(wait: str) -> Rules:
    """Orders by their sequence, delivered when they say, and paid within a minute."""
    made = Rules(key="key", time="ts", type="kind", id="id", sequence="seq").order(wait=wait).deliver_at("deliver_at")
    return made.expect("paid", after="created", within="60 s", otherwise="unpaid")


@dataclass(slots=True)
class Life:
    """A bucket from batch to batch on one engine."""

    engine: str
    rules: Rules
    stored: bucket.StoredBucket | None = None
    blobs: dict[int, bytes] = field(default_factory=dict)
    spent: dict[str, list[float]] = field(default_factory=lambda: {part: [] for part in PARTS})

    def batch(self, frame: bytes, watermark: int) -> pa.Table:
        """Its results; what each part took is noted."""
        gc.disable()
        at = [time.process_time()]
        rows = frames.from_bytes(frame)
        at.append(time.process_time())
        one = BUCKETS[self.engine](self.rules, self.stored, self.blobs)
        at.append(time.process_time())
        results = one.step([rows], watermark)
        at.append(time.process_time())
        frames.to_bytes(results)
        at.append(time.process_time())
        self.stored = one.store()
        one.close()
        at.append(time.process_time())
        gc.enable()
        for part, before, after in zip(PARTS, at, at[1:], strict=False):
            self.spent[part].append(after - before)
        return results

    def again(self, engine: str) -> Life:
        """The same state, for an engine."""
        return Life(engine, self.rules, self.stored, dict(self.blobs))


def measure(sizes: Sequence[int], rounds: int, tell: Tell) -> list[dict[str, Any]]:
    """A record for each workload, number of keys held, and engine."""
    found = []
    tell("bucket: orders")
    lives = [Life(name, rules("2 minutes")) for name in _engines()]
    found += _beside("orders", 0, lives, list(_orders(rounds)))
    for held in sizes:
        tell(f"bucket: {held:,} keys come to be held")
        full = _filled(held)
        for what in ("held", "scattered"):
            tell(f"bucket: {what}, {held:,} keys held")
            batches = list(_touching(held, what == "scattered", rounds))
            found += _beside(what, held, [full.again(name) for name in _engines()], batches)
    return found


def _engines() -> list[str]:
    return ["plain", "compiled"] if COMPILED else ["plain"]


def _beside(what: str, held: int, lives: list[Life], batches: list[Batch]) -> list[dict[str, Any]]:
    for frame, watermark in batches:
        results = [life.batch(frame, watermark) for life in lives]
        if any(not result.equals(results[0]) for result in results):
            raise WrongAnswer(f"bucket, {what}: the engines give different results")
    rows = frames.from_bytes(batches[-1][0]).num_rows
    return [_record(what, held, rows, life) for life in lives]


def _record(what: str, held: int, rows: int, life: Life) -> dict[str, Any]:
    assert life.stored is not None
    parts = {part: statistics.median(seconds[1:]) / rows * 1e6 for part, seconds in life.spent.items()}
    each = [sum(seconds) for seconds in zip(*life.spent.values(), strict=True)][1:]
    return {
        "what": what,
        "held": held,
        "engine": life.engine,
        "rows_a_batch": rows,
        "us": statistics.median(each) / rows * 1e6,
        "mean_us": statistics.mean(each) / rows * 1e6,
        "parts": parts,
        "read_mb": len(life.stored) / 1e6,
        "state_mb": (len(life.stored) + sum(map(len, life.blobs.values()))) / 1e6,
    }


def _orders(rounds: int) -> Iterator[Batch]:
    count = BATCHES * rounds + 1
    made, watermark = orders.make(round(ROWS * (count + 0.2) / 4.2)).rows, NO_WATERMARK
    for number in range(count):
        rows = made[number * ROWS : (number + 1) * ROWS]
        yield _frame(*zip(*rows, strict=True)), watermark
        watermark = max(watermark, max(row[4] for row in rows) - 120_000_000)


def _filled(held: int) -> Life:
    """`held` keys, with an event behind a gap and a delivery each."""
    life = Life(_engines()[-1], rules("30 days"))
    for first in range(0, held, FILL):
        keys = range(first, min(held, first + FILL))
        at = [orders.START_US - 40 * DAY_US // 2 + key for key in keys for _ in range(2)]
        to = [us + 40 * DAY_US if place % 2 == 0 else us for place, us in enumerate(at)]
        ids = [f"h{key:07d}-{number}" for key in keys for number in (1, 3)]
        names = [f"h{key:07d}" for key in keys for _ in range(2)]
        life.batch(_frame(ids, names, [1, 3] * len(keys), ["shipped"] * len(ids), at, to), NO_WATERMARK)
    return life


def _touching(held: int, is_scattered: bool, rounds: int) -> Iterator[Batch]:
    """Batches of rows for keys that are held, each key in one batch: they fill its gap, and go on."""
    count = BATCHES * rounds + 1
    touched = min(ROWS // EVENTS, held // count)
    order = np.random.default_rng(1).permutation(held) if is_scattered else np.arange(held)
    for number in range(count):
        keys = order[number * touched : (number + 1) * touched].tolist()
        rows = [(f"h{key:07d}", event + 3 if event else 2) for event in range(EVENTS) for key in keys]
        names, numbers = zip(*rows, strict=True)
        at = [orders.START_US + (number * len(rows) + place) * 4_000 for place in range(len(rows))]
        ids = [f"{name}-{n}" for name, n in rows]
        yield _frame(ids, names, numbers, ["paid"] * len(rows), at, at), at[0]


def _frame(*columns: Sequence[Any]) -> bytes:
    table = orders.table_of(columns)
    return frames.to_bytes(table.append_column(ROW_ID, pa.nulls(table.num_rows, pa.string())))
