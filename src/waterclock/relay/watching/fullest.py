"""Whose messages wait: the keys with most of what is near; and what is due and not delivered, with its keys and why. It is
looked for when somebody asks: nothing is kept for it.

Rule 1: no more than `LOOKED` messages of a partition are read, of its wheel and of those that wait, and not again before
        `EVERY_S`: the answer is of then.
Rule 2: the relay's lock is held while they are read, some milliseconds; a relay that is busy is asked again soon.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from waterclock.clock import Clock
from waterclock.letters import HIDDEN, shortened
from waterclock.relay.owner.owner import Owner
from waterclock.relay.statistics import RelayStatistics, WaitStatistics
from waterclock.relay.store import StoreDamaged, unpack
from waterclock.relay.store.rows import Array

LOOKED: Final = 500
MOST: Final = 10
EVERY_S: Final = 5.0
PATIENCE_S: Final = 0.1
_Waiting = tuple[WaitStatistics, ...]


class Fullest:
    """The statistics of a relay with what is said above, for any thread."""

    def __init__(
        self,
        statistics: Callable[[], RelayStatistics],
        owners: Mapping[int, Owner],
        lock: Any,
        clock: Clock,
        hides: bool,
    ) -> None:
        self._statistics, self._owners, self._lock = statistics, owners, lock
        self._clock, self._hides = clock, hides
        self._looked_s = -EVERY_S
        self._last: tuple[Mapping[str, int], _Waiting] = {}, ()

    def seen(self) -> RelayStatistics:
        if self._clock.monotonic_s() - self._looked_s >= EVERY_S and self._lock.acquire(timeout=PATIENCE_S):
            try:
                self._last = self._looked()
                self._looked_s = self._clock.monotonic_s()
            finally:
                self._lock.release()
        return replace(self._statistics(), fullest=self._last[0], waits=self._last[1])

    def _looked(self) -> tuple[Mapping[str, int], _Waiting]:
        near, waits = Counter[str](), list[WaitStatistics]()
        for owner in self._owners.values():
            rows = next(owner.due_soon.waiting(LOOKED), owner.ready[:0])
            near += Counter(_keys(owner, rows, self._hides).values())
            waits += _waits(owner, self._hides)
        waits.sort(key=lambda one: -one.pending)
        return dict(near.most_common(MOST)), tuple(waits[:MOST])


def _waits(owner: Owner, hides: bool) -> list[WaitStatistics]:
    """Of a partition, by target."""
    rows, counts = owner.doubts.first(LOOKED)
    keys, found = _keys(owner, rows, hides), []
    for target in {*counts, *rows["target"].tolist()}:
        own = rows["origin"][rows["target"] == target].tolist()
        said = next((owner.refused[origin] for origin in own if origin in owner.refused), "")
        why = said or "it has refused messages, or did not answer: it is tried again by itself"
        fullest = Counter(keys[origin] for origin in own if origin in keys).most_common(MOST)
        found.append(
            WaitStatistics(owner.store.targets[target], max(len(own), counts.get(target, 0)), why, dict(fullest))
        )
    if not owner.has_caught_up and len(owner.ready):
        found.append(WaitStatistics("", len(owner.ready), "the input is read to its end first"))
    return found


def _keys(owner: Owner, rows: Array, hides: bool) -> dict[int, str]:
    """Origin -> key, of those that have one and are pending."""
    rows = rows[owner.store.is_pending(rows["origin"])][:LOOKED]
    try:
        found = {
            origin: unpack(blob).key
            for origin, blob in zip(rows["origin"].tolist(), owner.store.read(rows), strict=True)
        }
    except (StoreDamaged, OSError):
        return {}  # the relay itself will meet it, and says so
    keys = {origin: shortened(key) for origin, key in found.items() if key is not None}
    if hides:
        names = {key: f"{HIDDEN} {number}" for number, key in enumerate(dict.fromkeys(keys.values()), 1)}
        keys = {origin: names[key] for origin, key in keys.items()}
    return keys
