"""Rules as data: frozen records, checked when they are made, with what is wrong and where.

Rule 1: nothing here computes; `engine.py` gives the rules their meaning, docs/rules.md says it in words.
Rule 2: every builder returns a new `Rules`; a `Rules` in hand never changes.
Rule 3: durations are microseconds from here on inwards.
Rule 4: a checkpoint keeps the repr of its rules, and goes on if it is the same: words that came later are left out of
        it while they have their defaults (`_later`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Literal, get_args

from waterclock.durations import Duration, duration_us
from waterclock.rules.conditions import condition
from waterclock.rules.events import Questions, Result

if TYPE_CHECKING:
    from collections.abc import Callable

OnGap = Literal["skip", "hold", "dead_letter"]
Types = str | tuple[str, ...]  # one type as a text, several as a tuple


def _later(default: Any) -> Any:
    """A word that rules of earlier versions do not have (rule 4)."""
    return field(default=default, metadata={"later": True})


def _repr_without_defaults(record: Any) -> str:
    """The repr of a record, without later words that have their defaults."""
    shown = (f for f in fields(record) if not f.metadata.get("later") or getattr(record, f.name) != f.default)
    return f"{type(record).__name__}({', '.join(f'{f.name}={getattr(record, f.name)!r}' for f in shown)})"


@dataclass(frozen=True, slots=True)
class Order:
    """Release in order: `wait_us` is the patience behind a gap, `on_gap` what happens when it ends. By time, `tie` are the
    columns that put events of one time in order."""

    wait_us: int
    on_gap: OnGap
    tie: tuple[str, ...] = _later(())

    __repr__ = _repr_without_defaults


@dataclass(frozen=True, slots=True)
class Delay:
    """An event of type `after`, of which the condition `where` holds, emits `emit`, `by_us` later."""

    after: Types
    by_us: int
    emit: str
    where: str | None = _later(None)
    carry: tuple[str, ...] = _later(())

    __repr__ = _repr_without_defaults


@dataclass(frozen=True, slots=True)
class Expect:
    """After `after`, one of type `type` within `within_us`, or by the time in the column `by`, or else a result named
    `otherwise`. The conditions look at the event that opens, meets or cancels."""

    type: Types
    after: Types
    within_us: int | None
    otherwise: str
    cancel_by: tuple[str, ...]
    by: str | None = _later(None)
    where: str | None = _later(None)
    met_where: str | None = _later(None)
    cancel_where: str | None = _later(None)
    carry: tuple[str, ...] = _later(())

    __repr__ = _repr_without_defaults


@dataclass(frozen=True, slots=True)
class Quiet:
    """A key silent for `after_us` gives a result named `emit`; events of which `where` does not hold are not heard."""

    after_us: int
    emit: str
    where: str | None = _later(None)
    carry: tuple[str, ...] = _later(())

    __repr__ = _repr_without_defaults


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules for the events of each key; docs/rules.md is their contract.

    `key`, `time`, `type`, `id`, `sequence` name columns of an event; with `events=False` released events are no results.
    Builders return a new `Rules`:

    >>> rules = Rules(key="order", time="at", type="what").delay(after="paid", by="1 hour", emit="remind")
    >>> [(r.kind, r.rule, r.due) for r in rules.run([{"order": "o1", "at": 0, "what": "paid"}])]
    [('event', 'pass', 0), ('emit', 'remind', 3600000000)]
    """

    key: str
    time: str
    type: str | None = None
    id: str | None = None
    sequence: str | None = None
    within_us: int | None = None
    ordering: Order | None = None
    delays: tuple[Delay, ...] = ()
    expects: tuple[Expect, ...] = ()
    quiets: tuple[Quiet, ...] = ()
    deliver_column: str | None = None
    events: bool = _later(True)

    __repr__ = _repr_without_defaults

    def __post_init__(self) -> None:
        for name in ("key", "time"):
            _need_text(getattr(self, name), f"Rules({name}=)")
        for name in ("type", "id", "sequence", "deliver_column"):
            if getattr(self, name) is not None:
                _need_text(getattr(self, name), f"Rules({name}=)")
        if not isinstance(self.events, bool):
            raise TypeError(f"Rules(events=) must be True or False, got {self.events!r}")
        if self.deliver_column and not self.events:
            raise ValueError(
                "deliver_at() delivers events, and Rules(events=False) leaves them out: take one of the two"
            )

    def deduplicate(self, within: Duration) -> Rules:
        """Drop an event whose id was seen for its key at most `within` earlier."""
        self._once(self.within_us is None, "deduplicate()")
        return replace(self, within_us=duration_us(within, "deduplicate(within=)"))

    def order(self, wait: Duration = 0, on_gap: OnGap = "skip", tie: Iterable[str] = ()) -> Rules:
        """Release each key's events by sequence, or by time if no sequence column is named: equal times by the columns
        `tie`, and then as they came."""
        self._once(self.ordering is None, "order()")
        if on_gap not in get_args(OnGap):
            raise ValueError(f"order(on_gap=) must be one of {', '.join(get_args(OnGap))}, got {on_gap!r}")
        rule = Order(duration_us(wait, "order(wait=)"), on_gap, _columns(tie, "order(tie=)"))
        if rule.tie and self.sequence is not None:
            raise ValueError(f"order(tie=) has no meaning if the sequence {self.sequence!r} is the order: leave it out")
        return replace(self, ordering=rule)

    def delay(
        self,
        after: str | Iterable[str],
        by: Duration,
        emit: str,
        *,
        where: str | None = None,
        carry: Iterable[str] = (),
    ) -> Rules:
        """Each event of `after`, a type or several, emits a result named `emit` at its time + `by`, if `where` holds.
        The result carries the columns `carry` of the event."""
        self._need_type("delay()")
        rule = Delay(
            after=_one_or_several(after, "delay(after=)"),
            by_us=duration_us(by, "delay(by=)"),
            emit=emit,
            where=_condition(where, "delay(where=)"),
            carry=_columns(carry, "delay(carry=)"),
        )
        self._need_new_name(emit, "delay(emit=)")
        return replace(self, delays=(*self.delays, rule))

    def deliver_at(self, column: str) -> Rules:
        """Hold each released event until the watermark reaches the time in `column`."""
        self._once(self.deliver_column is None, "deliver_at()")
        return replace(self, deliver_column=_need_text(column, "deliver_at(column)"))

    def expect(
        self,
        type: str | Iterable[str],
        *,
        after: str | Iterable[str],
        within: Duration | None = None,
        otherwise: str,
        cancel_by: Iterable[str] = (),
        by: str | None = None,
        where: str | None = None,
        met_where: str | None = None,
        cancel_where: str | None = None,
        carry: Iterable[str] = (),
    ) -> Rules:
        """After each event of `after`, one of `type` within `within`, or before the time in the column `by`; else a result
        named `otherwise`. Both may be several types. The conditions say which events of them count: `where` of `after`,
        `met_where` of `type`, `cancel_where` of `cancel_by`. The result carries the columns `carry` of the first event."""
        self._need_type("expect()")
        self._need_new_name(otherwise, "expect(otherwise=)")
        rule = Expect(
            type=_one_or_several(type, "expect(type)"),
            after=_one_or_several(after, "expect(after=)"),
            within_us=_deadline_us(within, by),
            otherwise=otherwise,
            cancel_by=_types(cancel_by, "expect(cancel_by=)"),
            by=by,
            where=_condition(where, "expect(where=)"),
            met_where=_condition(met_where, "expect(met_where=)"),
            cancel_where=_condition(cancel_where, "expect(cancel_where=)"),
            carry=_columns(carry, "expect(carry=)"),
        )
        if cancel_where is not None and not rule.cancel_by:
            raise ValueError("expect(cancel_where=) looks at events that cancel: name their types with cancel_by=")
        return replace(self, expects=(*self.expects, rule))

    def quiet(self, after: Duration, emit: str, *, where: str | None = None, carry: Iterable[str] = ()) -> Rules:
        """A key without an event, of which the condition `where` holds, for `after` gives a result named `emit`. It carries
        the columns `carry` of the last event."""
        return self._silence("quiet", duration_us(after, "quiet(after=)"), emit, where, carry)

    def session(self, gap: Duration, emit: str, *, where: str | None = None, carry: Iterable[str] = ()) -> Rules:
        """`quiet` under the name that stream processors give it: a session ends after `gap` of silence."""
        return self._silence("session", duration_us(gap, "session(gap=)"), emit, where, carry)

    def run(self, events: Iterable[Mapping[str, Any]], watermark_delay: Duration = 0) -> Iterator[Result]:
        """Apply the rules in process to mappings in the order of arrival; closes at the end."""
        from waterclock.rules.inprocess import run

        return run(self, events, duration_us(watermark_delay, "run(watermark_delay=)"))

    def on_spark(self, watermark_delay: Duration = 0, buckets: int | None = None) -> Callable[[Any], Any]:
        """A function for `DataFrame.transform`: the same rules on a streaming or a batch DataFrame.

        `buckets`, from 2 to 4,096, is how many parts the state has: by default 16, or the session's cores if these are
        more. A checkpoint lives with one number. docs/spark.md says when to give one.
        """
        # The one arrow upward of the package: `events.transform(rules.on_spark())` is a promise of the product.
        from waterclock.spark import transform_with

        return transform_with(self, duration_us(watermark_delay, "on_spark(watermark_delay=)"), buckets)

    def columns(self) -> tuple[str, ...]:
        """The names of the columns that the rules read, each once."""
        named = (
            self.key,
            self.time,
            self.type,
            self.id,
            self.sequence,
            self.deliver_column,
            *self.questions().columns(),
        )
        return tuple(dict.fromkeys(name for name in named if name is not None))

    def questions(self) -> Questions:
        """What the rules ask of an event's other columns."""
        wheres = [rule.where for rule in self.delays] + [rule.where for rule in self.quiets]
        wheres += [where for rule in self.expects for where in (rule.where, rule.met_where, rule.cancel_where)]
        return Questions(
            dues=_each_once(rule.by for rule in self.expects),
            conditions=_each_once(wheres),
            carried=_each_once(name for carry in self.carries().values() for name in carry),
            ties=self.ordering.tie if self.ordering else (),
        )

    def carries(self) -> dict[str, tuple[str, ...]]:
        """The columns that the results of a rule carry of the event that opened them, by the name of the rule's results."""
        named: dict[str, tuple[str, ...]] = {rule.emit: rule.carry for rule in self.delays}
        return named | {e.otherwise: e.carry for e in self.expects} | {q.emit: q.carry for q in self.quiets}

    def _silence(self, what: str, after_us: int, emit: str, where: str | None, carry: Iterable[str]) -> Rules:
        self._need_new_name(emit, f"{what}(emit=)")
        rule = Quiet(after_us, emit, _condition(where, f"{what}(where=)"), _columns(carry, f"{what}(carry=)"))
        return replace(self, quiets=(*self.quiets, rule))

    def _once(self, free: bool, what: str) -> None:
        if not free:
            raise ValueError(f"{what} is given twice; a set of rules has it once")

    def _need_type(self, what: str) -> None:
        if self.type is None:
            raise ValueError(f"{what} looks at the type of an event: name its column with Rules(type=...)")

    def _need_new_name(self, name: str, what: str) -> None:
        _need_text(name, what)
        taken = [d.emit for d in self.delays] + [e.otherwise for e in self.expects] + [q.emit for q in self.quiets]
        if name in taken:
            raise ValueError(f"{what} {name!r} names another rule already; results are told apart by that name")


