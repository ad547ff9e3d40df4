"""Orders: which event of a key is released when. One class for each way, the same four methods.

    accept(key, event)       take an event that is neither duplicate nor late; may release it and others
    known(key, event)        True if its sequence number was released before, or is held
    passed(key, event)       a late event: its number counts as passed, nothing waits for it
    holds_before(key, t)     True while an event of the key with time < t is held

And three by which the state of each key goes to rest, and is woken:

    keys()                   the keys that have any state
    state_of(key, keep)      it in plain values, None if there is none; `keep` gives what to store for an event's `ref`
    wake(key, state, ref)    takes it back; `ref` undoes `keep`

Order by sequence is 1, 2, 3, ... for each key, with a gap if a number is missing:

    number        next expected                    below it                     above it
    event comes   released, and the run behind it  duplicate, or late if the    held behind the gap
                                                   number was given up

A gap ends when it is filled, or when the patience of an event held behind it runs out (its time + wait); docs/rules.md
says what happens then. Patience is event time: an event whose own time is at or past such a deadline cannot fill the gap.
That makes the answer the same however the input was cut into batches.

Rule 1: events of a key are released in order, each once, through `release(key, event)`.
Rule 2: an order holds events, and holds no opinion about what they mean.
Rule 3: a number is released, given up, or a late event's: then it is passed, and the next expected one is above it.
Rule 4: a gap may be a billion numbers wide; only held events are walked, never numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any, Protocol

from waterclock.rules.events import Event, Key, answers_of
from waterclock.rules.model import OnGap, Order

Keep = Callable[[Any], Any]


def stored(event: Event, keep: Keep) -> tuple[Any, ...]:
    """An event as plain values, its `ref` as `keep` gives it."""
    plain = (*event[:5], keep(event.ref))
    return plain if event.answers is None else (*plain, event.answers)


def restored(plain: Any, ref: Keep) -> Event:
    """The event that `stored` made plain; `ref` undoes `keep`."""
    time, source, sequence, kind, deliver, kept, *more = plain
    return Event(time, source, sequence, kind, deliver, ref(kept), answers_of(more[0] if more else None))


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


# By sequence ---------------------------------------------------------------------------------------------------


Run = tuple[int, int]  # missing numbers, first and last


class GapWatch(Releases, Protocol):
    """What order by sequence asks of the engine, beside releasing."""

    def late(self, key: Key, event: Event) -> None: ...
    def duplicate(self) -> None: ...
    def when_overdue(self, key: Key, due: int) -> None: ...
    def gap(self, key: Key, rule: str, due: int, source_id: str, event: Event | None) -> None: ...


@dataclass(slots=True)
class Gap:
    """What is held behind a key's missing numbers: number -> event, None if a late event passed its number."""

    held: dict[int, Event | None] = field(default_factory=dict)
    alarm: int | None = None
    reported: list[Run] = field(default_factory=list)

    def events(self) -> Iterator[tuple[int, Event]]:
        return ((number, event) for number, event in self.held.items() if event is not None)

    def dump(self, keep: Keep) -> Any:
        return self.alarm, list(self.reported), [(n, e and stored(e, keep)) for n, e in self.held.items()]

    @classmethod
    def load(cls, plain: Any, ref: Keep) -> Gap:
        alarm, reported, held = plain
        events = {number: restored(event, ref) if event else None for number, event in held}
        return cls(events, alarm, [(first, last) for first, last in reported])


