"""The rules at work on one bucket of keys: events and a watermark in, results out. No clock, no I/O, no Spark.

    event -> duplicate? -> late? -> order (AsTheyCome, ByTime, BySequence) -> release -> watch -> deliver -> result
                                      ^                                        |          |
                                      +---- deadlines, when the watermark passes them ----+

One step, numbered:
    1. the watermark moves; deadlines that it passed fire
    2. the events are taken, each judged late against that watermark
    3. what the events made due already fires
Results come out in that order. docs/rules.md is the contract that this file keeps.

The state of a key may rest elsewhere (`state_of`), so that a step costs what it touches. Whoever keeps it wakes the keys of
a step's events before the step, and those of deadlines when the engine asks for them (`waking`).

Rule 1: an id counts as seen while an event's time is at most `within_us` after the time first seen.
Rule 2: an id is forgotten when the watermark is past that; forgetting frees memory and changes no answer.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterable
from itertools import chain
from typing import Any

from waterclock.rules.deadlines import Deadline, Deadlines, Pack, Rested, Unpack, due_of
from waterclock.rules.events import EVENT, GAP, LATE, Counters, Event, Key, Outcome
from waterclock.rules.model import Rules
from waterclock.rules.ordering import AsTheyCome, BySequence, ByTime, Keep
from waterclock.rules.watching import Carried, Watch

NO_WATERMARK = -(2**61)
CLOSED = 2**61

_COMPLETE, _OVERDUE, DELIVER = "complete", "overdue", "deliver"
Waking = Callable[[Iterable[Key]], None]


def _same(ref: Any) -> Any:
    return ref


class Engine:
    """One bucket of keys. `step` does everything; `dump` and `load` carry the state from step to step elsewhere.

    `waking` is called with keys whose deadlines fire now; it is to `wake` those whose state rests.
    """

    def __init__(self, rules: Rules, unpack: Unpack = list, waking: Waking = lambda keys: None) -> None:
        self.rules = rules
        self.watermark = NO_WATERMARK
        self.counters = Counters()
        self._results: list[Outcome] = []
        self._order: Any = AsTheyCome(self)
        self._rule_of_event = "pass"
        if rules.ordering is not None and rules.sequence is not None:
            self._order, self._rule_of_event = BySequence(rules.ordering, self), "order"
        elif rules.ordering is not None or rules.expects or rules.quiets:  # the last two look at the order
            self._order, self._rule_of_event = ByTime(self), "order"
        self._watching = Watch(rules, self)
        self._unpack = unpack
        self._waking = waking
        self._deadlines = self._make_deadlines()
        self._duplicates = None if rules.within_us is None else Duplicates(rules.within_us)
        self._parked: dict[Key, list[Deadline]] = {}
        self._watches = bool(rules.delays or rules.expects or rules.quiets)

    def step(self, events: Iterable[tuple[Key | None, Event]], watermark: int) -> list[Outcome]:
        """Take `events` in the order of arrival at `watermark` (microseconds; one that goes back is clamped)."""
        self._advance(watermark)
        for key, event in events:
            if key is None:
                self.counters.heartbeats += 1
                continue
            self.counters.events += 1
            if self._duplicates is not None and self._duplicates.seen(key, event.id, event.time, self.watermark):
                self.duplicate()
            elif event.time >= self.watermark:
                self._order.accept(key, event)
            elif self._order.known(key, event):
                self.duplicate()
            else:
                self.late(key, event)
                self._order.passed(key, event)
            if self._parked:
                self._unpark(key)
        self._advance(self.watermark)
        results, self._results = self._results, []
        return results

    def next_due(self) -> int | None:
        """The earliest watermark at which a step without events would do something."""
        return self._deadlines.next_due()

    def dump(self, keep: Keep = _same, pack: Pack = list) -> Any:
        """The whole state in lists, numbers and texts, after a step: `frame` and the state of each key."""
        return {**self.frame(pack), "keys": [(key, self.state_of(key, keep)) for key in self.keys()]}

    def load(self, plain: Any, ref: Keep = _same) -> None:
        """Take what `dump` gave, or `frame`; only on a fresh engine with the same rules. `ref` undoes `keep`."""
        self.watermark = plain["watermark"]
        self.counters = Counters(**plain["counters"])
        self._deadlines = self._make_deadlines()
        self._deadlines.load(plain["deadlines"])
        for key, state in plain.get("keys", ()):
            self.wake(key, state, ref)

    def frame(self, pack: Pack = list, rested: Rested = list) -> Any:
        """What is not of one key: watermark, counters and deadlines.

        `pack` stores a chunk of deadlines that rests until its time; those of the kind DELIVER carry a `ref`. `rested`
        may store the chunks of a slot anew that rest for long. The engine's `unpack` undoes both.
        """
        return {
            "watermark": self.watermark,
            "counters": self.counters.to_dict(),
            "deadlines": self._deadlines.dump(pack, rested),
        }

    def keys(self) -> list[Key]:
        """The keys that have any state here, each once, in no promised order."""
        parts = [self._order, self._watching, *([self._duplicates] if self._duplicates else [])]
        return list(dict.fromkeys([*chain.from_iterable(part.keys() for part in parts), *self._parked]))

    def state_of(self, key: Key, keep: Keep = _same) -> Any:
        """The state of a key in plain values. `keep` gives what to store for the `ref` of an event held for its order."""
        parked = self._parked.get(key)
        return (
            self._order.state_of(key, keep),
            self._watching.state_of(key) if self._watches else None,
            self._duplicates and self._duplicates.state_of(key),
            parked and list(parked),
        )

    def wake(self, key: Key, state: Any, ref: Keep = _same) -> None:
        """Take back what `state_of` gave, before anything else happens to the key; `ref` undoes `keep`."""
        order, watching, duplicates, parked = state
        if order is not None:
            self._order.wake(key, order, ref)
        if watching is not None:
            self._watching.wake(key, watching)
        if duplicates is not None and self._duplicates is not None:
            self._duplicates.wake(key, duplicates)
        if parked:
            self._parked[key] = [(due, kind, of, a, b) for due, kind, of, a, b in parked]

    def wake_by(self, key: Key) -> int | None:
        """The watermark at which the state of `key` gets smaller by itself: a state that rests is to be woken then."""
        return self._duplicates.gone_by(key) if self._duplicates else None

    def close(self) -> None:
        """Take the engine and its parts, which hold each other, apart; it cannot be used afterwards."""
        self.__dict__.clear()

    # what the parts ask of the engine ------------------------------------------------------------------------

    def release(self, key: Key, event: Event) -> None:
        self.counters.released += 1
        if self._watches:
            self._watching.see(key, event)
        if not self.rules.events:
            return
        if event.deliver is None:
            self._results.append(Outcome(EVENT, key, self._rule_of_event, event.time, event.id, event.ref))
        else:
            self.counters.held += 1
            self._deadlines.add((event.deliver, DELIVER, key, event.id, event.ref))

    def late(self, key: Key, event: Event) -> None:
        self.counters.late += 1
        self._results.append(Outcome(LATE, key, LATE, event.time, event.id, event.ref))

    def gap(self, key: Key, rule: str, due: int, source_id: str, event: Event | None) -> None:
        self._results.append(Outcome(GAP, key, rule, due, source_id, event and event.ref))

    def found(self, kind: str, key: Key, rule: str, due: int, source_id: str, carried: Carried) -> None:
        self._results.append(Outcome(kind, key, rule, due, source_id, None, carried))

    def when_due(self, kind: str, key: Key, due: int, a: Any, b: Any) -> None:
        self._deadlines.add((due, kind, key, a, b))

    def when_complete(self, key: Key, time_us: int) -> None:
        self._deadlines.add((time_us + 1, _COMPLETE, key, None, None))

    def when_overdue(self, key: Key, due: int) -> None:
        self._deadlines.add((due, _OVERDUE, key, None, None))

    def duplicate(self) -> None:
        self.counters.duplicates += 1

    def count_held(self, change: int) -> None:
        self.counters.held += change

    def count_pending(self, change: int) -> None:
        self.counters.pending += change

    def count_reordered(self) -> None:
        self.counters.reordered += 1

    # one step ------------------------------------------------------------------------------------------------

    def _advance(self, watermark: int) -> None:
        self.watermark = max(self.watermark, watermark)
        self._deadlines.advance(self.watermark)
        if self._duplicates is not None:
            self._duplicates.forget(self.watermark)

    def _fire(self, deadline: Deadline) -> None:
        due, kind, key, a, b = deadline
        if kind == _COMPLETE:
            self._order.release_next(key)
        elif kind == _OVERDUE:
            self._order.overdue(key, due)
        elif kind == DELIVER:
            self.counters.held -= 1
            self._results.append(Outcome(EVENT, key, "deliver_at", due, a, b))
        elif self._order.holds_before(key, due):
            insort(self._parked.setdefault(key, []), deadline, key=due_of)
        else:
            self._watching.fire(kind, key, due, a, b)
        if self._parked:
            self._unpark(key)

    def _unpark(self, key: Key) -> None:
        """The deadlines of `key` that waited for events held behind a gap, and need wait no longer, fire by due time with
        what these events have made."""
        parked = self._parked.get(key)
        while parked and not self._order.holds_before(key, parked[0][0]):
            self._deadlines.give_back(parked.pop(0))
        if parked is not None and not parked:
            del self._parked[key]

    def _wake_of(self, due: list[Deadline]) -> None:
        """Deliveries change nothing of their key: it may rest on."""
        keys = dict.fromkeys(deadline[2] for deadline in due if deadline[1] != DELIVER)
        if keys:
            self._waking(keys)

    def _make_deadlines(self) -> Deadlines:
        return Deadlines(self._fire, self.watermark, self._unpack, (_COMPLETE, _OVERDUE), self._wake_of)


# Duplicates ----------------------------------------------------------------------------------------------------


_GENERATIONS = 8  # an id is kept for an eighth of its horizon longer at most, while its key is awake


class Duplicates:
    """The ids of one bucket, in generations by time, so that forgetting costs what is forgotten."""

    def __init__(self, within_us: int) -> None:
        self._within_us = within_us
        self._width_us = max(1, within_us // _GENERATIONS)
        self._seen: dict[Key, dict[str, int]] = {}
        self._keys_of: dict[int, set[Key]] = {}
        self._forget_at: int | None = None

    def seen(self, key: Key, event_id: str, time_us: int, watermark: int) -> bool:
        """True for a duplicate; otherwise the id is remembered. One that is past its horizon at `watermark` counts as
        forgotten, whether its generation has gone or not."""
        ids = self._seen.get(key)
        if ids is None:
            ids = self._seen[key] = {}
        first = ids.get(event_id)
        if first is not None and max(time_us, watermark) <= first + self._within_us:
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
