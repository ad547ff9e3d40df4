"""A table's columns as the message before its first row describes them, with what the catalog knows of them beside it.

Rule 1: names, types and what stands in brackets behind them are the message's, which says how the table was then.
Rule 2: the catalog is as it is NOW. It is believed for a column that has the message's name and type still, or whose place
        is certain. Columns keep their order for good, and one that was dropped keeps its number: so one that is not found
        has a number between its neighbours'. If there are as many of those as columns, that is certain too; else `unsure`.
Rule 3: older rows have what the server itself keeps for them (attmissingval). If it keeps nothing and the column has a
        DEFAULT, the table may have been written anew with it, and no message says so: not known.
Rule 4: a number is never one that the catalog has for another column: later that would be taken for a renamed one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg

from waterclock.cdc.postgres.rows import Relation
from waterclock.changes.table_schema import ColumnSchema, TableSchema

_COLUMNS = """
    select a.attname::text, a.attnum, a.atttypid::bigint, not a.attnotnull,
        a.attisdropped or a.attgenerated <> '', a.atthasmissing,
        case when a.atthasmissing then (a.attmissingval::text::text[])[1] end, pg_get_expr(d.adbin, d.adrelid)
    from pg_attribute a left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
    where a.attrelid = %s and a.attnum > 0 order by a.attnum
"""


def shape(asking: psycopg.Connection[Any], relation: Relation, since: tuple[int, int]) -> TableSchema:
    """The schema that holds from `since` on."""
    there = asking.execute(_COLUMNS, (relation.number,)).fetchall()
    shown = [row for row in there if not row[4]]
    by_name = {(row[0], row[2]): row for row in shown}
    in_place = len(shown) == len(there) == len(relation.names)
    places = enumerate(zip(relation.names, relation.oids, strict=True))
    found = [shown[place] if in_place else by_name.get(column) for place, column in places]
    numbers, is_sure = _numbers([row[1] if row else 0 for row in found], {row[1]: not row[4] for row in there})
    by_number = {row[1]: row for row in shown}
    columns = []
    for name, number in zip(relation.names, numbers, strict=True):
        text, row = relation.types[name].text, by_number.get(number)
        if row is None:
            columns.append(ColumnSchema(name, text, number=number))
            continue
        _, _, _, nullable, _, kept, older, default = row
        columns.append(ColumnSchema(name, text, nullable, number, "", default, older, kept or default is None))
    named = relation.schema, relation.table
    return TableSchema("postgres", *named, since, tuple(columns), relation.key, not is_sure)


def _numbers(found: Sequence[int], there: dict[int, bool]) -> tuple[list[int], bool]:
    """Rule 2: the columns' numbers, of which some were found, and whether all are certain. `there`: all that there are, and
    whether a column has it now.

    >>> _numbers([1, 0, 3], {1: True, 2: False, 3: True}), _numbers([1, 0, 4], {1: True, 2: False, 3: False, 4: True})
    (([1, 2, 3], True), ([1, 3, 4], False))
    """
    numbers = [number if number < min([n for n in found[at + 1 :] if n] or [number + 1]) else 0
               for at, number in enumerate(found)]  # fmt: skip
    is_sure, last = True, 0
    for at, number in enumerate(numbers):
        if number:
            last = number
            continue
        behind = next((n for n in numbers[at:] if n), len(numbers) + max(there, default=0))
        count = next((more for more, n in enumerate(numbers[at:]) if n), len(numbers) - at)
        free = [n for n in there if last < n < behind]
        dropped = [n for n in free if not there[n]]
        if len(free) < count:  # one that was found by its name is another one
            return [0] * len(numbers), False
        is_sure &= len(free) == count
        chosen = free if len(free) == count else (dropped if len(dropped) >= count else free)[-count:]
        numbers[at : at + count] = chosen
        last = numbers[at]
    return numbers, is_sure
