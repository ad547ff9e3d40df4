"""Orders: which event of a key is released when. One class for each way, the same four methods.

    accept(key, event)       take an event that is neither duplicate nor late; may release it and others
    known(key, event)        True when its sequence number was released before, or is held
    passed(key, event)       a late event: its number counts as passed, nothing waits for it
    holds_before(key, t)     True while an event of the key with time < t is held

And three by which the state of each key goes to rest, and is woken:

    keys()                   the keys that have any state
    state_of(key, keep)      it in plain values, None where there is none; `keep` gives what to store for an event's `ref`
    wake(key, state, ref)    takes it back; `ref` undoes `keep`

Rule 1: events of a key are released in order, each once, through `release(key, event)`.
Rule 2: an order holds events, and holds no opinion about what they mean.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from typing import Any, Protocol

from waterclock.rules import questions
from waterclock.rules.events import Event
from waterclock.rules.results import Key

Keep = Callable[[Any], Any]


def stored(event: Event, keep: Keep) -> tuple[Any, ...]:
    """An event as plain values, its `ref` as `keep` gives it."""
    plain = (*event[:5], keep(event.ref))
    return plain if event.answers is None else (*plain, event.answers)


def restored(plain: Any, ref: Keep) -> Event:
    """The event that `stored` made plain; `ref` undoes `keep`."""
    time, source, sequence, kind, deliver, kept, *more = plain
    return Event(time, source, sequence, kind, deliver, ref(kept), questions.restored(more[0] if more else None))


class Releases(Protocol):
    """What an order asks of the engine that it works for."""

    def release(self, key: Key, event: Event) -> None: ...
    def when_complete(self, key: Key, time_us: int) -> None: ...
    def count_held(self, change: int) -> None: ...
    def count_reordered(self) -> None: ...


class AsTheyCome:
    """No order: every event is released on arrival."""

    def __init__(self, engine: Releases) -> None:
        self.accept = engine.release

    def known(self, key: Key, event: Event) -> bool:
        return False

    def passed(self, key: Key, event: Event) -> None:
        pass

    def holds_before(self, key: Key, time_us: int) -> bool:
        return False

    def keys(self) -> Iterable[Key]:
        return ()

    def state_of(self, key: Key, keep: Keep) -> Any:
        return None

    def wake(self, key: Key, state: Any, ref: Keep) -> None:
        pass


class ByTime(AsTheyCome):
    """By time, equal ones by the columns of `tie` and then as they came. An event is released once the watermark is past
    its time: then no equal one can come."""

    def __init__(self, engine: Releases) -> None:
        self._engine = engine
        self._held: dict[Key, list[tuple[int, Any, int, Event]]] = {}  # time, ties, the how-manyth that was taken
        self._latest: dict[Key, int] = {}
        self._taken = 0

    def accept(self, key: Key, event: Event) -> None:
        latest = self._latest.get(key)
        if latest is not None and event.time < latest:
            self._engine.count_reordered()
        else:
            self._latest[key] = event.time
        self._taken += 1
        heappush(self._held.setdefault(key, []), (event.time, _ties(event), self._taken, event))
        self._engine.count_held(1)
        self._engine.when_complete(key, event.time)

    def release_next(self, key: Key) -> None:
        """One of the events of `key` is complete: release the first. As many calls as events, so each goes out in turn."""
        held = self._held[key]
        self._engine.count_held(-1)
        self._engine.release(key, heappop(held)[3])
        if not held:
            del self._held[key], self._latest[key]

    def holds_before(self, key: Key, time_us: int) -> bool:
        held = self._held.get(key)
        return bool(held) and held[0][0] < time_us  # type: ignore[index]

    def keys(self) -> Iterable[Key]:
        return self._held

    def state_of(self, key: Key, keep: Keep) -> Any:
        held = self._held.get(key)
        return held and (self._latest[key], [stored(h[3], keep) for h in sorted(held)])

    def wake(self, key: Key, state: Any, ref: Keep) -> None:
        self._latest[key], events = state
        held = [restored(event, ref) for event in events]
        self._held[key] = [(event.time, _ties(event), place, event) for place, event in enumerate(held)]
        self._taken = max(self._taken, len(events))


def _ties(event: Event) -> tuple[Any, ...]:
    return () if event.answers is None else event.answers.ties
