"""What released events set going: delays, expectations, silences. Each becomes a deadline of its key.

Rule 1: events come here in the order of release, so "later" means released later.
Rule 2: a deadline is never taken back; when it fires, it looks whether it still means something.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

from waterclock.rules.events import EMIT, EXPIRED, MET, QUIET, Event, Key
from waterclock.rules.model import Delay, Expect, Rules, types_of

Carried = tuple[Any, ...] | None  # the values of the columns that a rule carries, None if it carries none
Where = int | None  # the number of a condition among those that the rules ask; None holds always


class Arms(Protocol):
    """What the watch asks of the engine."""

    def when_due(self, kind: str, key: Key, due: int, a: Any, b: Any) -> None: ...
    def found(self, kind: str, key: Key, rule: str, due: int, source_id: str, carried: Carried) -> None: ...
    def count_pending(self, change: int) -> None: ...


Item = tuple[int, int, str, Carried]  # what is due, the number of its rule, the source's id


@dataclass(slots=True)
class TypePlan:
    """What an event of one type does, each with the condition that must hold: delays, and expectations by number."""

    delays: list[tuple[Delay, Where]] = field(default_factory=list)
    meets: dict[int, Where] = field(default_factory=dict)
    withdraws: dict[int, Where] = field(default_factory=dict)
    opens: list[tuple[int, Where]] = field(default_factory=list)


class Watch:
    """The delays, open expectations and silences of one bucket."""

    def __init__(self, rules: Rules, engine: Arms) -> None:
        self._rules = rules
        self._engine = engine
        self._plans = _plans(rules)
        self._dues = [_due_of(rule, rules.questions().dues) for rule in rules.expects]
        self._heard = [_where(rules, rule.where) for rule in rules.quiets]
        self._carried = {name: _pick(rules, columns) for name, columns in rules.carries().items()}
        self._open: dict[Key, list[Item]] = {}  # expectations, in order of opening
        self._last: dict[Key, list[tuple[int, str, Carried] | None]] = {}  # per quiet rule, of the last event: time, id
        self._owed: dict[Key, list[Item]] = {}  # silences that did happen

    def see(self, key: Key, event: Event) -> None:
        plan = self._plans.get(event.type)
        if plan is not None:
            self._close(plan, key, event)
            self._start(plan, key, event)
        if self._rules.quiets:
            self._break_silence(key, event)

    def fire(self, kind: str, key: Key, due: int, a: Any, b: Any) -> None:
        """A deadline of `key` that `when_due` armed has come."""
        if kind == EMIT:
            source, carried = (b, None) if isinstance(b, str) else b
            self._engine.found(EMIT, key, a, due, source, carried and tuple(carried))
            self._engine.count_pending(-1)
        elif kind == EXPIRED:
            expect, waiting = self._rules.expects[a], self._open.get(key, [])
            item = _taken(waiting, due, a, b, bool(expect.carry))
            if item is not None:
                self._engine.count_pending(-1)
                self._keep(key, waiting)
                self._engine.found(EXPIRED, key, expect.otherwise, due, b, item[3])
        else:
            self._fall_silent(key, due, a, b)

    def keys(self) -> Iterable[Key]:
        return dict.fromkeys((*self._open, *self._last, *self._owed))

    def state_of(self, key: Key) -> Any:
        """What is open, last and owed of `key` in plain values; None if nothing is."""
        opened, last, owed = self._open.get(key), self._last.get(key), self._owed.get(key)
        parts = opened or (), last or (), owed or ()
        return tuple([*map(_stored, part)] for part in parts) if any(parts) else None

    def wake(self, key: Key, state: Any) -> None:
        """Take back what `state_of` gave."""
        opened, last, owed = state
        if opened:
            self._open[key] = [_restored(item, 3) for item in opened]
        if last:
            self._last[key] = [item and _restored(item, 2) for item in last]
        if owed:
            self._owed[key] = [_restored(item, 3) for item in owed]

    # events --------------------------------------------------------------------------------------------------

    def _close(self, plan: TypePlan, key: Key, event: Event) -> None:
        waiting = self._open.get(key)
        if not waiting or not (plan.meets or plan.withdraws):
            return
        still = [item for item in waiting if not self._is_closed(plan, key, event, item)]
        self._engine.count_pending(len(still) - len(waiting))
        self._keep(key, still)

    def _is_closed(self, plan: TypePlan, key: Key, event: Event, item: Item) -> bool:
        """True if the event meets what is open, which becomes a result, or withdraws it."""
        due, rule, source, carried = item
        if event.time >= due:
            return False
        if rule in plan.meets and _holds(plan.meets[rule], event):
            self._engine.found(MET, key, self._rules.expects[rule].otherwise, due, source, carried)
            return True
        return rule in plan.withdraws and _holds(plan.withdraws[rule], event)

    def _start(self, plan: TypePlan, key: Key, event: Event) -> None:
        for delay, where in plan.delays:
            if not _holds(where, event):
                continue
            carried = self._carried[delay.emit](event)
            source = event.id if carried is None else (event.id, carried)
            self._engine.when_due(EMIT, key, event.time + delay.by_us, delay.emit, source)
            self._engine.count_pending(1)
        for rule, where in plan.opens:
            due = self._dues[rule](event) if _holds(where, event) else None
            if due is None:
                continue
            carried = self._carried[self._rules.expects[rule].otherwise](event)
            self._open.setdefault(key, []).append((due, rule, event.id, carried))
            self._engine.when_due(EXPIRED, key, due, rule, event.id)
            self._engine.count_pending(1)

    def _break_silence(self, key: Key, event: Event) -> None:
        heard = [_holds(where, event) for where in self._heard]
        if not any(heard):
            return
        last = self._last.setdefault(key, [None] * len(heard))
        for rule, quiet in enumerate(self._rules.quiets):
            if not heard[rule]:
                continue
            was = last[rule]
            if was is not None and event.time >= was[0] + quiet.after_us:
                self._owed.setdefault(key, []).append((was[0] + quiet.after_us, rule, *was[1:]))
            if was is None or event.time >= was[0]:
                last[rule] = (event.time, event.id, self._carried[quiet.emit](event))
                self._engine.when_due(QUIET, key, event.time + quiet.after_us, rule, event.id)

    # deadlines -----------------------------------------------------------------------------------------------

    def _keep(self, key: Key, waiting: list[Item]) -> None:
        if waiting:
            self._open[key] = waiting
        else:
            del self._open[key]

    def _fall_silent(self, key: Key, due: int, rule: int, source: str) -> None:
        quiet, last = self._rules.quiets[rule], self._last.get(key)
        item = _taken(self._owed.get(key, []), due, rule, source, bool(quiet.carry))
        now = None if last is None else last[rule]
        if item is not None:
            carried = item[3]
        elif last is not None and now is not None and now[:2] == (due - quiet.after_us, source):
            last[rule], carried = None, now[2]
        else:
            return
        self._engine.found(QUIET, key, quiet.emit, due, source, carried)
        if not self._owed.get(key, True):
            del self._owed[key]
        if key in self._last and not any(self._last[key]):
            del self._last[key]


def _plans(rules: Rules) -> dict[str | None, TypePlan]:
    plans: dict[str | None, TypePlan] = {}

    def plan(name: str) -> TypePlan:
        return plans.setdefault(name, TypePlan())

    for delay in rules.delays:
        for name in types_of(delay.after):
            plan(name).delays.append((delay, _where(rules, delay.where)))
    for number, expect in enumerate(rules.expects):
        for name in types_of(expect.after):
            plan(name).opens.append((number, _where(rules, expect.where)))
        for name in types_of(expect.type):
            plan(name).meets[number] = _where(rules, expect.met_where)
        for name in expect.cancel_by:
            plan(name).withdraws[number] = _where(rules, expect.cancel_where)
    return plans


def _where(rules: Rules, text: str | None) -> Where:
    return None if text is None else rules.questions().conditions.index(text)


def _holds(where: Where, event: Event) -> bool:
    return where is None or event.answers.holds[where]  # type: ignore[union-attr]


def _due_of(rule: Expect, columns: tuple[str, ...]) -> Callable[[Event], int | None]:
    """What tells the deadline of an expectation that an event opens; None if none was promised."""
    within_us = rule.within_us
    if within_us is not None:
        return lambda event: event.time + within_us
    assert rule.by is not None
    place = columns.index(rule.by)
    return lambda event: event.answers.dues[place]  # type: ignore[union-attr]


def _pick(rules: Rules, columns: tuple[str, ...]) -> Callable[[Event], Carried]:
    """What takes the values of `columns` from an event's answers."""
    if not columns:
        return lambda event: None
    places = [rules.questions().carried.index(name) for name in columns]
    return lambda event: tuple([event.answers.carried[place] for place in places])  # type: ignore[union-attr]


def _taken(items: list[Item], due: int, rule: int, source: str, carries: bool) -> Item | None:
    """The first item with these words, which is no longer among `items`; None if there is none."""
    found: Iterable[int]
    if carries:  # what is carried may be anything, NaN too, which is not equal to itself
        found = (place for place, item in enumerate(items) if item[:3] == (due, rule, source))
    else:
        item = (due, rule, source, None)
        found = (items.index(item),) if item in items else ()
    place = next(iter(found), None)
    return None if place is None else items.pop(place)


def _stored(item: Any) -> Any:
    """An item in plain values; one that carries nothing is as it was before items could."""
    return item[:-1] if item and item[-1] is None else item


def _restored(plain: Any, size: int) -> Any:
    """The item of which `_stored` left `size` values, or one more."""
    return (*plain[:size], tuple(plain[size]) if len(plain) > size else None)
