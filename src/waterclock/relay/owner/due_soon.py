"""What is due soon: rows of loaded spans in an array wheel, found again by their origins.

Rule 1: never early. What `take` gives back was due at its `now_ms` or before.
Rule 2: what comes out is in the order of (due, origin). It is sorted once more, since the wheel alone gives what was late
    when it was added behind what is due in the same millisecond.
Rule 3: a clock that steps back by less than `STEP_MS` is waited for. By more, and everything is filed anew by the new time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from waterclock.relay.store.rows import ROW, Array
from waterclock.wheel import ArrayWheel
from waterclock.wheel.occupancy import Occupancy

STEP_MS: Final = 1_000
_LEAST: Final = 1_024  # places for rows
_NOBODY: Final = -1  # the origin of a place that is free
_Piece = tuple[Array, Array]  # origins that rise, and the ids of their timers


class DueSoonWheel:
    """Rows until they are due; `now_ms` is the time that it begins at. For one thread.

    >>> from waterclock.relay.store import rows_of
    >>> due_soon = DueSoonWheel(0)
    >>> due_soon.add(rows_of([20, 10, 10], [0, 2, 1]))
    >>> due_soon.remove(np.array([0])), due_soon.next_due(), due_soon.take(15)["origin"].tolist(), len(due_soon)
    (1, 10, [1, 2], 0)
    """

    def __init__(self, now_ms: int) -> None:
        self._begin(now_ms)

    def _begin(self, now_ms: int) -> None:
        self._wheel: Any = ArrayWheel(1, now_ms)
        self._rows = _free_places(_LEAST)  # by the lower half of a timer's id
        self._index: list[
            _Piece
        ] = []  # sorted pieces, as in a log-structured merge tree: each at most half as large as the one before

    def __len__(self) -> int:
        """How many wait."""
        return len(self._wheel)

    def add(self, rows: Array) -> None:
        """Have these wait, each of an origin that does not wait already; one that is due comes with the next `take`."""
        if not len(rows):
            return
        ids = np.asarray(self._wheel.schedule(np.ascontiguousarray(rows["due"])))
        places = ids & 0xFFFFFFFF
        if (count := int(places.max()) + 1) > len(self._rows):
            more = _free_places(max(count, 2 * len(self._rows)))
            more[: len(self._rows)] = self._rows
            self._rows = more
        self._rows[places] = rows
        origins = rows["origin"]
        # a piece behind the others: those that are less than twice as large are merged with it, less what waits no more
        while self._index and len(self._index[-1][0]) < 2 * len(origins):
            older = self._index.pop()
            origins, ids = np.concatenate([older[0], origins]), np.concatenate([older[1], ids])
            waits = self._rows["origin"][ids & 0xFFFFFFFF] == origins
            origins, ids = origins[waits], ids[waits]
        order = np.argsort(origins, kind="stable")
        self._index.append((origins[order], ids[order]))

    def take(self, now_ms: int) -> Array:
        """All that is due by `now_ms`, in order; it waits no more."""
        if now_ms < self._wheel.now - STEP_MS:
            waiting = self._rows[self._rows["origin"] != _NOBODY]
            self._begin(now_ms)
            self.add(waiting)
        ids = np.asarray(self._wheel.advance(now_ms)[0])
        rows = self._taken(ids)
        return np.asarray(rows[np.lexsort((rows["origin"], rows["due"]))])

    def _taken(self, ids: Array) -> Array:
        """The rows of timers that wait no more; their places are free."""
        places = ids & 0xFFFFFFFF
        rows: Array = self._rows[places]
        self._rows["origin"][places] = _NOBODY
        if not len(self) and len(self._rows) > _LEAST:
            self._begin(self._wheel.now)  # the memory of a burst goes back
        return rows

    def remove(self, origins: Array) -> int:
        """Rows with these origins wait no more; returns how many did."""
        origins = np.unique(np.asarray(origins, "<i8"))
        found = [ids for piece in self._index if len(ids := _ids(piece, origins))]
        if not found:
            return 0
        ids = np.concatenate(found)
        gone = ids[np.asarray(self._wheel.cancel(ids)).astype(bool)]
        return len(self._taken(gone))

    def next_due(self) -> int | None:
        """The least `now_ms` for which `take` gives back a row; None when nothing waits."""
        due: int | None = self._wheel.next_deadline()
        return due

    def waiting(self, most: int) -> Iterator[Array]:
        """All that wait, in no order, so many places at a time. What comes or goes between two slices may be left out."""
        start = 0
        while start < len(self._rows):
            rows = self._rows[start : start + most]
            yield rows[rows["origin"] != _NOBODY]
            start += most

    def occupancy(self) -> Occupancy:
        """How many wait in each bucket of the wheel, whose tick is a millisecond."""
        levels: Occupancy = self._wheel.occupancy()
        return levels


def _free_places(count: int) -> Array:
    rows = np.zeros(count, ROW)
    rows["origin"] = _NOBODY
    return rows


def _ids(piece: _Piece, wanted: Array) -> Array:
    """The ids in a piece of those origins that are there."""
    origins, ids = piece
    first = np.searchsorted(origins, wanted, side="left")
    counts = np.searchsorted(origins, wanted, side="right") - first
    within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.asarray(ids[np.repeat(first, counts) + within])
