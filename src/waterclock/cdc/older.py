"""Rows that are older than the log from which a capture begins: they would be missing, so its first start says so.

Rule 1: it is looked up once, if a capture has no position yet and nobody said where it begins (--from).
Rule 2: up to COUNTED rows of a table are counted, for a larger one the server's estimate stands, and says so: to count a
        billion rows takes hours.
Rule 3: what lies before the log may be fewer rows than the table has now: then the number is the most there can be.
        (A snapshot, which would bring them, belongs here: between this question and the first position.)
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import NamedTuple

from waterclock.errors import UsageError

log = logging.getLogger("waterclock.cdc")
COUNTED = 100_000


class OlderRows(NamedTuple):
    """How many rows a table holds that are, or may be, older than the log; None if this user may not look."""

    table: str
    rows: int | None
    estimated: bool = False

    def as_text(self) -> str:
        """
        >>> OlderRows("shop.item", 999).as_text(), OlderRows("shop.sale", 1_200_000, True).as_text()
        ('shop.item 999 rows (counted)', 'shop.sale about 1,200,000 rows (estimated)')
        """
        if self.rows is None:
            return f"{self.table} an unknown number of rows (this user may not read them)"
        about, how = ("about ", "estimated") if self.estimated else ("", "counted")
        return f"{self.table} {about}{self.rows:,} rows ({how})"


def sized(table: str, counted: int, estimate: int) -> OlderRows:
    """Of a count that stopped behind COUNTED, and the server's estimate."""
    return OlderRows(table, counted) if counted <= COUNTED else OlderRows(table, max(counted, estimate), True)


def check(older: Sequence[OlderRows], why: str, accepted: bool) -> None:
    """Refuse to begin if rows would be missing, unless that is `accepted` (--from-here): then say which."""
    if not older:
        return
    said = f"{why}: {', '.join(each.as_text() for each in older)}"
    if accepted:
        log.warning("%s. They do not come (--from-here).", said)
        return
    raise UsageError(f"{said}. They would be missing. To begin here without them, and copy them by hand: --from-here")
