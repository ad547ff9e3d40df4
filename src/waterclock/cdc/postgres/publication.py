"""What a publication brings of what is asked for, and what it leaves out: all that PostgreSQL knows of it is looked at, at
every start.

Rule 1: what it leaves out is refused, or taken with a word (--as-published): kinds of changes, rows (WHERE), columns,
        tables that are asked for; also what it may have left out: it was altered since it was looked at last.
Rule 2: what no publication can bring is told at every start, and not refused: unlogged tables; under
        publish_via_partition_root what becomes of a partition as a whole; and which of two rows has a key that both had for
        a while, as a DEFERRABLE primary key lets them.
"""

from __future__ import annotations

import glob
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import psycopg
from psycopg import sql

from waterclock.cdc.held import EVERY, Held, HeldTable
from waterclock.cdc.source import TableFilter
from waterclock.errors import UsageError

log = logging.getLogger("waterclock.cdc")
_PLAIN = re.compile(r"[a-z_][a-z0-9_]*")
_KINDS = ("insert", "update", "delete", "truncate")
_PUBLICATION = "select to_jsonb(p), oid || ':' || xmin from pg_publication p where pubname = %s"
_SCHEMAS = (  # since PostgreSQL 15
    "select n.nspname::text from pg_publication_namespace s join pg_namespace n on n.oid = s.pnnspid "
    "join pg_publication p on p.oid = s.pnpubid where p.pubname = %s"
)
_PUBLISHED = (
    "select to_jsonb(t), coalesce(r.oid || ':' || r.xmin, ''), c.relkind = 'p', array(select attname::text from "
    "pg_attribute where attrelid = c.oid and attnum > 0 and not attisdropped and attgenerated = '') "
    "from pg_publication_tables t join pg_namespace n on n.nspname = t.schemaname "
    "join pg_class c on c.relnamespace = n.oid and c.relname = t.tablename join pg_publication p on p.pubname = t.pubname "
    "left join pg_publication_rel r on r.prrelid = c.oid and r.prpubid = p.oid where t.pubname = %s"
)
_THERE = (  # at last the partitioned table of which it is a part, however deep, and whether its primary key is DEFERRABLE
    "select n.nspname::text, c.relname::text, c.relkind::text, c.relpersistence::text, c.oid::bigint, coalesce((select "
    "rn.nspname || '.' || rc.relname from pg_class rc join pg_namespace rn on rn.oid = rc.relnamespace where "
    "c.relispartition and rc.oid = pg_partition_root(c.oid)), ''), "
    "exists (select from pg_index i where i.indrelid = c.oid and i.indisprimary and not i.indimmediate) "
    "from pg_class c join pg_namespace n on n.oid = c.relnamespace where c.relkind in ('r', 'p') "
    "and c.relpersistence <> 't' order by 1, 2"
)


class PublishedTable(NamedTuple):
    """`mark` is another one after the table was taken out of the publication and put back; "" if it is there by a rule."""

    mark: str
    partitioned: bool
    where: str
    lacking: list[str]


class DatabaseTable(NamedTuple):
    schema: str
    table: str
    kind: str
    persistence: str
    number: int
    root: str
    is_deferrable: bool = False

    @property
    def name(self) -> str:
        return f"{self.schema}.{self.table}"


def in_sql(*names: str) -> str:
    """A name as a statement takes it.

    >>> in_sql("public", "item"), in_sql("public", "Order")
    ('public.item', 'public."Order"')
    """
    return ".".join(name if _PLAIN.fullmatch(name) else sql.Identifier(name).as_string() for name in names)


