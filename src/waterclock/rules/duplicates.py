"""Ids seen for each key, for as long as a duplicate of them can come.

Rule 1: an id counts as seen while an event's time is at most `within_us` after the time first seen.
Rule 2: an id is forgotten when the watermark is past that; forgetting frees memory and changes no answer.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from waterclock.rules.results import Key

_GENERATIONS = 8  # an id outlives its horizon by at most an eighth of it, while its key is awake


class Duplicates:
    """The ids of one bucket, in generations by time, so that forgetting costs what is forgotten."""

    def __init__(self, within_us: int) -> None:
        self._within_us = within_us
        self._width_us = max(1, within_us // _GENERATIONS)
        self._seen: dict[Key, dict[str, int]] = {}
        self._keys_of: dict[int, set[Key]] = {}
        self._forget_at: int | None = None

    def seen(self, key: Key, event_id: str, time_us: int) -> bool:
        """True for a duplicate; otherwise the id is remembered."""
        ids = self._seen.get(key)
        if ids is None:
            ids = self._seen[key] = {}
        first = ids.get(event_id)
        if first is not None and time_us <= first + self._within_us:
            return True
        ids[event_id] = time_us
        self._remember(key, time_us // self._width_us)
        return False

    def forget(self, watermark: int) -> None:
        """Drop the ids that no event at or after `watermark` can duplicate."""
        if self._forget_at is None or watermark < self._forget_at:
            return
        last = (watermark - self._within_us) // self._width_us - 1
        for generation in [g for g in self._keys_of if g <= last]:
            for key in self._keys_of.pop(generation):
                # a key stands in each generation in which it had an id; an earlier one may have taken this one's ids along
                ids = {i: t for i, t in self._seen.get(key, {}).items() if t // self._width_us > last}
                if ids:
                    self._seen[key] = ids  # in its old place: the order of keys must not depend on a set's
                else:
                    self._seen.pop(key, None)
        self._set_alarm()

    def keys(self) -> Iterable[Key]:
        return self._seen

    def state_of(self, key: Key) -> Any:
        """The ids of `key` with their times in plain values; None if there are none."""
        ids = self._seen.get(key)
        return ids and list(ids.items())

    def wake(self, key: Key, state: Any) -> None:
        """Take back what `state_of` gave."""
        self._seen[key] = dict(state)
        for generation in {time_us // self._width_us for time_us in self._seen[key].values()}:
            self._remember(key, generation)

    def gone_by(self, key: Key) -> int | None:
        """The watermark at which all ids of `key` that are known now are forgotten; None if there are none."""
        ids = self._seen.get(key)
        return self._end_of(max(ids.values()) // self._width_us) if ids else None

    def _remember(self, key: Key, generation: int) -> None:
        keys = self._keys_of.get(generation)
        if keys is None:
            self._keys_of[generation] = {key}
            self._set_alarm()
        else:
            keys.add(key)

    def _set_alarm(self) -> None:
        first = min(self._keys_of, default=None)
        self._forget_at = None if first is None else self._end_of(first)

    def _end_of(self, generation: int) -> int:
        """The watermark that forgets the ids of a generation."""
        return (generation + 1) * self._width_us + self._within_us
