"""Tables that have the name of one of a sink's and are somebody else's: they are reported, and left alone."""

from __future__ import annotations

from collections.abc import Callable

from waterclock.errors import UsageError
from waterclock.sinks.mirrors.replica import POSITION_COLUMNS, Replica
from waterclock.sinks.results import COMMON
from waterclock.sinks.tables import BATCH_NAMES, BATCHES, DEAD_LETTERS, DEAD_NAMES, POSITIONS, Table

Find = Callable[[str], Table]  # a table by the end of its name, as it stands; without columns where there is none


def needed_names(mirror: Replica | None) -> dict[str, set[str]]:
    """By the end of a table's name, the columns that show it to be a sink's: what lacks them is somebody else's."""
    ours = {DEAD_LETTERS: {*DEAD_NAMES}, BATCHES: {*BATCH_NAMES}}
    if mirror is None:
        return {"": {"batch_id", *COMMON}, **ours}
    return {POSITIONS: {*POSITION_COLUMNS}, **ours}


def needed_of_results(batches: set[str]) -> set[str]:
    """The columns that show a table of results to be a sink's, where the table of batches beside it has these columns.

    Beside one of a sink's, which is made together with it, the results may have any columns: a user's own step makes them.
    """
    return {"batch_id"} if batches >= {*BATCH_NAMES} else {"batch_id", *COMMON}


def refuse_to_drop(mirror: Replica | None, table: str, place: str, find: Find) -> None:
    """Raise UsageError if one of the tables of the sink `table` in `place` is somebody else's, or of a sink of changes."""
    needed_by_part = needed_names(mirror)
    if mirror is None and {name for name, _ in find(POSITIONS).columns} >= {*POSITION_COLUMNS}:
        raise UsageError(
            f"the table {table!r} in {place} is of a sink of changes, so it is not removed: name another table in [sink]"
        )
    for part, needed in needed_by_part.items():
        there = {name for name, _ in find(part).columns}
        if part == "" and "batch_id" in there:
            needed = needed_of_results({name for name, _ in find(BATCHES).columns})
        if there and not there >= needed:
            raise UsageError(
                f"the table {table + part!r} in {place} is none that waterclock made, so it is not removed: name another "
                "table in [sink]"
            )
