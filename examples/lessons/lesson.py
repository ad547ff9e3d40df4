"""What a lesson says: a sentence now and then while it goes on, then a small table for people, the same as JSON for
programs, and what to learn from it."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from textwrap import fill
from typing import Any

WIDTH = 80  # of a terminal


@dataclass(frozen=True)
class Lesson:
    """`rows` have the same fields, in the same order; `learned` are sentences."""

    title: str
    rows: list[dict[str, Any]]
    learned: list[str]

    def column(self, field: str) -> list[Any]:
        """One field of all rows."""
        return [row[field] for row in self.rows]

    def as_json(self) -> str:
        return json.dumps(asdict(self), indent=1)

    def as_text(self) -> str:
        """Title, table, and what was learned."""
        heads = list(self.rows[0])
        cells = [heads, *([shown(row[head]) for head in heads] for row in self.rows)]
        widths = [max(len(row[place]) for row in cells) for place in range(len(heads))]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells
        ]
        lines.insert(1, "  ".join("-" * width for width in widths))
        return "\n".join([fill(self.title, WIDTH), "", *lines, "", *map(_folded, self.learned)])


def _folded(sentence: str) -> str:
    return fill(f"- {sentence}", WIDTH, subsequent_indent="  ")


def tell(sentence: str) -> None:
    """Say what is going on; on stderr, so that a program reads nothing but the result."""
    print(fill(sentence, WIDTH), file=sys.stderr, flush=True)


def shown(value: Any) -> str:
    """A cell: yes and no for truths, words for lists, commas in large numbers.

    >>> [shown(value) for value in (True, ["A", "B"], 12345, "text")]
    ['yes', 'A B', '12,345', 'text']
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return " ".join(map(str, value))
    return f"{value:,}" if isinstance(value, int) else str(value)
