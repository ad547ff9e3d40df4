"""What is asked for and what is held are compared at every start, in both directions.

Held is what the position says (held.py). Asked for is what this start's options name, as far as the source brings it.

    asked for and not held      the table is new. Its rows from before the position would not come. It is refused, unless it
                                has none or the user gives a word for it (--new-tables from-now); or they come as well
                                (--snapshot when-needed)
    held and not asked for      the table is let go, and that is said; asked for again, it is new
    held, and known by another  the source did not bring it for a while: it is new, with rows or without
    mark than before
    a position of version 1     says nothing of tables: it is taken to hold for what is asked for, and that is said

Rule 1: a first start is not asked here: what it finds older than the log comes as well, or it has said it itself
        (source.py).
Rule 2: a transaction that is half in Kafka is counted by the tables that were asked for then: until it is whole, nothing
        else may be asked for.
Rule 3: what is agreed to stands in Kafka before the first change that follows from it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace

from waterclock.cdc.held import Held, HeldTable, OlderRest
from waterclock.cdc.position import Position
from waterclock.cdc.source import OlderRows
from waterclock.errors import UsageError
from waterclock.wording import counted

log = logging.getLogger("waterclock.cdc")
ASK, FROM_NOW = "ask", "from-now"
INITIAL, WHEN_NEEDED, NEVER = "initial", "when-needed", "never"


@dataclass(frozen=True, slots=True)
class Terms:
    """The words that the user gave. `new_tables`: what is done about a table that is not held; `as_published`: whether a
    publication that leaves something out is taken as it is; `skip_to`: the place to which everything is left out;
    `snapshot`: of which tables the older rows come; `gives_up`: whether those that are still to come do not any more."""

    new_tables: str = ASK
    as_published: bool = False
    skip_to: str = ""
    snapshot: str = NEVER
    gives_up: bool = False


def agreed(
    position: Position,
    asked: Held,
    there: Iterable[str],
    older: Callable[[Collection[str]], list[OlderRows]],
    terms: Terms,
    first: Callable[[], Iterable[str]] = tuple,
) -> Held:
    """What is held from here on; UsageError for tables that are new. `there` are the tables of the database, `older` counts
    the rows of some of them, and leaves out those that have none. `first`: those that are older than the log at a first
    start."""
    held = position.held
    if held is None:
        return asked.with_older({} if terms.snapshot == NEVER else dict.fromkeys(first(), OlderRest()))
    if not held.is_told:
        _say_that_it_is_old(position, asked)
        return asked
    if terms.gives_up and (left := held.older()):
        rows = ", ".join(f"{table} ({counted(rest.rows, 'row')} came)" for table, rest in left.items())
        log.warning("Older rows of these tables do not come any more (--snapshot never): %s.", rows)
        held = held.with_older({})
    there = sorted(there)
    new = [table for table in there if asked.holds(table) and not held.holds(table)]
    gone = [table for table in there if held.holds(table) and not asked.holds(table)]
    anew = [name for name, mark in asked.tables.items() if name in held.tables and held.tables[name].mark != mark.mark]
    if position.rows and (new or gone or held.scope != asked.scope):
        raise UsageError(
            f"The transaction {position.inside} is half in Kafka, and its rest is counted by tables that were asked for "
            f"when it began: {_names(held)}. Ask for these once more (--tables), until it is whole."
        )
    if terms.snapshot != WHEN_NEEDED:
        _ask(position.place, held, older(new) if new else [], _among(older(anew), anew) if anew else [], terms)
    _say_what_is_let_go(position.place, gone)
    comes = OlderRest(since=position.sequence) if terms.snapshot == WHEN_NEEDED else None
    later = dict.fromkeys([*new, *anew], HeldTable(position.place, older=comes))
    tables = {name: table for name, table in {**held.tables, **later}.items() if asked.holds(name)}
    for name, table in asked.tables.items():
        tables[name] = tables.get(name, table)._replace(mark=table.mark)
    return replace(asked, tables=tables)


def _say_that_it_is_old(position: Position, asked: Held) -> None:
    log.warning(
        "The position %s was stored by an older version, which did not say for which tables it holds. It is taken to "
        "hold for all that is asked for now: %s. If a table was added since, what it had before does not come.",
        position.place,
        _names(asked),
    )


def _say_what_is_let_go(place: str, gone: list[str]) -> None:
    if gone:
        log.warning(
            "No longer asked for, or not brought any more: %s. What changes in them after %s does not come, and if they "
            "are asked for again they are new.",
            ", ".join(gone),
            place,
        )


def _ask(place: str, held: Held, new: list[OlderRows], anew: list[OlderRows], terms: Terms) -> None:
    """Refuse tables that are new, unless they have no rows or the user has a word for them."""
    said = [each.as_text() for each in new]
    said += [f"{each.as_text()}, made anew or not brought for a while" for each in anew]
    if not said:
        return
    why = f"The position {place} does not hold for tables that are asked for: {'; '.join(said)}"
    if terms.new_tables == FROM_NOW:
        log.warning("%s. What is older than the position does not come (--new-tables from-now).", why)
        return
    raise UsageError(
        f"{why}. What is older than the position would not come. To begin with them at the position, and copy by hand what "
        f"was before: --new-tables from-now. To go on without them ask for what is held: "
        f"{_names(held, [each.table for each in anew])} (--tables)."
    )


def _names(held: Held, but: Collection[str] = ()) -> str:
    bare = replace(held, tables={})
    own = [name for name in held.tables if name not in but and not bare.holds(name)]
    return ", ".join([*(held.scope if held.opened else ()), *own]) or ", ".join(held.scope)


def _among(found: list[OlderRows], names: list[str]) -> list[OlderRows]:
    """Those tables, with the rows that were found: none is something to say too."""
    rows = {each.table: each for each in found}
    return [rows.get(name, OlderRows(name, 0)) for name in names]
