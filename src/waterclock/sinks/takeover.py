"""A mirrored table whose changes come from another writer than before: a capture behind Debezium or Maxwell.

Each writer gives its positions in a form of its own: offsets, an LSN, a file with a place. Of two forms neither says which
change is newer, but for one, and so a capture can take a table over (`waterclock move debezium`):

Rule 1: a capture's position begins with the time in microseconds, which is larger than any offset or place below 10^15.
Rule 2: what comes behind a capture's change, and is another writer's, is refused, never passed over as older: the capture
        was left again, or the writers write at once.

We doubt: a truncate in the same batch is taken for the later one, as keys of several partitions have no order there.
"""

from __future__ import annotations

from collections.abc import Sequence

from waterclock.changes.packed import PackedChange
from waterclock.errors import UsageError

_LENGTH = 32  # of a capture's position: a sequence, and a number within its transaction
_FIRST = f"{10**15:016x}"  # none is smaller
FROM_CAPTURE = f"length(position) = {_LENGTH} AND position > '{_FIRST}'"  # in SQL


def is_others(position: str) -> bool:
    """Whether it is a position, and none of `waterclock cdc`.

    >>> is_others(f"{4:016x}"), is_others(f"{1_790_000_000_000_000:016x}{4:016x}"), is_others("")
    (True, False, False)
    """
    return position != "" and (len(position) != _LENGTH or position < _FIRST)


def refuse_others(table: str, positions: Sequence[str], known: str, truncated: str) -> None:
    """UsageError if positions cannot be compared with a `known` one of the table, or with its last truncate; "" is none."""
    if len({len(each) for each in (known, *positions) if is_others(each)}) > 1:
        raise UsageError(
            f"the changes of {table} give their positions in two ways, which cannot be compared: some by the source's own "
            "places and some by offsets. Let their writer give all in one way, into topics of its own, read those, and "
            "start over with --fresh"
        )
    if truncated and not is_others(truncated) and any(map(is_others, positions)):
        raise turned_back(table)


def refuse_turned(rows: Sequence[PackedChange]) -> None:
    """UsageError if a key's changes, in the order in which they came, go back to another writer (rule 2)."""
    if len({len(row.position) for row in rows}) < 2:
        return
    last: dict[tuple[str, str], str] = {}
    for row in rows:
        before = last.get((row.table, row.key))
        if row.key and before and not is_others(before) and is_others(row.position):
            raise turned_back(row.table)
        last[row.table, row.key] = row.position


def older_rows(table: str, positions: str, staged: str) -> str:
    """The statement that tells of the staged rows that are not newer than what is known of their keys, by how many letters
    their positions differ: 0 for those of one form, which may be passed over; anything else breaks rule 2."""
    return (
        f"SELECT DISTINCT length(p.position) - length(c._waterclock_position) FROM {staged} AS c JOIN {positions} AS p "
        f"ON p.table_name = {table} AND p.key = c._waterclock_key WHERE p.position >= c._waterclock_position"
    )


def turned_back(table: str) -> UsageError:
    """What to say where rule 2 is broken."""
    return UsageError(
        f"a change of {table} came behind those of a capture of waterclock, and another program wrote it: which is newer "
        "cannot be known. Let one of the two write, into topics of its own, read those, and start over with --fresh"
    )