def _each_once(names: Iterable[str | None]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for name in names if name is not None))


def _condition(where: str | None, what: str) -> str | None:
    if where is not None:
        text = _need_text(where, what, "a condition such as amount > 100")
        try:
            condition(text)
        except ValueError as error:
            raise ValueError(f"{what}: {error}") from None
    return where


def _deadline_us(within: Duration | None, by: str | None) -> int | None:
    """`within` in microseconds, None if the deadline stands in the column `by`."""
    if (within is None) == (by is None):
        raise ValueError("expect() needs a deadline: either within=, a duration, or by=, a column with times")
    if within is not None:
        return duration_us(within, "expect(within=)")
    _need_text(by, "expect(by=)")
    return None


def types_of(types: Types) -> tuple[str, ...]:
    """All of them, whether it is one or several."""
    return (types,) if isinstance(types, str) else types


def _one_or_several(given: str | Iterable[str], what: str) -> Types:
    if isinstance(given, str) or not isinstance(given, Iterable):
        return _need_text(given, what)
    names = tuple(dict.fromkeys(_types(given, what)))
    if not names:
        raise ValueError(f"{what} must name a type, got an empty list")
    return names if len(names) > 1 else names[0]


def _columns(given: Iterable[str], what: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_types(given, what, "columns")))


def _types(given: Iterable[str], what: str, of: str = "types") -> tuple[str, ...]:
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise TypeError(f"{what} must be a list of {of}, got {'the text ' * isinstance(given, str)}{given!r}")
    return tuple(_need_text(name, what) for name in given)


def _need_text(value: object, what: str, kind: str = "a name") -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"{what} must be {kind}, got {value!r}")
    return value
