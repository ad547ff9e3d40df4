"""Tables that have the name of one of a sink's and are somebody else's: they are reported, and left alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from waterclock.errors import UsageError
from waterclock.sinks.mirrors.replica import POSITION_COLUMNS
from waterclock.sinks.tables.results import COMMON
from waterclock.sinks.tables.tables import BATCH_NAMES, BATCHES, DEAD_LETTERS, DEAD_NAMES, POSITIONS, Table

Find = Callable[[str], Table]  # a table by the end of its name, as it stands; without columns if there is none
_SIDES = {DEAD_LETTERS: {*DEAD_NAMES}, BATCHES: {*BATCH_NAMES}}
# by the end of a table's name, the columns that show it to be a sink's: what lacks them is somebody else's
OF_RESULTS: Mapping[str, set[str]] = {"": {"batch_id", *COMMON}, **_SIDES}
OF_CHANGES: Mapping[str, set[str]] = {POSITIONS: {*POSITION_COLUMNS}, **_SIDES}


def needed_of_results(batches: set[str]) -> set[str]:
    """The columns that show a table of results to be a sink's, if the table of batches beside it has these columns.

    Beside one of a sink's, which is made together with it, the results may have any columns: a user's own step makes them.
    """
    return {"batch_id"} if batches >= {*BATCH_NAMES} else {"batch_id", *COMMON}


def refuse_beside_changes(needed_by_part: Mapping[str, set[str]], what: str, positions: set[str]) -> None:
    """Raise UsageError if a sink of results is to remove `what`, and a table of positions with these columns stands there:
    what it would take for its own are batches and dead letters of a sink of changes."""
    if POSITIONS not in needed_by_part and positions >= {*POSITION_COLUMNS}:
        raise UsageError(f"{what} is of a sink of changes, so it is not removed: name another table in [sink]")


def refuse_to_drop(needed_by_part: Mapping[str, set[str]], table: str, place: str, find: Find) -> None:
    """Raise UsageError if one of the tables of the sink `table` in `place` is somebody else's, or of a sink of changes."""
    there = {part: {name for name, _ in find(part).columns} for part in (*needed_by_part, BATCHES, POSITIONS)}
    refuse_beside_changes(needed_by_part, f"the table {table!r} in {place}", there[POSITIONS])
    for part, needed in needed_by_part.items():
        if part == "" and "batch_id" in there[part]:
            needed = needed_of_results(there[BATCHES])
        if there[part] and not there[part] >= needed:
            raise UsageError(
                f"the table {table + part!r} in {place} is none that waterclock made, so it is not removed: name another "
                "table in [sink]"
            )
