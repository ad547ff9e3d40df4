"""Aligned plain text for a terminal of 80 columns: nothing that is printed is broken by the terminal itself."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from textwrap import wrap
from typing import Final

WIDTH: Final = 80
GAP: Final = "  "
LEAST: Final = 8  # of the last column: below it a name stands alone on its line


def table(titles: Sequence[str], rows: Sequence[Sequence[str]], indent: int = 4) -> list[str]:
    """Columns as wide as their widest cell; what the last one has too much goes on below.

    >>> table(("level", "tick"), [("1", "20ms")])
    ['    level  tick', '    1      20ms']
    """
    *first, _ = [max(len(cell) for cell in column) for column in zip(titles, *rows, strict=True)]
    room = max(LEAST, WIDTH - indent - sum(first) - len(GAP) * len(first))
    lines = []
    for *cells, last in (titles, *rows):
        for part, *words in zip_longest(_folded(last, room), *([cell] for cell in cells), fillvalue=""):
            padded = [word.ljust(width) for word, width in zip(words, first, strict=True)]
            lines.append((" " * indent + GAP.join([*padded, part])).rstrip())
    return lines


def folded(text: str, indent: int) -> list[str]:
    """A sentence over as many lines as it needs; those behind the first begin at `indent`.

    >>> folded("       ran   " + ", ".join(["task"] * 14), 13)[1]
    '             task, task, task'
    """
    start = text[: len(text) - len(text.lstrip())]
    return [start + line for line in _folded(text.strip(), WIDTH - len(start), " " * (indent - len(start)))]


def _folded(text: str, room: int, behind: str = "") -> list[str]:
    if len(text) <= room:
        return [text]
    return wrap(text, room, subsequent_indent=behind, break_on_hyphens=False) or [text]
