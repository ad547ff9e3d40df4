"""A table's columns as the message before its first row describes them, with what the catalog knows of them beside it.

Rule 1: names, types and what stands in brackets behind them are the message's, which says how the table was then.
Rule 2: the catalog is as it is NOW. It is believed for a column that has the message's name and type still, or whose place
        is certain: as many columns as there were, and none dropped. Else nothing tells which column it is: `unsure`.
Rule 3: older rows have what the server itself keeps for them (attmissingval). If it keeps nothing and the column has a
        DEFAULT, the table may have been written anew with it, and no message says so: not known.
"""

from __future__ import annotations

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
    columns, unsure = [], False
    for place, (name, oid) in enumerate(zip(relation.names, relation.oids, strict=True)):
        text = relation.types[name].text
        found = shown[place] if in_place else by_name.get((name, oid))
        if found is None:
            unsure = True
            columns.append(ColumnSchema(name, text))
            continue
        _, number, _, nullable, _, kept, older, default = found
        columns.append(ColumnSchema(name, text, nullable, number, "", default, older, kept or default is None))
    if unsure:  # then all go by their names
        columns = [column._replace(number=0) for column in columns]
    return TableSchema("postgres", relation.schema, relation.table, since, tuple(columns), relation.key, unsure)
