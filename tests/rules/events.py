"""Small streams for the tests of the rules: events of one key, and what comes of them as plain tuples.

Rule 1: one sentence of docs/rules.md is one test in a file here; its name says the sentence.
Rule 2: expected results are literal and in order; an order that is promised is never sorted away.
"""

from collections.abc import Mapping
from typing import Any

from waterclock.rules import Result, Rules

NUMBERED = Rules(key="key", time="time", type="type", id="id", sequence="number")
TIMED = Rules(key="key", time="time", type="type", id="id")


def numbered(number: int, time: Any, type: str = "x", id: str | None = None, **more: Any) -> dict[str, Any]:
    """Event e<number> of the key "k"."""
    row = {"key": "k", "time": time, "type": type, "id": id or f"e{number}", "number": number}
    return row | more


def timed(id: str, time: Any, type: str = "x", **more: Any) -> dict[str, Any]:
    return {"key": "k", "time": time, "type": type, "id": id} | more


def heartbeat(time: Any) -> dict[str, Any]:
    return {"key": None, "time": time}


def told(result: Result) -> tuple[str, str, Any, str]:
    return result.kind, result.rule, result.due, result.source_id


def run(rules: Rules, *events: Mapping[str, Any], delay: Any = 0) -> list[tuple[str, str, Any, str]]:
    return [told(result) for result in rules.run(events, watermark_delay=delay)]


def run_but_events(rules: Rules, *events: Mapping[str, Any], delay: Any = 0) -> list[tuple[str, str, Any, str]]:
    """Without the released events, where only what the rules make of them is of interest."""
    return [found for found in run(rules, *events, delay=delay) if found[0] != "event"]


def released(rules: Rules, *events: Mapping[str, Any], delay: Any = 0) -> list[str]:
    return [id for kind, _, _, id in run(rules, *events, delay=delay) if kind == "event"]
