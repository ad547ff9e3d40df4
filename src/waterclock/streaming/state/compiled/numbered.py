"""The rules as the compiled engine takes them (rules.h): names and columns as numbers."""

from __future__ import annotations

from typing import Any

from waterclock.rules.model import Delay, Expect, Quiet, Rules, types_of

ORDERINGS = AS_THEY_COME, BY_TIME, BY_SEQUENCE = range(3)
ON_GAP = {"skip": 0, "hold": 1, "dead_letter": 2}
FIXED_NAMES = ("order", "pass", "deliver_at", "late", "skip", "hold", "dead_letter")  # as enum Rule has them
ALWAYS, NEVER = -1, -2  # in the place of a condition's number
NONE = -(2**63)


def names_of(rules: Rules) -> list[str]:
    """The names of results' rules by number."""
    return [*FIXED_NAMES, *(r.otherwise if isinstance(r, Expect) else r.emit for r in _named(rules))]


def numbered(rules: Rules) -> dict[str, Any]:
    """The rules as the compiled engine takes them."""
    questions, ordering = rules.questions(), rules.ordering
    order = AS_THEY_COME
    if ordering is not None and rules.sequence is not None:
        order = BY_SEQUENCE
    elif ordering is not None or rules.expects or rules.quiets:
        order = BY_TIME
    return {
        "ordering": order,
        "on_gap": ON_GAP[ordering.on_gap] if ordering else 0,
        "wait_us": ordering.wait_us if ordering else 0,
        "within_us": -1 if rules.within_us is None else rules.within_us,
        "has_events": rules.events,
        "watches": bool(rules.delays or rules.expects or rules.quiets),
        "asks": bool(questions),
        "due_columns": len(questions.dues),
        "conditions": len(questions.conditions),
        "carried": len(questions.carried),
        "ties": len(questions.ties),
        "delay_us": [rule.by_us for rule in rules.delays],
        "expect_us": [NONE if rule.within_us is None else rule.within_us for rule in rules.expects],
        "expect_by": [-1 if rule.by is None else questions.dues.index(rule.by) for rule in rules.expects],
        "quiet_us": [rule.after_us for rule in rules.quiets],
        "quiet_where": [_where(rules, rule.where) for rule in rules.quiets],
        "emits": [rule.emit for rule in rules.delays],
        "carry": [[questions.carried.index(name) for name in rule.carry] for rule in _named(rules)],
        "plans": _plans(rules),
    }


def _named(rules: Rules) -> list[Delay | Expect | Quiet]:
    """The rules whose results have names of their own, in the order of these."""
    return [*rules.delays, *rules.expects, *rules.quiets]


def _where(rules: Rules, text: str | None) -> int:
    return ALWAYS if text is None else rules.questions().conditions.index(text)


def _plans(rules: Rules) -> dict[str, tuple[list[tuple[int, int]], list[tuple[int, int]], list[int], list[int]]]:
    """By type what an event of it does: (delays, opens, meets, withdraws), each with its conditions."""
    delays = [name for rule in rules.delays for name in types_of(rule.after)]
    expects = [
        name for rule in rules.expects for name in (*types_of(rule.after), *types_of(rule.type), *rule.cancel_by)
    ]
    return {name: _plan(rules, name) for name in dict.fromkeys(delays + expects)}


def _plan(rules: Rules, name: str) -> tuple[list[tuple[int, int]], list[tuple[int, int]], list[int], list[int]]:
    delays = [(n, _where(rules, d.where)) for n, d in enumerate(rules.delays) if name in types_of(d.after)]
    opens = [(n, _where(rules, e.where)) for n, e in enumerate(rules.expects) if name in types_of(e.after)]
    meets = [_where(rules, e.met_where) if name in types_of(e.type) else NEVER for e in rules.expects]
    withdraws = [_where(rules, e.cancel_where) if name in e.cancel_by else NEVER for e in rules.expects]
    is_closing = {*meets, *withdraws} - {NEVER}
    return delays, opens, meets if is_closing else [], withdraws if is_closing else []
