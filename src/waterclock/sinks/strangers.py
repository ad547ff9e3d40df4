"""Tables that have the name of one of a sink's and are somebody else's: they are reported, and left alone."""

from __future__ import annotations

from collections.abc import Callable

from waterclock.errors import UsageError
from waterclock.sinks.mirrors.mirror import DELETED, Mirror
from waterclock.sinks.mirrors.replica import POSITION_COLUMNS, Replica
from waterclock.sinks.results import COMMON
from waterclock.sinks.tables import BATCH_NAMES, BATCHES, DEAD_LETTERS, DEAD_NAMES, POSITIONS, Table

Find = Callable[[str], Table]  # a table by the end of its name, as it stands; without columns where there is none


def needed_names(mirror: Mirror | Replica | None) -> dict[str, set[str]]:
    """By the end of a table's name, the columns that show it to be a sink's: what lacks them is somebody else's."""
    ours = {DEAD_LETTERS: {*DEAD_NAMES}, BATCHES: {*BATCH_NAMES}}
    if mirror is None:
        return {"": {"batch_id", *COMMON}, **ours}
    if isinstance(mirror, Replica):
        return {POSITIONS: {*POSITION_COLUMNS}, **ours}
    return {"": {*mirror.columns}, POSITIONS: {*mirror.key, DELETED}, **ours}


def needed_of_results(batches: set[str]) -> set[str]:
    """The columns that show a table of results to be a sink's, where the table of batches beside it has these columns.

    Beside one of a sink's, which is made together with it, the results may have any columns: a user's own step makes them.
    """
    return {"batch_id"} if batches >= {*BATCH_NAMES} else {"batch_id", *COMMON}


def refuse_no_mirror(what: str, find: Find) -> None:
    """Raise UsageError where the table that is to be a mirror is there and has no positions; `what` describes it."""
    if find("").columns and not find(POSITIONS).columns:
        raise UsageError(
            f"{what} is there already, without positions beside it: it is no mirror that waterclock made, and is left "
            "alone. Name another table in [sink]."
        )


def refuse_to_drop(mirror: Mirror | Replica | None, table: str, place: str, find: Find) -> None:
    """Raise UsageError where one of the tables of the sink `table` in `place` is somebody else's."""
    for part, needed in needed_names(mirror).items():
        there = {name for name, _ in find(part).columns}
        if part == "" and mirror is None and "batch_id" in there:
            needed = needed_of_results({name for name, _ in find(BATCHES).columns})
        if there and not there >= needed:
            raise UsageError(
                f"the table {table + part!r} in {place} is none that waterclock made, so it is not removed: name another "
                "table in [sink]"
            )
    if isinstance(mirror, Mirror):
        refuse_no_mirror(f"the table {table!r} in {place}", find)
