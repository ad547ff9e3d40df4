"""The contract of docs/rules.md as slow, plain code: lists and sorting, one event after the other.

Rule 1: nothing is shared with waterclock.rules: no wheel, no heap, no bookkeeping that saves work.
Rule 2: times, durations and the watermark are integer microseconds; "everything has arrived" is FOREVER.
Rule 3: where the contract leaves a choice, it is made in one place, with a comment that says `choice`.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

FOREVER = 10**30
NEVER = -FOREVER  # the watermark before anything was seen


class Row(NamedTuple):
    """One event; a row whose key is None is a heartbeat."""

    key: str | None
    time: int
    id: str = ""
    number: int | None = None
    type: str = ""
    deliver: int | None = None
    promised: int | None = None
    amount: int | None = None


class Out(NamedTuple):
    """One result: the fields that no cut into batches may change."""

    kind: str
    key: str
    rule: str
    due: int
    source_id: str
    carried: tuple[tuple[str, int | None], ...] = ()  # (column, value) of the event that opened it


@dataclass(frozen=True)
class Expectation:
    type: str | tuple[str, ...]
    after: str | tuple[str, ...]
    within: int | None  # None: the deadline is the event's `promised`
    otherwise: str
    cancel_by: tuple[str, ...] = ()
    where: str | None = None
    met_where: str | None = None
    cancel_where: str | None = None
    carry: tuple[str, ...] = ()


# what a condition says of a row: True only where it is true
CONDITIONS: dict[str | None, Callable[[Row], bool]] = {
    None: lambda row: True,
    "amount > 2": lambda row: row.amount is not None and row.amount > 2,
    "not amount > 2": lambda row: row.amount is not None and row.amount <= 2,
    "amount is None or type == 'ask'": lambda row: row.amount is None or row.type == "ask",
}


def is_of(row: Row, types: str | tuple[str, ...]) -> bool:
    return row.type in ([types] if isinstance(types, str) else types)


def carried(row: Row, columns: tuple[str, ...]) -> tuple[tuple[str, int | None], ...]:
    return tuple((name, getattr(row, name)) for name in columns)


@dataclass(frozen=True)
class Spec:
    """The rules under test. `wait` is None without an `order` rule, `within` without a `deduplicate`."""

    within: int | None = None
    wait: int | None = None
    tie: tuple[str, ...] = ()
    on_gap: str = "skip"
    sequence: bool = False
    deliver: bool = False
    events: bool = True  # whether released events are results
    # (after, by, emit, where, carry)
    delays: tuple[tuple[str | tuple[str, ...], int, str, str | None, tuple[str, ...]], ...] = ()
    expects: tuple[Expectation, ...] = ()
    quiets: tuple[tuple[int, str, str | None, tuple[str, ...]], ...] = ()  # (after, emit, where, carry)


@dataclass
class Deadline:
    due: int
    made: int  # it is the how-manyth deadline
    out: Out  # what fires
    expects: Expectation | None = None  # what may still be met
    last: int = 0  # quiet: the time of the last event
    delivers: bool = False  # deliver_at: waits for no other event


@dataclass
class Key:
    seen: dict[str, int] = field(default_factory=dict)  # id -> the time first seen
    next: int = 1
    held: dict[int, Row] = field(default_factory=dict)  # number -> the event held behind a gap
    out: set[int] = field(default_factory=set)  # numbers that went out: released, dead letters, late on arrival
    listed: list[tuple[int, int]] = field(default_factory=list)  # `hold`: the missing runs that have their result
    waiting: list[Row] = field(default_factory=list)  # without a sequence: until complete, as they came
    deadlines: list[Deadline] = field(default_factory=list)
    quiet: dict[str, Deadline] = field(default_factory=dict)  # emit -> the one that can still move on


class Oracle:
    """`arrive` with each row, `advance` the watermark, `close` once; `out` is all that came of it."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.watermark = NEVER
        self.keys: dict[str, Key] = defaultdict(Key)
        self.out: list[Out] = []
        self.made = 0
        self.counted: Counter[str] = Counter()  # what was done so far; what is held now is asked of the keys
        self.by_sequence = spec.sequence and spec.wait is not None
        # `expect` and `quiet` imply order() by time
        self.by_time = not self.by_sequence and bool(spec.wait is not None or spec.expects or spec.quiets)

    def run(self, rows: Iterable[Row], watermark_delay: int) -> list[Out]:
        for row in rows:
            self.arrive(row)
            self.advance(row.time - watermark_delay)
        self.advance(FOREVER)
        return self.out

    def counters(self) -> dict[str, int]:
        """What the counters must say now."""
        keys = self.keys.values()
        deadlines = [deadline for key in keys for deadline in key.deadlines]
        waiting = sum(len(key.held) + len(key.waiting) for key in keys)
        names = ("events", "heartbeats", "duplicates", "late", "reordered", "released")
        return {name: self.counted[name] for name in names} | {
            "held": waiting + sum(d.delivers for d in deadlines),
            "pending": sum(d.out.kind in ("emit", "expired") for d in deadlines),
        }

    # ---- an event arrives

    def arrive(self, row: Row) -> None:
        if row.key is None:
            self.counted["heartbeats"] += 1
            return
        self.counted["events"] += 1
        key = self.keys[row.key]
        if self.spec.within is not None and self.is_seen(key, row):  # this check comes first of all
            self.counted["duplicates"] += 1
            return
        if self.by_sequence:
            self.arrive_numbered(key, row)
        elif row.time < self.watermark:
            self.late(row)
        elif self.by_time:
            self.counted["reordered"] += any(row.time < earlier.time for earlier in key.waiting)
            key.waiting.append(row)
        else:
            self.release(key, row)

    def is_seen(self, key: Key, row: Row) -> bool:
        within = self.spec.within
        key.seen = {i: first for i, first in key.seen.items() if not self.watermark > first + within}
        if row.id in key.seen and row.time <= key.seen[row.id] + within:
            return True
        key.seen[row.id] = row.time  # choice: an event that goes out as `late` was seen, too
        return False

    def arrive_numbered(self, key: Key, row: Row) -> None:
        number = row.number
        if number in key.held or number in key.out:  # a duplicate. choice: also of a dead letter, of a late one
            self.counted["duplicates"] += 1
            return
        while number >= key.next and row.time >= self.watermark:
            # choice: `hold` gives up no number, so it tells of all the gaps that the event comes too late for
            behind = [self.patience(e) for n, e in key.held.items() if n > number and self.gaps_in_front_of(key, n)]
            if not behind or row.time < min(behind):
                break
            # at or past the deadline of an event held behind it: given up one by one, as far as it takes
            self.give_up(row.key, *self.overdue(key, min(behind)))
        if number < key.next:  # given up
            self.late(row)
        elif row.time < self.watermark:  # its number counts as passed
            self.late(row)
            key.out.add(number)
        else:
            key.held[number] = row
            self.counted["reordered"] += number > key.next
        self.release_in_sequence(key)

    def late(self, row: Row) -> None:
        self.counted["late"] += 1
        self.out.append(Out("late", row.key, "late", row.time, row.id))

    # ---- the sequence and its gaps

    def patience(self, row: Row) -> int:
        return row.time + self.spec.wait

    def release_in_sequence(self, key: Key) -> None:
        while key.next in key.held or key.next in key.out:
            if key.next in key.held:
                self.release_held(key, key.next)
            key.next += 1

    def release_held(self, key: Key, number: int) -> None:
        key.out.add(number)
        self.release(key, key.held.pop(number))

    def gaps_in_front_of(self, key: Key, number: int) -> list[tuple[int, int]]:
        """The runs of missing numbers (first, last); with `hold`, those that have no result yet."""
        there = [key.next - 1, *sorted(n for n in key.held.keys() | key.out if key.next <= n <= number)]
        runs = [(a + 1, b - 1) for a, b in pairwise(there) if b - a > 1]
        return [(a, b) for a, b in runs if not any(first <= a <= last for first, last in key.listed)]

    def overdue(self, key: Key, until: int) -> tuple[int, int] | None:
        """(deadline, number) of the first held event that is overdue at `until` and has a gap in front."""
        found = [(self.patience(e), n) for n, e in key.held.items() if self.gaps_in_front_of(key, n)]
        return min((pair for pair in found if pair[0] <= until), default=None)

    def give_up_until(self, name: str, until: int) -> None:
        while found := self.overdue(self.keys[name], until):
            self.give_up(name, *found)

    def give_up(self, name: str, due: int, overdue: int) -> None:
        """Every gap in front of the held event `overdue` is given up: `due` is passed."""
        key, rule = self.keys[name], self.spec.on_gap
        runs = self.gaps_in_front_of(key, overdue)
        if rule != "dead_letter":
            missing = [str(a) if a == b else f"{a}-{b}" for a, b in runs]
            self.out += [Out("gap", name, rule, due, numbers) for numbers in missing]
        if rule == "hold":  # choice: like `skip` a result a run, each missing number in one; the key stays blocked
            key.listed += runs
            return
        for number in sorted(n for n in key.held if n <= overdue):
            if rule == "skip":
                self.release_held(key, number)
            else:
                key.out.add(number)
                self.out.append(Out("gap", name, rule, due, key.held.pop(number).id))
        key.next = overdue + 1
        self.release_in_sequence(key)

    # ---- a released event meets the rules

    def release(self, key: Key, row: Row) -> None:
        self.counted["released"] += 1
        self.deliver(key, row)
        self.expect(key, row)
        for after, by, emit, where, carry in self.spec.delays:
            if is_of(row, after) and CONDITIONS[where](row):
                self.make(key, row.time + by, Out("emit", row.key, emit, row.time + by, row.id, carried(row, carry)))
        for after, emit, where, carry in self.spec.quiets:
            if CONDITIONS[where](row):
                self.hear(key, row, after, emit, carry)

    def make(self, key: Key, due: int, out: Out) -> Deadline:
        self.made += 1
        key.deadlines.append(Deadline(due, self.made, out))
        return key.deadlines[-1]

    def deliver(self, key: Key, row: Row) -> None:
        if not self.spec.events:
            return
        if not self.spec.deliver or row.deliver is None:
            rule = "order" if self.by_sequence or self.by_time else "pass"
            self.out.append(Out("event", row.key, rule, row.time, row.id))
            return
        out = Out("event", row.key, "deliver_at", row.deliver, row.id)
        self.make(key, row.deliver, out).delivers = True

    def expect(self, key: Key, row: Row) -> None:
        for deadline in list(key.deadlines):
            wanted = deadline.expects
            if wanted is None or row.time >= deadline.due:
                continue
            if is_of(row, wanted.type) and CONDITIONS[wanted.met_where](row):
                self.out.append(deadline.out._replace(kind="met"))
                key.deadlines.remove(deadline)
            elif row.type in wanted.cancel_by and CONDITIONS[wanted.cancel_where](row):
                key.deadlines.remove(deadline)
        for wanted in self.spec.expects:  # only now: an event does not meet what it opens itself
            due = row.promised if wanted.within is None else row.time + wanted.within
            if is_of(row, wanted.after) and due is not None and CONDITIONS[wanted.where](row):
                out = Out("expired", row.key, wanted.otherwise, due, row.id, carried(row, wanted.carry))
                self.make(key, due, out).expects = wanted

    def hear(self, key: Key, row: Row, after: int, emit: str, carry: tuple[str, ...]) -> None:
        """choice: once an event at or past its due has been released, a quiet cannot move on any more."""
        now = key.quiet.get(emit)
        if now is not None and row.time < now.last:  # out of time order in its sequence: not the last event
            return
        if now is not None and row.time < now.due:
            key.deadlines.remove(now)
        due = row.time + after
        key.quiet[emit] = self.make(key, due, Out("quiet", row.key, emit, due, row.id, carried(row, carry)))
        key.quiet[emit].last = row.time

    # ---- the watermark moves

    def advance(self, watermark: int) -> None:
        self.watermark = max(self.watermark, watermark)
        for name, key in self.keys.items():
            while self.fire_first(name, key):
                pass

    def fire_first(self, name: str, key: Key) -> bool:
        """Do what is due first for this key; False when there is nothing to do."""
        due = [
            (deadline.due, 1, deadline.made, deadline)
            for deadline in key.deadlines
            if deadline.due <= self.watermark and (deadline.delivers or not self.holds_before(key, deadline.due))
        ]
        if gap := self.overdue(key, self.watermark):
            due.append((gap[0], 0, gap[1], None))  # a deadline comes after what is released by then
        ties = [[(getattr(row, name) is not None, getattr(row, name)) for name in self.spec.tie] for row in key.waiting]
        in_turn = sorted(range(len(key.waiting)), key=lambda place: (key.waiting[place].time, ties[place], place))
        waiting = [(turn, key.waiting[place]) for turn, place in enumerate(in_turn)]
        due += [(row.time, 2, turn, row) for turn, row in waiting if row.time < self.watermark]
        if not due:
            return False
        _, _, _, what = min(due, key=lambda found: found[:3])
        if isinstance(what, Deadline):
            key.deadlines.remove(what)
            self.out.append(what.out)
        elif isinstance(what, Row):
            key.waiting.remove(what)
            self.release(key, what)
        else:
            self.give_up_until(name, gap[0])  # what ends at one instant goes together
        return True

    def holds_before(self, key: Key, due: int) -> bool:
        """choice: also at the close; a key that `hold` blocks then stays blocked, deadlines and all."""
        return any(row.time < due for row in key.held.values())
