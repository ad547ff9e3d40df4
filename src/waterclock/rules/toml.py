"""Rules from the tables of a TOML file: the same names as the builders of `Rules`, the same messages when wrong.

[rules]            key, time, type, id, sequence, events
[rules.deduplicate] within            [rules.order] wait, on_gap, tie      [rules.deliver_at] column
[[rules.delay]]     after, by, emit, where, carry
[[rules.expect]]    type, after, within or by, otherwise, cancel_by, where, met_where, cancel_where, carry
[[rules.quiet]]     after, emit, where, carry    [[rules.session]] gap, emit, where, carry
type and after of events: a type, or a list of types
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
