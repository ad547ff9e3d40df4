"""What a pipeline promises (docs/rules.md, docs/topics.md), held against what stands in its sinks in the end.

The oracle of the rules is that of tests/rules, which shares nothing with the product. A batch's rows come by partition and
offset, and are judged against the watermark that the batches before it made; then the least of the partitions' times moves
it, and what is due comes out in the same batch.

doubled, missing   results of a batch are there twice, or not at all: exactly once, on time, in that batch
order              results of a key come in another order
letters            what cannot be read is put aside once, with its place
counters           the sums in the sink are not those of what was read
watermark          the sink's last one is not that of the partitions
vanished           a reader of committed results saw what is not there in the end
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

from tests.rules.oracle import FOREVER, NEVER, Oracle, Out, Row, Spec
from tests.simulation.kafka.batches import Record
from tests.simulation.rules.senders import HEARTBEAT, INPUT, us_of

ORDERED: dict[str, Callable[[Out], Any]] = {
    "releases": lambda one: one.kind == "event" and one.rule != "deliver_at" and one,
    "deliveries": lambda one: one.kind == "event" and one.rule == "deliver_at" and one,
    "deadlines": lambda one: one.kind in ("emit", "expired", "quiet") and (one.due,),
    "gaps": lambda one: one.kind == "gap" and one,
}
"""What keeps its order within a key."""
YEAR_9999_US = us_of("9999-12-31T00:00:00Z")


class Found(NamedTuple):
    """What a sink holds: results by batch, in their order; dead letters; and what its last batch says."""

    sink: str
    results: dict[int, list[Out]]
    letters: list[tuple[str, int]]
    totals: dict[str, int]
    last: int


class Expected:
    """What the oracle makes of the input, cut as the batches were."""

    def __init__(self, spec: Spec, delay_us: int, log: dict[int, list[Record]], cuts: list[dict[str, int]]) -> None:
        self.oracle, self._delay_us = Oracle(spec), delay_us
        self._times: dict[int, int] = dict.fromkeys(log, NEVER)
        self.results: dict[int, list[Out]] = {}
        self.letters: list[tuple[str, int]] = []
        self.counted: Counter[str] = Counter()
        before = dict.fromkeys(map(str, log), 0)
        for batch, after in enumerate(cuts):
            for number in sorted(log):
                span = range(before.get(str(number), 0), after[str(number)])
                for record in log[number]:
                    if record.offset in span:
                        self._take(number, record)
            before = after
            self.oracle.advance(NEVER)  # what is past is done at once
            self.oracle.advance(min(self._times.values()))
            self.results[batch], self.oracle.out = self.oracle.out, []

    def _take(self, number: int, record: Record) -> None:
        self.counted["records"] += 1
        beat = dict(record.headers).get(HEARTBEAT)
        if beat is not None:
            self.counted["heartbeats"] += 1
            self._moves(number, us_of(beat.decode()))
        elif record.value is None:
            self.counted["tombstones"] += 1
        elif (row := row_of(record.value)) is None:
            self.counted["dead_letters"] += 1
            self.letters.append((f"{INPUT}/{number}", record.offset))
        else:
            self.oracle.arrive(row)
            self._moves(number, row.time)

    def _moves(self, number: int, us: int) -> None:
        self._times[number] = max(self._times[number], FOREVER if us >= YEAR_9999_US else us - self._delay_us)

    @property
    def totals(self) -> dict[str, int]:
        counted = self.oracle.counters()
        beats = counted.pop("heartbeats") + self.counted["heartbeats"]
        rest = {name: self.counted[name] for name in ("records", "tombstones", "dead_letters")}
        return counted | rest | {"heartbeats": beats, "results": sum(map(len, self.results.values()))}


def row_of(value: bytes) -> Row | None:
    """An event; None if it is none."""
    try:
        given = json.loads(value)
        times = {name: us_of(given[name]) for name in ("time", "deliver", "promised") if name in given}
        return Row(**{"key": None, **given, **times})
    except (ValueError, TypeError):
        return None


def check(world: Any, wanted: Expected, found: Found) -> None:
    """Hold what a sink holds against what is wanted."""
    for batch in sorted({*wanted.results, *found.results}):
        asked, came = wanted.results.get(batch, []), found.results.get(batch, [])
        _check_batch(world, f"batch {batch} in {found.sink}", asked, came)
    if Counter(wanted.letters) != Counter(found.letters):
        world.problem("letters", f"{found.sink} has {_less(found.letters, wanted.letters)}, lacks "
                      f"{_less(wanted.letters, found.letters)}")  # fmt: skip
    totals = {name: found.totals.get(name, 0) for name in wanted.totals}
    if totals != wanted.totals:
        differ = {name: (totals[name], wanted.totals[name]) for name in totals if totals[name] != wanted.totals[name]}
        world.problem("counters", f"{found.sink} (has, should have): {differ}")
    if found.last != max(wanted.results, default=-1):
        world.problem("missing", f"{found.sink} ends with batch {found.last}, of {len(wanted.results)}")


def _check_batch(world: Any, where: str, wanted: list[Out], found: list[Out]) -> None:
    more, less = _less(found, wanted), _less(wanted, found)
    if more or less:
        doubled = [one for one in more if one in wanted]
        world.problem("doubled" if doubled else "missing" if less else "invented", f"{where}: more {more}, less {less}")
        return
    for key in sorted({one.key for one in wanted}):
        for name, part in ORDERED.items():
            asked, came = ([part(one) for one in some if one.key == key and part(one)] for some in (wanted, found))
            if asked != came:
                world.problem("order", f"{where}: {name} of {key}: {came}, not {asked}")


def _less(some: list[Any], others: list[Any]) -> list[Any]:
    return list((Counter(some) - Counter(others)).elements())[:5]
