"""What a panel is, for the page and for the terminal alike: panels.py says what each kind of process shows."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

_UNITS: Final = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"), (1, "ms"))
_THOUSANDS: Final = ("B", "kB", "MB", "GB", "TB")


class Bar(NamedTuple):
    """A share of a whole, from 0 to 1. `more`: further ones, each with the page's name of its colour."""

    share: float
    more: Sequence[tuple[float, str]] = ()


class Chip(NamedTuple):
    """A state; `kind` is ok, bad or empty."""

    text: str
    kind: str = ""


class Moment(NamedTuple):
    """Ms since 1970; each shows it in its own time zone."""

    ms: int | None


Cell = str | Bar | Chip | Moment


class OnPage(NamedTuple):
    """What the page alone shows of a panel: it knows it by its `id`, of `width` twelfths; `say` explains it; `lines` are
    the newest values of its lines. The bars of `is_stacked` are parts of one."""

    id: str = ""
    width: int = 12
    say: str = ""
    lines: Sequence[float | None] = ()
    is_stacked: bool = False


class Panel(NamedTuple):
    """Figures, each a value and what it is, a table, and a note; nothing is shown of one that has none of them.

    A head that begins with `>` is of numbers, an empty one of bars. `drop`: heads that may go where it is narrow, the
    first one first.
    """

    title: str
    heads: Sequence[str] = ()
    rows: Sequence[Sequence[Cell]] = ()
    note: str = ""
    drop: Sequence[str] = ()
    figures: Sequence[tuple[str, str]] = ()
    page: OnPage = OnPage()


def for_page(panel: Panel) -> dict[str, Any]:
    """As JSON: a cell that is no text is an object of its kind.

    >>> for_page(Panel("Due", ("at",), [(Moment(17),)]))["rows"]
    [[{'moment': [17]}]]
    """

    def plain(cell: Cell) -> object:
        return cell if isinstance(cell, str) else {type(cell).__name__.lower(): [*cell]}

    shown = {**panel._asdict(), **panel.page._asdict(), "rows": [[*map(plain, row)] for row in panel.rows]}
    del shown["page"]
    return shown


def span(ms: float | None) -> str:
    """A length of time.

    >>> span(256), span(65_536), span(99.7), span(None)
    ('256 ms', '1.1 min', '100 ms', '–')
    """
    if ms is None:
        return "–"
    size, unit = next((each for each in _UNITS if abs(ms) >= each[0]), _UNITS[-1])
    value = ms / size
    return f"{value:,.0f} {unit}" if value >= 99.5 or value == int(value) else f"{value:.2g} {unit}"


def moment(ms: int | None) -> str:
    """A moment, of ms since 1970, in this machine's time zone; one that no calendar has is shown as its number."""
    try:
        return "–" if ms is None else f"{datetime.fromtimestamp(ms / 1000):%Y-%m-%d %H:%M:%S}"
    except (ValueError, OverflowError, OSError):
        return f"{ms} ms"


def count(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}"


def rate(value: float | None) -> str:
    return count(value) if value is None or value >= 10 else f"{value:.1f}"


def size(value: float | None) -> str:
    """Bytes.

    >>> size(12_345), size(7), size(None)
    ('12.3 kB', '7 B', '–')
    """
    if value is None:
        return "–"
    at = next((n for n in range(len(_THOUSANDS)) if value < 1000 ** (n + 1)), len(_THOUSANDS) - 1)
    return f"{value / 1000**at:.3g} {_THOUSANDS[at]}"
