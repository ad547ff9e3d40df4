"""What fits together in a pipeline: columns and rules, durations and the calendar.

A pipeline's file and one that is written in Python are held to the same, in the same words.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from waterclock.errors import UsageError
from waterclock.rules.model import Rules
from waterclock.rules.truth import Kind, Unfit
from waterclock.streaming.layout import check_each_once, refuse_own
from waterclock.streaming.toml.values import LONGEST_US, one_of

_KINDS: Mapping[str, Kind] = {  # what a condition takes a column for
    "string": "text",
    "long": "number",
    "int": "number",
    "double": "number",
    "boolean": "boolean",
    "timestamp": "time",
}


def check_fits(columns: Mapping[str, str] | None, rules: Rules | None) -> None:
    """Raise UsageError if rules and the columns that are read do not fit each other.

    `columns` is None where only Spark knows them.
    """
    if rules is None:
        return
    check_durations(rules)
    if columns is not None:
        _check_columns(columns, rules)


def check_names_of(columns: Iterable[str], where: str = "[source.columns]") -> None:
    """Raise UsageError where columns could not be those of a table, or travel beside ours."""
    names = list(columns)
    for name in names:
        if not name.strip() or not name.isprintable():
            raise UsageError(f"{where}: a column's name must be printable and not empty, got {name!r}")
    refuse_own(names, where)
    check_each_once(names, where)


def check_durations(rules: Rules) -> None:
    """A deadline far outside of the calendar could not be written, by this batch or any re-run of it."""
    wait_us = rules.ordering.wait_us if rules.ordering else 0
    named = [("order(wait=)", wait_us), ("deduplicate(within=)", rules.within_us or 0)]
    named += [(f"delay {rule.emit!r}", rule.by_us) for rule in rules.delays]
    named += [(f"expect {rule.otherwise!r}", rule.within_us or 0) for rule in rules.expects]
    named += [(f"quiet {rule.emit!r}", rule.after_us) for rule in rules.quiets]
    for name, us in named:
        if us > LONGEST_US:
            raise UsageError(f"[rules]: {name} waits for more than 10,000 years: shorten it")


def _check_columns(columns: Mapping[str, str], rules: Rules) -> None:
    if rules.key == rules.time:
        raise UsageError(f"[rules]: 'key' and 'time' both name the column {rules.key!r}: they must be two")
    for name in rules.columns():
        if name not in columns:
            raise UsageError(f"[rules] names the column {name!r}; [source.columns] has {', '.join(columns)}")
    needs = {rules.key: ("string", "long", "int"), rules.time: ("timestamp",)}
    if rules.sequence:
        needs[rules.sequence] = ("long", "int")
    moments = [name for name in (rules.deliver_column, *rules.questions().dues) if name is not None]
    needs |= dict.fromkeys(rules.questions().ties, ("string", "long", "int", "boolean", "timestamp")) | needs
    needs |= dict.fromkeys(moments, ("timestamp",))
    for name, kinds in needs.items():
        one_of("[source.columns]", name, columns[name], kinds)
    try:
        rules.questions().check({name: _KINDS[kind] for name, kind in columns.items()})
    except Unfit as error:
        raise UsageError(f"[rules]: {error}") from None