class BySequence:
    """Releases by sequence number; see the table at the top."""

    def __init__(self, rule: Order, engine: GapWatch) -> None:
        self._wait_us = rule.wait_us
        self._engine = engine
        self._next: dict[Key, int] = {}
        self._gaps: dict[Key, Gap] = {}
        self._given_up: dict[Key, list[Run]] = {}
        ways: dict[OnGap, Callable[[Key, Gap, int, int], None]]
        ways = {"skip": self._skip, "hold": self._report, "dead_letter": self._dead_letter}
        self._give_up = ways[rule.on_gap]

    def accept(self, key: Key, event: Event) -> None:
        number = event.sequence
        assert number is not None
        due = self._next.get(key, 1)
        if number == due and key not in self._gaps:
            self._next[key] = number + 1
            self._engine.release(key, event)
        elif number < due:
            self._below(key, event)
        else:
            gap = self._gaps.setdefault(key, Gap())
            if number in gap.held:
                self._engine.duplicate()
            elif gap.alarm is not None and event.time >= gap.alarm and self._impatient(key, gap, number, event.time):
                self._below(key, event)
            else:
                gap.held[number] = event
                self._engine.count_held(1)
                self._drain(key, gap) if number == self._next.get(key, 1) else self._hold(key, gap, event)

    def known(self, key: Key, event: Event) -> bool:
        number = event.sequence
        assert number is not None
        if number < self._next.get(key, 1):
            return not self._was_given_up(key, number)
        gap = self._gaps.get(key)
        return gap is not None and number in gap.held

    def passed(self, key: Key, event: Event) -> None:
        number = event.sequence
        assert number is not None
        if number < self._next.get(key, 1):
            return
        gap = self._gaps.setdefault(key, Gap())
        gap.held[number] = None
        self._drain(key, gap)

    def holds_before(self, key: Key, time_us: int) -> bool:
        gap = self._gaps.get(key)
        return gap is not None and any(event.time < time_us for _, event in gap.events())

    def overdue(self, key: Key, due: int) -> None:
        """The alarm for the gaps of `key` rang at `due`: give up what nobody may wait for any longer."""
        gap = self._gaps.get(key)
        if gap is None or gap.alarm != due:
            return
        self._run_out(key, gap, due, None)
        dues = [event.time + self._wait_us for _, event in gap.events()]
        gap.alarm = min((later for later in dues if later > due), default=None)
        if gap.alarm is not None and key in self._gaps:
            self._engine.when_overdue(key, gap.alarm)

    def keys(self) -> Iterable[Key]:
        return dict.fromkeys((*self._next, *self._gaps)) if self._gaps else self._next

    def state_of(self, key: Key, keep: Keep) -> Any:
        following, gap, runs = self._next.get(key), self._gaps.get(key), self._given_up.get(key)
        if gap is None and runs is None:
            return following
        return following, gap and gap.dump(keep), list(runs or ())

    def wake(self, key: Key, state: Any, ref: Keep) -> None:
        following, gap, runs = (state, None, ()) if isinstance(state, int) else state
        if following is not None:
            self._next[key] = following
        if gap:
            self._gaps[key] = Gap.load(gap, ref)
        if runs:
            self._given_up[key] = [(first, last) for first, last in runs]

    # arriving ------------------------------------------------------------------------------------------------

    def _below(self, key: Key, event: Event) -> None:
        if self._was_given_up(key, event.sequence):
            self._engine.late(key, event)
        else:
            self._engine.duplicate()

    def _hold(self, key: Key, gap: Gap, event: Event) -> None:
        self._engine.count_reordered()
        due = event.time + self._wait_us
        if gap.alarm is None or due < gap.alarm:
            gap.alarm = due
            self._engine.when_overdue(key, due)

    def _impatient(self, key: Key, gap: Gap, number: int, time_us: int) -> bool:
        """True when an event at `number` comes too late, in event time, for one held behind it: that gap is given up."""
        behind = (n for n, event in gap.events() if n > number and event.time + self._wait_us <= time_us)
        if next(behind, None) is not None:
            self._run_out(key, gap, time_us, number)
        return self._next.get(key, 1) > number

    def _drain(self, key: Key, gap: Gap) -> None:
        """Release the run that starts at the next expected number."""
        number = self._next.get(key, 1)
        while number in gap.held:
            event = gap.held.pop(number)
            number += 1
            self._next[key] = number
            if event is not None:
                self._engine.count_held(-1)
                self._engine.release(key, event)
        if not gap.held:
            self._gaps.pop(key, None)

    # giving up -----------------------------------------------------------------------------------------------

    def _run_out(self, key: Key, gap: Gap, time_us: int, until: int | None) -> None:
        """Give up what is in front of every event whose patience ended by `time_us`, in the order of those ends.

        With `until`, only as much as it takes to pass that number: of what comes after it, the watermark decides.
        """
        ends = sorted((event.time + self._wait_us, number) for number, event in gap.events())
        for due, number in ends:
            if due > time_us or (until is not None and self._next.get(key, 1) > until):
                return
            if number in gap.held:
                self._give_up(key, gap, number, due)

    def _skip(self, key: Key, gap: Gap, number: int, due: int) -> None:
        for first, last in self._missing(key, gap, number):
            self._engine.gap(key, "skip", due, _name(first, last), None)
            self._given_up.setdefault(key, []).append((first, last))
        for held in sorted(n for n in gap.held if n <= number):
            if held in gap.held:  # else it went out with the run of the one before
                self._next[key] = held
                self._drain(key, gap)

    def _dead_letter(self, key: Key, gap: Gap, number: int, due: int) -> None:
        self._given_up.setdefault(key, []).extend(self._missing(key, gap, number))
        for held in sorted(n for n in gap.held if n <= number):
            event = gap.held.pop(held)
            if event is not None:
                self._engine.count_held(-1)
                self._engine.gap(key, "dead_letter", due, event.id, event)
        self._next[key] = number + 1
        self._drain(key, gap)

    def _report(self, key: Key, gap: Gap, number: int, due: int) -> None:
        for first, last in self._missing(key, gap, number):
            if not any(a <= first and last <= b for a, b in gap.reported):
                gap.reported.append((first, last))
                self._engine.gap(key, "hold", due, _name(first, last), None)

    def _missing(self, key: Key, gap: Gap, number: int) -> list[Run]:
        """The runs of missing numbers in front of the held `number`."""
        runs, expected = [], self._next.get(key, 1)
        for held in sorted(n for n in gap.held if n <= number):
            if held > expected:
                runs.append((expected, held - 1))
            expected = held + 1
        return runs

    def _was_given_up(self, key: Key, number: int | None) -> bool:
        return any(first <= number <= last for first, last in self._given_up.get(key, ()))  # type: ignore[operator]


def _name(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"


def awaited(packed: Any, order: Order | None) -> tuple[int | None, int | None]:
    """Of a key that holds events, from what `state_of` gave, read piece by piece by `packed`, a msgpack.Unpacker: the
    number that is missing, and at which time the first event is let go. `order`: that by sequence; None by time."""
    packed.read_array_header()
    begin = packed.unpack()
    packed.read_array_header()
    first = packed.unpack()  # the earliest event, or the gap's alarm
    if order is None:
        return None, first[0]
    return begin or 1, None if order.on_gap == "hold" else first
