"""Rules in process: mappings in, `Result` records out, in the kind of time that went in.

Rule 1: a wrong event raises ValueError naming its number (from 1) and the column; nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any

from waterclock.durations import Time, TooFine, datetime_us, from_us
from waterclock.rules.engine import CLOSED, NO_WATERMARK, Engine
from waterclock.rules.events import Answers, Event, Key, Outcome, Result, result_id, tie
from waterclock.rules.model import Rules
from waterclock.rules.truth import Unfit


def run(rules: Rules, events: Iterable[Mapping[str, Any]], delay_us: int) -> Iterator[Result]:
    """The results of `events` in the order of arrival; see `Rules.run`."""
    engine, reader, latest = Engine(rules), _RowReader(rules), NO_WATERMARK
    for row in events:
        key, event = reader.read(row)
        yield from map(reader.result(engine.watermark), engine.step([(key, event)], engine.watermark))
        latest = max(latest, event.time)
        yield from map(reader.result(latest - delay_us), engine.step((), latest - delay_us))
    yield from map(reader.result(None), engine.step((), CLOSED))


def row_id(row: Mapping[str, Any]) -> str:
    """The id of a row that names none: a hash of the whole of it, whatever the order of its columns."""
    text = repr(sorted((name, repr(value)) for name, value in row.items()))
    return blake2b(text.encode(), digest_size=16).hexdigest()


def _text(value: Any) -> str | None:
    """A type as the rules name it: a text, as on Spark, for they cannot name a number.

    >>> _text("paid"), _text(3), _text(True), _text(None)
    ('paid', '3', 'true', None)
    """
    if value is None or isinstance(value, str):
        return value
    return str(value).lower() if isinstance(value, bool) else str(value)


_EARLIEST_US = datetime_us(datetime.min)  # a watermark before it is shown as none
_FARTHEST_US = 2**60  # with a duration added, still before the close


class _RowReader:
    """Reads mappings into events, and writes results back in the kind of time that it read."""

    def __init__(self, rules: Rules) -> None:
        self._rules, self._questions = rules, rules.questions()
        self._carries, self._ties = rules.carries(), dict[str, type]()
        self._looked_at = self._questions.condition_columns()
        self._number = 0
        self._time_from_us: Callable[[int], Time] | None = None

    def read(self, row: Mapping[str, Any]) -> tuple[Key | None, Event]:
        self._number += 1
        if not isinstance(row, Mapping):
            raise ValueError(f"event {self._number} must be a mapping of columns, got {row!r}")
        rules, time_us = self._rules, self._time(row, self._rules.time)
        key = self._column(row, rules.key)
        if key is None:
            said = [name for name, value in row.items() if value is not None and name != self._rules.time]
            if said:
                raise self._wrong(self._rules.key, f"a key, for the row says more than its time ({said[0]!r})", None)
            return None, Event(time_us, "", None, None, None, None)
        if isinstance(key, bool) or not isinstance(key, str | int):
            raise self._wrong(rules.key, "a text or an integer", key)
        named = None if rules.id is None else self._column(row, rules.id)
        return key, Event(
            time=time_us,
            id=row_id(row) if named is None else str(named),
            sequence=self._sequence(row) if rules.sequence and rules.ordering else None,
            type=_text(self._column(row, rules.type)) if rules.type else None,
            deliver=self._time_or_none(row, rules.deliver_column) if rules.deliver_column else None,
            ref=row,
            answers=self._answers(row) if self._questions else None,
        )

    def result(self, watermark: int | None) -> Callable[[Outcome], Result]:
        at = None if watermark is None or watermark < _EARLIEST_US else self._shown(watermark)

        def make(found: Outcome) -> Result:
            kind, key, rule, due, source_id, event, carried = found
            shown = self._shown(due)
            if carried is not None:
                event = dict(zip(self._carries[rule], carried, strict=True))
            return Result(kind, key, rule, shown, at, source_id, result_id(kind, key, rule, source_id), event)

        return make

    def _shown(self, us: int) -> Time:
        """A time in the kind that came in; ValueError if that kind cannot hold it."""
        return (self._time_from_us or int)(us)

    def _wrong(self, column: str, needs: str, got: object) -> ValueError:
        return ValueError(f"event {self._number}, column {column!r}: needs {needs}, got {got!r}")

    def _column(self, row: Mapping[str, Any], name: str) -> Any:
        if name not in row:
            raise ValueError(f"event {self._number} has no column {name!r}; it has {', '.join(map(str, row))}")
        return row[name]

    def _sequence(self, row: Mapping[str, Any]) -> int:
        assert self._rules.sequence is not None
        number = self._column(row, self._rules.sequence)
        if isinstance(number, bool) or not isinstance(number, int) or number < 1:
            raise self._wrong(self._rules.sequence, "an integer from 1", number)
        return number

    def _answers(self, row: Mapping[str, Any]) -> Answers:
        dues = tuple(self._time_or_none(row, column) for column in self._questions.dues)
        for column in self._looked_at:
            self._column(row, column)
        try:
            holds = self._questions.holds(row)
        except Unfit as error:
            raise ValueError(f"event {self._number}: {error}") from None
        carried = tuple(self._column(row, column) for column in self._questions.carried)
        return Answers(dues, holds, carried, tuple(tie(self._tie(row, column)) for column in self._questions.ties))

    def _tie(self, row: Mapping[str, Any], column: str) -> str | int | None:
        value = self._column(row, column)
        value = self._us(column, value) if (is_time := isinstance(value, datetime)) else value
        if value is None:
            return None
        if not isinstance(value, str | int):
            raise self._wrong(column, "a text, an integer, a boolean or a time to order by", value)
        kind = datetime if is_time else type(value)
        if self._ties.setdefault(column, kind) is not kind:
            raise self._wrong(column, "the kind of value that the events before it have", value)
        return value

    def _time_or_none(self, row: Mapping[str, Any], column: str) -> int | None:
        return None if self._column(row, column) is None else self._time(row, column)

    def _time(self, row: Mapping[str, Any], column: str) -> int:
        value = self._column(row, column)
        show: Callable[[int], Time]
        if isinstance(value, datetime):
            zone = value.tzinfo
            show = lambda us: from_us(us).astimezone(zone or UTC).replace(tzinfo=zone)  # noqa: E731
        elif isinstance(value, int) and not isinstance(value, bool):
            show = int
        else:
            raise self._wrong(column, "a datetime or integer microseconds", value)
        if self._time_from_us is not None and (show is int) != (self._time_from_us is int):
            raise self._wrong(column, "the kind of time that the events before it have", value)
        self._time_from_us = self._time_from_us or show
        time_us = value if isinstance(value, int) else self._us(column, value)
        if abs(time_us) > _FARTHEST_US:
            raise self._wrong(column, "a time within 2**60 microseconds of 1970", value)
        return time_us

    def _us(self, column: str, moment: datetime) -> int:
        try:
            return datetime_us(moment)
        except TooFine:
            raise self._wrong(column, "a time no finer than a microsecond", moment) from None
