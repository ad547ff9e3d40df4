"""From a source's items to batches: one pass over one source, from a position until it ends or breaks.

Rule 1: a batch ends behind a whole transaction: once it has `most` records, is LONGEST_S old, or the source has nothing
        more. A transaction with more than `largest` records goes in parts of so many.
Rule 2: if the source cannot go on, what was committed before that is handed out first, and then the error is raised.
Rule 3: that the source went on with nothing wanted is handed out too, as a batch of nothing, but only every MOVES_S: to
        keep it may write to the very server that is read, which makes it go on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from waterclock.cdc.part import OlderPart
from waterclock.cdc.position import Position
from waterclock.cdc.snapshot import renew
from waterclock.cdc.source import DeadLetter, Record, Source, SourceMark, TablesRenewed
from waterclock.changes.maxwell import MaxwellMessage
from waterclock.clock import Clock
from waterclock.errors import ConnectionLost, Unreadable, WaterclockError

LONGEST_S, MOVES_S = 0.2, 10.0


class BatchAhead(NamedTuple):
    """Records, and the position behind them."""

    records: list[Record]
    position: Position


@dataclass(frozen=True, slots=True)
class Bounds:
    """Of a batch, in records."""

    most: int = 10_000
    largest: int = 100_000

    def __post_init__(self) -> None:
        for name in ("most", "largest"):
            if (value := getattr(self, name)) < 1:
                raise ValueError(f"{name} must be 1 or more, got {value!r}")


class BatchReader:
    """Of one source; `rows` records of its first transaction are committed already."""

    def __init__(
        self, source: Source, clock: Clock, bounds: Bounds, rows: int, end: str | None, ended: Callable[[], bool]
    ) -> None:
        self._source, self._clock, self._bounds, self._end, self._ended = source, clock, bounds, end, ended
        self.is_renewed = False  # whether it ended because the source is to be made anew
        self._rows = rows  # records of the open transaction: those that are committed, and those in hand
        self._records: list[Record] = []
        self._whole = 0  # so many of them are of whole transactions
        self._position: Position | None = None  # behind these
        self._since_s = self._moved_s = clock.monotonic_s()

    def batches(self) -> Iterator[BatchAhead]:
        """Until the end is reached, or the caller has had enough."""
        if self._end is not None and self._source.reached(self._end):
            return
        try:
            for item in self._source.items():
                if item in (SourceMark.COMMITTED, SourceMark.MOVED):
                    self._rows, self._whole, self._position = 0, len(self._records), self._source.position()
                    last = self._end is not None and self._source.reached(self._end)
                    if last or self.is_renewed or self._is_due():
                        yield self._taken()
                    if last or self.is_renewed:
                        return
                elif item is SourceMark.QUIET:
                    if self._position is not None and (self._whole or self._is_time_to_move()):
                        yield self._taken()
                elif isinstance(item, OlderPart):
                    for message in item.messages():
                        yield from self._record(message)
                elif isinstance(item, MaxwellMessage | DeadLetter):  # a table's schema is no change
                    yield from self._record(item)
                elif isinstance(item, TablesRenewed):
                    renew(self._source, item)
                    self.is_renewed = True
                if self._ended():
                    return
        except (Unreadable, ConnectionLost) as error:
            yield from self._before(error)

    def _record(self, record: Record) -> Iterator[BatchAhead]:
        if not self._records:
            self._since_s = self._clock.monotonic_s()
        if self._rows and self._rows % self._bounds.largest == 0 and record.gtid:  # a chunk of older rows has none
            inside = self._source.position()._replace(rows=self._rows, inside=record.gtid)
            records, self._records, self._whole, self._position = self._records, [], 0, None
            yield BatchAhead(records, inside)
        self._rows += 1
        self._records.append(record)

    def _before(self, error: WaterclockError) -> Iterator[BatchAhead]:
        """Rule 2: the transaction in hand comes again, from its beginning or from its last part."""
        if self._position is not None:
            yield self._taken()
        raise error

    def _is_due(self) -> bool:
        if not self._records:
            return self._is_time_to_move()
        return len(self._records) >= self._bounds.most or self._clock.monotonic_s() - self._since_s >= LONGEST_S

    def _is_time_to_move(self) -> bool:
        return self._clock.monotonic_s() - self._moved_s >= MOVES_S

    def _taken(self) -> BatchAhead:
        assert self._position is not None
        records, position = self._records[: self._whole], self._position
        self._records, self._whole, self._position = self._records[self._whole :], 0, None
        self._moved_s = self._clock.monotonic_s()
        return BatchAhead(records, position)
