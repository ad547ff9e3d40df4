"""For which tables a position holds: of these everything that the log had stands in Kafka, from where each began on.

Rule 1: `scope` are the patterns that were asked for, `opened` those of which the source brings tables that are made later.
        A table that both have is held from its first row on, whenever it is made.
Rule 2: `tables` are those that have something of their own to say: they began later than the capture, or the source brings
        them one by one (a publication's list).
Rule 3: what a newer version of this program stored is not guessed at: it is refused.
Rule 4: a table of which older rows are still to come says so, and where their next chunk begins (snapshot.py).
Rule 5: a table that was dropped, of which a target has the rows, is marked so until one of its name is made. More than
        MOST_DROPPED become the patterns of their databases, as with DROP DATABASE: a position is stored often, and whole.
Rule 6: where the log numbers its tables (PostgreSQL), `numbers` has the one that a name had when the table was met last:
        another one is another table. 0: that table has another name now.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

EVERY = "*"
DROPPED = "dropped"
MOST_DROPPED = 500


class OlderRest(NamedTuple):
    """What of a table's older rows is still to come. `after`: the key of the last one that came, `upto` the largest key,
    each value as the source writes it, and None before the first chunk; `rows`: how many came; `since`: the sequence up to
    which a target may have rows of the table that are gone (snapshot.py), 0 if none has; `key`: by which key they came."""

    after: tuple[str, ...] | None = None
    upto: tuple[str, ...] | None = None
    rows: int = 0
    since: int = 0
    key: str = ""

    def by(self, key: str) -> OlderRest:
        """The same by this key; from the beginning, if the rows that came were of another one: they had another order.

        >>> OlderRest(("7",), ("9",), 5, 3, "id int").by("id int").after
        ('7',)
        >>> OlderRest(("7",), ("9",), 5, 3, "id int").by("n int")
        OlderRest(after=None, upto=None, rows=0, since=3, key='n int')
        """
        return self._replace(key=key) if self.key in ("", key) else OlderRest(since=self.since, key=key)

    @classmethod
    def of_fields(cls, fields: Mapping[str, Any]) -> OlderRest:
        after, upto = (None if (key := fields[name]) is None else tuple(map(str, key)) for name in ("after", "upto"))
        return cls(after, upto, int(fields["rows"]), int(fields.get("since", 0)), str(fields.get("key", "")))


class HeldTable(NamedTuple):
    """A table of its own. `since`: the place from which on it is held, "" for where the capture began; `mark`: what the
    source knows it by, which is another one after it was not brought for a while; `older`: None if it is held whole."""

    since: str = ""
    mark: str = ""
    older: OlderRest | None = None

    def as_fields(self) -> dict[str, Any]:
        fields: dict[str, Any] = {name: value for name, value in self._asdict().items() if value}
        return fields if self.older is None else {**fields, "older": self.older._asdict()}

    @classmethod
    def of_fields(cls, fields: Mapping[str, Any]) -> HeldTable:
        older = OlderRest.of_fields(fields["older"]) if "older" in fields else None
        return cls(str(fields.get("since", "")), str(fields.get("mark", "")), older)


@dataclass(frozen=True, slots=True)
class Held:
    """What is held. `server` says whose log it is, in the source's own words, `published` what the source brings. `is_told`
    is False for a position of version 1, which says nothing of it.

    >>> held = Held(("shop.*",), tables={"till.sale": HeldTable("0-1-7")})
    >>> held.holds("shop.item"), held.holds("till.sale"), held.holds("till.item")
    (True, True, False)
    """

    scope: tuple[str, ...] = (EVERY,)
    opened: tuple[str, ...] = (EVERY,)
    tables: Mapping[str, HeldTable] = field(default_factory=dict)
    server: Mapping[str, str] = field(default_factory=dict)
    published: str = ""
    is_told: bool = True
    numbers: Mapping[str, int] = field(default_factory=dict)

    def holds(self, table: str) -> bool:
        return table in self.tables or (_has(self.scope, table) and _has(self.opened, table))

    def older(self) -> dict[str, OlderRest]:
        """The tables of which older rows are still to come."""
        return {name: table.older for name, table in self.tables.items() if table.older is not None}

    def with_older(self, older: Mapping[str, OlderRest]) -> Held:
        """The same with older rows to come of these tables only; a table that has nothing of its own left is not named.

        >>> Held(tables={"a.b": HeldTable(older=OlderRest())}).with_older({}).tables
        {}
        """
        named = dict.fromkeys([*self.tables, *older], HeldTable())
        return self._with(
            {name: self.tables.get(name, table)._replace(older=older.get(name)) for name, table in named.items()}
        )

    def dropped(self) -> set[str]:
        """The names of rule 5."""
        return {name for name, table in self.tables.items() if table.mark == DROPPED}

    def names(self, database: str, table: str) -> set[str]:
        """The table's; of EVERY table of a database all names and patterns that these have here.

        >>> sorted(Held(("shop.item", "*.s*", "till.t")).names("shop", EVERY))
        ['shop.item', 'shop.s*']
        >>> Held(("shop.de.*",)).names("shop.de", EVERY)
        {'shop.de.*'}
        """
        if table != EVERY:
            return {f"{database}.{table}"}
        parted = [(p[:at], p[at + 1 :]) for p in self.scope for at, letter in enumerate(f"{p}.") if letter == "."]
        return {f"{database}.{each or EVERY}" for of, each in parted if fnmatch.fnmatchcase(database, of)}

    def with_dropped(self, names: Collection[str]) -> Held:
        """The same with these names of rule 5.

        >>> held = Held(tables={"a.b": HeldTable(mark=DROPPED)}).with_dropped({"a.c"})
        >>> held.dropped(), list(held.tables)
        ({'a.c'}, ['a.c'])
        """
        if len(names) > MOST_DROPPED:
            databases = {name.partition(".")[0] for name in names}
            names = {pattern for database in databases for pattern in self.names(database, EVERY)}
        former = {name: table._replace(mark="") for name, table in self.tables.items() if table.mark == DROPPED}
        tables = {**self.tables, **former}
        return self._with(tables | {name: tables.get(name, HeldTable())._replace(mark=DROPPED) for name in names})

    def with_numbers(self, numbers: Mapping[str, int]) -> Held:
        """The same with these of rule 6, as far as it holds the tables.

        >>> Held(("shop.*",)).with_numbers({"shop.item": 7, "till.sale": 8}).numbers
        {'shop.item': 7}
        """
        return replace(self, numbers={name: number for name, number in numbers.items() if self.holds(name)})

    def _with(self, tables: Mapping[str, HeldTable]) -> Held:
        bare = replace(self, tables={})
        kept = {name: table for name, table in tables.items() if any(table) or not bare.holds(name)}
        return replace(self, tables=kept)

    def as_fields(self) -> dict[str, Any]:
        """What stands in Kafka: what is as it is by default is left out.

        >>> Held.of_fields(Held(("shop.*",), tables={"a.b": HeldTable("0-1-7")}).as_fields()).tables
        {'a.b': HeldTable(since='0-1-7', mark='', older=None)}
        """
        fields = asdict(self)
        del fields["is_told"]
        if not self.numbers:
            del fields["numbers"]
        of_tables = {name: table.as_fields() for name, table in self.tables.items()}
        return {**fields, "tables": of_tables}

    @classmethod
    def of_fields(cls, fields: Mapping[str, Any]) -> Held:
        of_tables = {name: HeldTable.of_fields(table) for name, table in fields["tables"].items()}
        server = {str(name): str(value) for name, value in fields["server"].items()}
        numbers = {str(name): int(number) for name, number in fields.get("numbers", {}).items()}
        return cls(
            tuple(fields["scope"]),
            tuple(fields["opened"]),
            of_tables,
            server,
            str(fields["published"]),
            numbers=numbers,
        )


def _has(patterns: tuple[str, ...], table: str) -> bool:
    return any(fnmatch.fnmatchcase(table, pattern) for pattern in patterns)
