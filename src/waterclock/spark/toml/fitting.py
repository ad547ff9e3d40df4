"""What fits together in a pipeline: columns and rules, rules and a mirror, durations and the calendar.

A pipeline's file and one that is written in Python are held to the same, in the same words.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa

from waterclock.errors import UsageError
from waterclock.rules.model import Rules
from waterclock.rules.truth import Kind, Unfit
from waterclock.sinks import Mirror
from waterclock.spark.layout import TYPES
from waterclock.spark.toml.sink import check_mirror, check_mirror_rules
from waterclock.spark.toml.values import LONGEST_US, one_of

_KINDS: Mapping[str, Kind] = {  # what a condition takes a column for
    "string": "text",
    "long": "number",
    "int": "number",
    "double": "number",
    "boolean": "boolean",
    "timestamp": "time",
}


def check_fits(columns: Mapping[str, str] | None, rules: Rules | None, mirror: object) -> None:
    """Raise UsageError where rules, the columns that are read, and a sink that is a mirror do not fit each other.

    `columns` is None where only Spark knows them.
    """
    if rules is None:
        return
    check_durations(rules)
    if isinstance(mirror, Mirror):
        check_mirror_rules(rules)
    if columns is None:
        return
    _check_columns(columns, rules)
    if isinstance(mirror, Mirror):
        event = pa.schema([(name, TYPES[kind]) for name, kind in columns.items()])
        check_mirror(mirror, event, rules)


def check_names_of(columns: Iterable[str], where: str = "[source.columns]") -> None:
    """Columns become columns of SQL, which does not tell case apart, and travel beside one of ours."""
    seen = dict[str, str]()
    for name in columns:
        if not name.strip() or not name.isprintable() or set(name) & set("\"'`"):
            raise UsageError(f"{where}: a column's name must be printable and without quotes, got {name!r}")
        if name.casefold().startswith("_row_id"):
            raise UsageError(f"{where}: {name!r} cannot be used: names that start with _row_id are waterclock's own")
        same = seen.get(name.casefold())
        if same == name:
            raise UsageError(f"{where}: two columns are called {name!r}: rename one, or leave it out")
        if same is not None:
            raise UsageError(f"{where}: {same!r} and {name!r} differ by case only, which SQL does not tell apart")
        seen[name.casefold()] = name


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
