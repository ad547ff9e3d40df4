"""Older rows of one table that go out together, as one transaction: many of them, so none is an item of its own.

Rule 1: a row has the message that it would have alone: `written` and `messages` say the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from waterclock.changes.maxwell import MaxwellMessage
from waterclock.changes.written import Written

Row = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class OlderPart:
    """Rows by their message's key; `of` is the message of each, but for `data`, its number and whether it is the last."""

    of: MaxwellMessage
    rows: Mapping[bytes, Row]

    def messages(self) -> Iterator[MaxwellMessage]:
        of, last = self.of, len(self.rows) - 1
        before, behind = of[:6], of[10:]  # `_replace` takes three times as long
        for number, row in enumerate(self.rows.values()):
            yield MaxwellMessage(*before, number, number == last, of.key, row, *behind)

    def written(self) -> Iterator[tuple[bytes, bytes]]:
        """Key and value of each."""
        of, last = self.of, len(self.rows) - 1
        where = of.type, of.ts, of.gtid, of.sequence
        for number, (key, row) in enumerate(self.rows.items()):
            if isinstance(row, Written) and row.form.key == of.key:
                yield key, row.as_json(*where, number, number == last, None, None)
            else:
                yield key, of._replace(data=row, xoffset=number, commit=number == last).as_json()


def by_key(of: MaxwellMessage, rows: Iterable[Row]) -> dict[bytes, Row]:
    """Rows by the key of the message that they would have."""
    return {of._replace(data=row).as_key() if not isinstance(row, Written) else row.as_key(): row for row in rows}
