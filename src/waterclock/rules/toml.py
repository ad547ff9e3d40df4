"""Rules from the tables of a TOML file: the same names as the builders of `Rules`, the same messages when wrong.

    [rules]
    key             the column that tells which events belong together
    time            the column of event time; another than the key's
    type            the column of what happened; delay and expect need it
    id              the column that tells an event from others; left out, the whole row does
    sequence        the column that counts 1, 2, 3, ... for each key
    events          whether events are results too; false leaves only what the rules make of them
    [rules.deduplicate]
    within          for how long, in event time, an id is known
    [rules.order]
    wait            how long a gap in the sequence is waited for
    on_gap          what happens then: "skip" goes on behind the gap, "hold" waits for ever, "dead_letter" puts aside what
                    waited
    tie             columns that put events of one time in order, if there is no sequence
    [rules.deliver_at]
    column          the column with the time that each event is held until
    [[rules.delay]]
    after           the type of event that begins it, or a list of types
    by              how much later the result comes
    emit            the name of the result, which no other rule has
    where           a condition on the event, such as amount > 100
    carry           columns of the event that the result has too
    [[rules.expect]]
    type            what has to come: a type, or a list of types
    after           the type of event that begins it, or a list of types
    within          how long it may take; or by
    otherwise       the name of the result if it does not come, which no other rule has
    cancel_by       types of events that end it without a result
    by              the column with the time until which it has to come; or within
    where           a condition on the event that begins it
    met_where       a condition on the event that has to come
    cancel_where    a condition on the event that ends it
    carry           columns of the event that begins it, which the result has too
    [[rules.quiet]]
    after           how long a key has to be silent
    emit            the name of the result, which no other rule has
    where           a condition on events: others are not heard
    carry           columns of the last event that the result has too
    [[rules.session]]
    gap             how long a key has to be silent for its session to end
    emit            the name of the result, which no other rule has
    where           a condition on events: others are not heard
    carry           columns of the last event that the result has too

docs/rules.md says what each means; the reference is made of this.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from waterclock.errors import UsageError, meant
from waterclock.rules.model import Rules

_WORDS = {"key", "time", "type", "id", "sequence", "events"}
_ONCE = ("deduplicate", "order", "deliver_at")
_MANY = ("delay", "expect", "quiet", "session")


def rules_from(table: Mapping[str, Any]) -> Rules:
    """The rules of a parsed `[rules]` table; UsageError says what is wrong and where."""
    check_names("[rules]", table, _WORDS | {*_ONCE, *_MANY}, {"key", "time"})
    rules = _call("[rules]", Rules, {name: table[name] for name in _WORDS & table.keys()})
    for name in _ONCE:
        if name in table:
            rules = _call(f"[rules.{name}]", getattr(rules, name), table[name])
    for name in _MANY:
        several = table.get(name, [])
        if not isinstance(several, list):
            raise UsageError(f"[[rules.{name}]] must be written with double brackets, so that there can be several")
        for place, given in enumerate(several, 1):
            rules = _call(f"[[rules.{name}]] number {place}", getattr(rules, name), given)
    return rules


def check_names(where: str, table: Mapping[str, Any], known: Iterable[str], needed: Iterable[str]) -> None:
    """Raise UsageError for a name that is unknown (with the nearest known one) or missing."""
    known = set(known)
    for name in table:
        if name not in known:
            raise UsageError(f"{where}: {name!r} is not known here; {meant(name, known)}")
    for name in sorted(needed):
        if name not in table:
            raise UsageError(f"{where}: {name!r} is missing")


def _call(where: str, builder: Callable[..., Rules], arguments: Any) -> Rules:
    if not isinstance(arguments, Mapping):
        raise UsageError(f"{where} must be a table, got {arguments!r}")
    parameters = inspect.signature(builder).parameters
    needed = [name for name, parameter in parameters.items() if parameter.default is parameter.empty]
    check_names(where, arguments, parameters, needed)
    try:
        return builder(**arguments)
    except (TypeError, ValueError) as error:
        raise UsageError(f"{where}: {error}") from error