@dataclass(frozen=True, slots=True)
class Publication:
    """One as it is now, beside the tables of the database."""

    name: str
    mark: str
    fields: Mapping[str, Any]
    schemas: Sequence[str]
    tables: Mapping[str, PublishedTable]
    there: Sequence[DatabaseTable]

    @property
    def by_root(self) -> bool:
        return bool(self.fields.get("pubviaroot"))

    @property
    def opened(self) -> tuple[str, ...]:
        """Patterns of which it brings tables that are made later."""
        return (EVERY,) if self.fields["puballtables"] else tuple(f"{glob.escape(name)}.*" for name in self.schemas)

    def asked(self, wanted: TableFilter, server: Mapping[str, str]) -> Held:
        """What is asked for, as far as this brings it: tables of a list are named, they are all that it brings."""
        held = Held(wanted.patterns or (EVERY,), self.opened, {}, server, self.mark)
        named = [name for name in self.tables if wanted(*name.split(".", 1)) and not held.holds(name)]
        return replace(held, tables={name: HeldTable(mark=self.tables[name].mark) for name in named})

    def absent(self, wanted: TableFilter, held: Held | None) -> list[str]:
        """Tables that are there, asked for by a pattern or held, and not brought."""
        found = []
        for table in self.there:
            asked = wanted.patterns or (held is not None and table.name in held.tables)
            asked = asked and wanted(table.schema, table.table) and table.persistence == "p"
            whole = table.kind == "r" or (table.schema, table.table) in wanted.names()
            by_root = self.by_root and table.root in self.tables and wanted(*table.root.split(".", 1))
            if asked and whole and not by_root and table.name not in self.tables:
                found.append(table.name)
        return found

    def left_out(self, wanted: TableFilter, held: Held | None) -> list[str]:
        """Rule 1, a sentence's part for each."""
        kinds = [kind for kind in _KINDS if not self.fields.get(f"pub{kind}", True)]
        said = [f"it publishes no {', no '.join(kinds)}"] if kinds else []
        if not self.tables and not self.opened:
            said.append("it has no table")
        for name, table in self.tables.items():
            if wanted(*name.split(".", 1)):
                said += [f"of {name} only the rows with {table.where}"] if table.where else []
                said += [f"{name} without {', '.join(table.lacking)}"] if table.lacking else []
        if absent := self.absent(wanted, held):
            partitioned = [table.name for table in self.there if table.kind == "p" and table.name in absent]
            named = [in_sql(table.schema, table.table) for table in self.there if table.name in absent]
            remedy = f"ALTER PUBLICATION {in_sql(self.name)} ADD TABLE {', '.join(named)}"
            remedy += "; of a partitioned table, ask for its partitions" if partitioned else ""
            said.append(f"it does not bring {', '.join(absent)} ({remedy})")
        if held is not None and held.published not in ("", self.mark):
            said.append(
                "it was altered or made anew since this capture began to read, and may have left out something then"
            )
        return said

    def refuse(self, wanted: TableFilter, held: Held | None, accepted: bool) -> None:
        """UsageError for what it leaves out, unless that is accepted."""
        if not accepted and (said := "; ".join(self.left_out(wanted, held))):
            raise UsageError(
                f"The publication {self.name} leaves something out: {said}. What it does not publish does not come. Alter "
                "it (ALTER PUBLICATION), ask for less (--tables), or take it as it is: --as-published"
            )

    def unlogged(self, wanted: TableFilter) -> list[str]:
        """Of rule 2."""
        return [table.name for table in self.there if table.persistence == "u" and wanted(table.schema, table.table)]

    def lacks(self, wanted: TableFilter, held: Held | None) -> list[str]:
        """What may become otherwise while it is read."""
        return self.left_out(wanted, held) + self.unlogged(wanted)

    def tell(self, wanted: TableFilter, held: Held | None) -> None:
        """What is left out although it was not refused."""
        if said := "; ".join(self.left_out(wanted, held)):
            log.warning(
                "The publication %s leaves something out: %s. It does not come (--as-published).", self.name, said
            )
        if unlogged := self.unlogged(wanted):
            log.warning("Unlogged, so nothing of them comes: %s.", ", ".join(unlogged))
        if late := [table.name for table in self.there if table.is_deferrable and wanted(table.schema, table.table)]:
            log.warning(
                "Their primary keys are DEFERRABLE: %s. If a transaction lets two rows have one key for a while, as "
                "UPDATE t SET place = place + 1 does, a target may lose one of them. To have all of it again: "
                "waterclock cdc snapshot.",
                ", ".join(late),
            )
        roots = [name for name, t in self.tables.items() if t.partitioned and wanted(*name.split(".", 1))]
        if self.by_root and roots:
            log.warning(
                "Partitions come as the table that they belong to (publish_via_partition_root): %s. Rows that go or come "
                "with a partition as a whole (TRUNCATE, DROP, DETACH, ATTACH of one) do so without a word here.",
                ", ".join(roots),
            )


def looked_at(connection: psycopg.Connection[Any], name: str) -> Publication:
    """The publication as it is now; UsageError if there is none."""
    found = connection.execute(_PUBLICATION, (name,)).fetchone()
    if found is None:
        raise UsageError(
            f"There is no publication {name} any more, and what is written without it cannot be decoded. Make it as it was "
            "(CREATE PUBLICATION), and start again: what can be read then is, and the rest is told."
        )
    schemas = connection.execute(_SCHEMAS, (name,)) if connection.info.server_version >= 150000 else ()
    tables = {}
    for fields, mark, partitioned, columns in connection.execute(_PUBLISHED, (name,)):
        listed = fields.get("attnames")
        lacking = [] if listed is None else [column for column in columns if column not in listed]
        where = fields.get("rowfilter") or ""
        tables[f"{fields['schemaname']}.{fields['tablename']}"] = PublishedTable(mark, partitioned, where, lacking)
    there = [DatabaseTable(*row) for row in connection.execute(_THERE)]
    return Publication(name, found[1], found[0], [schema for (schema,) in schemas], tables, there)
