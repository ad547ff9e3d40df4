"""The figures as text: a block a sink and size, waterclock first; below, where it loses.

Rule 1: a ratio is waterclock's row against this one, with the same sink and size: above one, waterclock is ahead.
Rule 2: who applies no rules is no contender: his row is the floor, and nobody loses to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

from waterclock.bench.tables import aligned, notes, short

Row = Mapping[str, Any]
HEAD = ("rows/s", "CPU s a million", "whole, s", "whole CPU", "broker's", "answer")


def table(figures: Mapping[str, Any]) -> str:
    """Everything of one run."""
    blocks = [_block(rows) for rows in _groups(figures["records"])]
    lost = "\n".join(losses(figures["records"])) or "waterclock is ahead in all of these"
    about = (
        "rows/s, CPU s a million rows: steady, from a quarter of the rows on; whole: from the start of a run to its last\n"
        "commit; CPU of all the contender's processes; (times waterclock); medians of "
        f"{max((row['rounds'] for row in figures['records']), default=0)} turns"
    )
    parts = [*blocks, about, lost, ", ".join(figures["versions"]), notes(figures["notes"])]
    return "\n\n".join(part for part in parts if part)


def losses(records: Sequence[Row]) -> Iterator[str]:
    """A line for each of our rows and each of others' with rules that is ahead of it.

    >>> one = {"contender": "waterclock", "sink": "SQLite", "events": 1000, "rows_per_s": 10, "cpu_s_per_million": 40}
    >>> one |= {"has_rules": True, "whole_s": 2, "whole_cpu_s_per_million": 50}
    >>> other = {**one, "contender": "it", "rows_per_s": 20, "cpu_s_per_million": 80}
    >>> list(losses([one, other]))
    ['waterclock loses to it, SQLite, 1k events: rows/s 10 against 20']
    """
    for group in _groups(records):
        ours = [row for row in group if row["contender"].startswith("waterclock")]
        rivals = [row for row in group if row["has_rules"] and row not in ours]
        for our, other in product(ours, rivals):
            worse = [
                _both(name, our[key], other[key]) for name, key, more in _FIGURES if _is_worse(our, other, key, more)
            ]
            if worse:
                where = f"{other['contender']}, {other['sink']}, {short(other['events'])} events"
                yield f"{our['contender']} loses to {where}: {'; '.join(worse)}"


# name, key, whether more is better
_FIGURES = (
    ("rows/s", "rows_per_s", True),
    ("CPU s a million", "cpu_s_per_million", False),
    ("whole, s", "whole_s", False),
    ("whole CPU", "whole_cpu_s_per_million", False),
)


def _is_worse(ours: Row, other: Row, key: str, more: bool) -> bool:
    if ours[key] is None or other[key] is None:
        return False
    return bool(ours[key] < other[key] if more else ours[key] > other[key])


def _both(name: str, ours: float, other: float) -> str:
    return f"{name} {_number(ours)} against {_number(other)}"


def _groups(records: Sequence[Row]) -> list[list[Row]]:
    """Those of one sink and size together, in the order in which they came."""
    groups: dict[tuple[str, int], list[Row]] = {}
    for record in sorted(records, key=lambda record: record["events"]):
        groups.setdefault((record["sink"], record["events"]), []).append(record)
    return list(groups.values())


def _block(rows: Sequence[Row]) -> str:
    first = rows[0]
    head = [f"{first['sink']}, {short(first['events'])} events", *HEAD]
    return aligned(head, [_cells(row, first) for row in rows])


def _cells(row: Row, first: Row) -> list[str]:
    keys = ("rows_per_s", "cpu_s_per_million", "whole_s", "whole_cpu_s_per_million")
    shown = [_cell(row[key], None if row is first else first[key], key == "rows_per_s") for key in keys]
    served = row["broker_cpu_s_per_million"]
    right = "right" if row["right"] else "WRONG"
    return [row["contender"], *shown, "-" if served is None else _number(served), right]


def _cell(value: float | None, first: float | None, more: bool) -> str:
    if value is None:
        return "-"
    if not first:
        return _number(value)
    return f"{_number(value)} ({first / value if more else value / first:.2f}x)"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:,.1f}"
