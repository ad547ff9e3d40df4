"""Where a capture stands in its source: kept in Kafka beside the changes, compared, and handed to the source again.

Rule 1: a position moves at the end of a source transaction only. `rows` counts what was already written of the next
        one, changes and dead letters, and is 0 but for a transaction larger than the bound (see capture.py).
Rule 2: a position is text that its source understands: MariaDB's GTID list, MySQL's GTID set, PostgreSQL's LSN.
Rule 3: it says for which tables it holds (held.py). Version 1 did not: it is read, and known by that. Version 3 has tables
        of which older rows are still to come, version 4 such of which a target may have rows that are gone; without any
        it is version 2. A newer version than ours is refused: it may hold for less than we know of.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import NamedTuple

from waterclock.cdc.held import Held
from waterclock.errors import UsageError

VERSION = 4
_MARIADB = re.compile(r"\d+-\d+-\d+")
_MYSQL = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}(:\d+(-\d+)?)+")


class Position(NamedTuple):
    """All up to `place` is in Kafka, and the first `rows` records of the transaction `inside`, which comes after it.

    It holds for the tables of `held`; None: nothing was read from it yet.

    >>> Position.parsed(Position("0-1-7", 1700000000000001).as_json())
    Position(place='0-1-7', sequence=1700000000000001, rows=0, inside='', held=None)
    """

    place: str
    sequence: int = 0
    rows: int = 0
    inside: str = ""
    held: Held | None = None

    def as_json(self) -> bytes:
        _, version, held = _written(self.held)
        fields = json.dumps({"version": version, **self._replace(held=None)._asdict()})
        return f"{fields.removesuffix('null}')}{held}}}".encode()

    @classmethod
    def parsed(cls, text: bytes) -> Position:
        """UsageError for a version that is newer than ours."""
        fields = json.loads(text)
        version = int(fields.get("version", 1))
        if version > VERSION:
            raise UsageError(
                f"The capture's position was stored by a newer waterclock (version {version} of positions, and this one "
                f"knows {VERSION}): start that one again."
            )
        held = None
        if version == 1:
            held = Held(is_told=False)
        elif fields["held"] is not None:
            held = Held.of_fields(fields["held"])
        return cls(str(fields["place"]), int(fields["sequence"]), int(fields["rows"]), str(fields["inside"]), held)


_latest: tuple[Held | None, int, str] = None, 2, "null"


def _written(held: Held | None) -> tuple[Held | None, int, str]:
    """With its version, and as JSON: one that names thousands of tables is stored with each commit, and seldom changes."""
    global _latest
    found = _latest
    if found[0] is not held:
        older = held.older().values() if held is not None else ()
        version = max((VERSION if rest.since else 3 for rest in older), default=2)
        found = _latest = held, version, json.dumps(None if held is None else held.as_fields())
    return found


class MariaGtidList:
    """MariaDB's GTID list: of every domain the last transaction, as domain-server-number.

    >>> place = MariaGtidList("0-1-7,2-1-3")
    >>> place.add("0-1-8")
    >>> str(place), place.covers(MariaGtidList("0-2-8"))
    ('0-1-8,2-1-3', True)
    """

    def __init__(self, text: str) -> None:
        self._last: dict[int, tuple[int, int]] = {}
        for gtid in _parts(text):
            if not _MARIADB.fullmatch(gtid):
                raise UsageError(f"{gtid!r} is no GTID of MariaDB: write domain-server-number, such as 0-1-57.")
            self.add(gtid)

    def add(self, gtid: str) -> None:
        domain, server, number = map(int, gtid.split("-"))
        self._last[domain] = (server, number)

    def covers(self, other: MariaGtidList) -> bool:
        """Whether everything up to `other` has been read. Servers do not matter: numbers rise within a domain."""
        return all(
            domain in self._last and self._last[domain][1] >= number for domain, (_, number) in other._last.items()
        )

    def beyond(self, written: MariaGtidList) -> bool:
        """Whether it names what a server that has `written` so much has not. A domain may be another server's."""
        shared = self._last.keys() & written._last.keys()
        return bool(self._last) and (
            not shared or any(self._last[domain][1] > written._last[domain][1] for domain in shared)
        )

    def __str__(self) -> str:
        return ",".join(f"{domain}-{server}-{number}" for domain, (server, number) in sorted(self._last.items()))


class MySqlGtidSet:
    """MySQL's GTID set: of every server the transactions that were read, as intervals.

    >>> place = MySqlGtidSet("3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5:7")
    >>> place.add("3e11fa47-71ca-11e1-9e33-c80aa9429562:6")
    >>> str(place)
    '3e11fa47-71ca-11e1-9e33-c80aa9429562:1-7'
    """

    def __init__(self, text: str) -> None:
        self._intervals: dict[str, list[tuple[int, int]]] = {}
        for part in _parts(text.lower()):
            if not _MYSQL.fullmatch(part):
                raise UsageError(f"{part!r} is no GTID set of MySQL: write uuid:1-57, or several with commas between.")
            server, *intervals = part.split(":")
            for interval in intervals:
                first, _, last = interval.partition("-")
                self._merge(server, int(first), int(last or first))

    def add(self, gtid: str) -> None:
        server, _, number = gtid.partition(":")
        self._merge(server, int(number), int(number))

    def _merge(self, server: str, first: int, last: int) -> None:
        intervals = self._intervals.setdefault(server, [])
        if intervals and intervals[-1][0] <= first <= intervals[-1][1] + 1:  # nearly always: the next one
            intervals[-1] = (intervals[-1][0], max(last, intervals[-1][1]))
            return
        merged: list[tuple[int, int]] = []
        for low, high in sorted([*intervals, (first, last)]):
            if merged and low <= merged[-1][1] + 1:
                merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
            else:
                merged.append((low, high))
        intervals[:] = merged

    def covers(self, other: MySqlGtidSet) -> bool:
        """Whether every transaction of `other` has been read."""
        return all(
            any(low <= first and last <= high for low, high in self._intervals.get(server, ()))
            for server, intervals in other._intervals.items()
            for first, last in intervals
        )

    def beyond(self, written: MySqlGtidSet) -> bool:
        """Whether it names what a server that has `written` so much has not."""
        return not written.covers(self)

    def __str__(self) -> str:
        return ",".join(
            ":".join([server, *(f"{low}-{high}" if low < high else str(low) for low, high in intervals)])
            for server, intervals in sorted(self._intervals.items())
        )


def _parts(text: str) -> Iterable[str]:
    return filter(None, (part.strip() for part in text.split(",")))
