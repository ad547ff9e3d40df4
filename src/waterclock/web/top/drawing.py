"""Tables as lines of text, however narrow.

Rule 1: a table that is too wide leaves out what its panel says may go, first things first. What is still too wide is cut,
        and ends with `…`.
Rule 2: a text of somebody else's (a key, an id, a reason) stays within its cell: what moves the cursor is shown as `·`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from unicodedata import category, east_asian_width

from waterclock.web.panel import Bar, Cell, Moment, Panel, moment

BAR: Final = 20
NARROWEST: Final = 4
Row = list[str | Bar]


def drawn(panel: Panel, width: int) -> list[str]:
    """Its lines, of `width` columns at most; none of a panel that has nothing to show.

    >>> drawn(Panel("Levels", ("level", ">timers", ""), [("1", "12", Bar(0.5))]), 30)
    ['Levels', 'level  timers', '1          12  ████████░░░░░░░']
    """
    figures = _table((" ", ">"), [(of, value) for value, of in panel.figures], (), width)
    table = _table(panel.heads, panel.rows, panel.drop, width)
    note = _wrapped(panel.note, width) if panel.note else []
    return [cut(line, width) for line in (panel.title, *figures, *table, *note)] if figures or table or note else []


def _table(heads: Sequence[str], rows: Sequence[Sequence[Cell]], drop: Sequence[str], width: int) -> list[str]:
    """The lines of the rows, below their heads if these have names."""
    if not rows:
        return []
    heads, left, drop = list(heads), [[_text(cell) for cell in row] for row in rows], list(drop)
    while drop and _wide(heads, left) > width:
        if drop[0] in heads:
            at = heads.index(drop[0])
            heads, left = heads[:at] + heads[at + 1 :], [row[:at] + row[at + 1 :] for row in left]
        del drop[0]
    widths = _widths(heads, left)
    for at, head in enumerate(heads):
        if head == "":
            widths[at] = max(NARROWEST, min(BAR, width - sum(widths) - 2 * len(widths) + 2))
    names: list[Row] = [[head.lstrip(">") for head in heads]] if any(head.strip(" >") for head in heads) else []
    return [_line(heads, row, widths) for row in [*names, *left]]


def _text(cell: Cell) -> str | Bar:
    if isinstance(cell, str | Bar):
        return cell
    return moment(cell.ms) if isinstance(cell, Moment) else cell.text


def _widths(heads: Sequence[str], rows: Sequence[Row]) -> list[int]:
    """Of each column; a bar takes what is left."""
    texts = [[head.lstrip(">"), *(row[at] for row in rows)] for at, head in enumerate(heads)]
    return [max(columns(_plain(text)) for text in each if isinstance(text, str)) for each in texts]


def _wide(heads: Sequence[str], rows: Sequence[Row]) -> int:
    return sum(_widths(heads, rows)) + 2 * len(heads) - 2 + NARROWEST * ("" in heads)


def _line(heads: Sequence[str], cells: Row, widths: Sequence[int]) -> str:
    made = []
    for head, cell, width in zip(heads, cells, widths, strict=True):
        if isinstance(cell, Bar):
            full = min(width, round(cell.share * width) or int(cell.share > 0))
            made.append("█" * full + "░" * (width - full))
            continue
        text = _plain(cell)
        space = " " * (width - columns(text))
        made.append(space + text if head.startswith(">") else text + space)
    return "  ".join(made).rstrip()


def _wrapped(text: str, width: int) -> list[str]:
    lines, line = list[str](), ""
    for word in _plain(text).split(" "):
        if line and columns(line) + 1 + columns(word) > width:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}".strip()
    return [*lines, line]


def _plain(text: str) -> str:
    """Rule 2."""
    if text.isascii() and text.isprintable():
        return text
    return "".join("·" if category(char)[0] in "CZ" and char != " " else char for char in text)


def columns(text: str) -> int:
    """How many columns of a terminal a text takes.

    >>> columns("ab"), columns("時計")
    (2, 4)
    """
    if text.isascii():
        return len(text)
    return sum(0 if category(char) == "Mn" else 2 if east_asian_width(char) in "WF" else 1 for char in text)


def cut(text: str, width: int) -> str:
    """The text within a width.

    >>> cut("waterclock", 6)
    'water…'
    """
    if columns(text) <= width:
        return text
    while columns(text) > width - 1:
        text = text[:-1]
    return f"{text}…"
