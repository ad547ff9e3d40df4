"""What the tables of a sink must be, whichever database they stand in, and what is said of one that differs.

<table>                 results, a row each (results.py)
<table>_dead_letters    what could not be read, or not be kept: batch_id, file, line, reason, text
<table>_batches         a row a batch: query_id, batch_id, offsets, counters, watermark, seconds
<table>_positions       of changes of tables: a row for each key that was ever seen, and the position of its last change
<table>_owner           where a checkpoint may be taken over: whose turn it is to write (epochs.py)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from waterclock.errors import UsageError

DEAD_LETTERS, BATCHES, POSITIONS = "_dead_letters", "_batches", "_positions"
DEAD_NAMES = ("batch_id", "file", "line", "reason", "text")
BATCH_NAMES = ("query_id", "batch_id", "offsets", "counters", "watermark", "seconds")
BATCH_KEY = ("query_id", "batch_id")


@dataclass(frozen=True, slots=True)
class Table:
    """A table of a sink as it stands or should stand; `columns` are (name, type in the words of the database)."""

    part: str  # the end of its name, behind the sink's own
    columns: tuple[tuple[str, str], ...]
    key: tuple[str, ...] = ()

    def definition(self) -> str:
        """What stands between the brackets of CREATE TABLE.

        >>> Table("", (("id", "INTEGER"), ("a b", "TEXT")), ("id",)).definition()
        '"id" INTEGER NOT NULL, "a b" TEXT, PRIMARY KEY ("id")'
        """
        never_null = dict.fromkeys(self.key, " NOT NULL")
        parts = [f"{quoted(name)} {kind}{never_null.get(name, '')}" for name, kind in self.columns]
        return ", ".join([*parts, *([f"PRIMARY KEY ({listed(self.key)})"] if self.key else [])])


def quoted(name: str) -> str:
    """A name as SQL writes it, whatever is in it."""
    return '"' + name.replace('"', '""') + '"'


def listed(names: tuple[str, ...] | list[str]) -> str:
    """Names as a list in SQL."""
    return ", ".join(map(quoted, names))


def refuse(faults: Iterable[str]) -> None:
    """Raise UsageError with the first of the faults, if there is one."""
    for fault in faults:
        raise UsageError(fault)


def told_by(*checks: Callable[[], object]) -> list[str]:
    """What those checks say that refuse something."""
    told: list[str] = []
    for check in checks:
        try:
            check()
        except UsageError as error:
            told.append(str(error))
    return told


def unlike(where: str, found: Table, wanted: Table, kind: str = "table") -> list[str]:
    """What is to be said of `found` if it is not the `wanted` table, with each column that differs: one sentence, or none.
    `kind` is what the place calls it."""
    differences = "; ".join(_differences(found, wanted))
    told = (
        f"{where} has other columns than this pipeline writes ({differences}). "
        f"Name another {kind} in [sink], or start over with --fresh."
    )
    return [told] if differences else []


def lost(table: str, place: str, rows: Mapping[str, bool | None]) -> list[str]:
    """What is to be said if some tables of the sink `table` hold rows and another one is gone, with all that it held.

    `rows` says it by the end of a table's name: whether there are any, None if there was no table.
    """
    gone = [part for part, found in rows.items() if found is None] if any(rows.values()) else []
    return [
        f"the table {table + part!r} in {place} is gone, and those beside it hold rows. Restore it (to empty a table, "
        "delete its rows), or start over with --fresh."
        for part in gone
    ]


def _differences(found: Table, wanted: Table) -> list[str]:
    there, here = dict(found.columns), dict(wanted.columns)
    differences = [f"{name!r} is missing there" for name in here if name not in there]
    differences += [f"{name!r} is only there" for name in there if name not in here]
    both = [name for name in here if name in there]
    differences += [
        f"{name!r} is {there[name]} there and {here[name]} here" for name in both if there[name] != here[name]
    ]
    if not differences and found.columns != wanted.columns:
        differences.append("they stand in another order there")
    if wanted.key and sorted(found.key) != sorted(wanted.key):
        differences.append(f"the primary key is ({', '.join(found.key)}) there and ({', '.join(wanted.key)}) here")
    return differences
