"""Rows that take the place of others in a table of Delta Lake, and rows that go: one commit, with the batch as its mark.

Rule 1: a commit carries the query's id and the batch's number as application transaction, and is left out where its table
        has that number. A merge that changes nothing is no commit, and leaves no mark: done again, it changes nothing.
Rule 2: rows of which no key is there yet are added, without a look at what is there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

GONE = "_waterclock_gone"  # beside the columns of a table: the row is to go
KEY = b"waterclock.key"  # metadata of a column


@dataclass(frozen=True, slots=True)
class Change:
    """What a batch does to a table: `rows` with GONE take the place of those with the same `key`, if not all are new.

    `table` gives the table as it is, None where it is not there; `formed` gives it with the columns that the rows need.
    `mark` is the application transaction's id, whose number is the batch's.
    """

    mark: str
    table: Callable[[], DeltaTable | None]
    formed: Callable[[], DeltaTable]
    rows: pa.Table
    key: tuple[str, ...]
    is_new: bool

    def commit(self, batch_id: int, own: Sequence[Transaction] = ()) -> None:
        """Do it, where it is not done yet; the commit carries `own` transactions of the writer too."""
        if not self.rows.num_rows or self._is_done(self.table(), batch_id):
            return
        table = self.formed()
        if self._is_done(table, batch_id):  # by another writer, meanwhile
            return
        once = CommitProperties(app_transactions=[Transaction(self.mark, batch_id), *own])
        _add(table, self.rows, once) if self.is_new else _merge(table, self.rows, self.key, once)

    def _is_done(self, table: DeltaTable | None, batch_id: int) -> bool:
        version = None if table is None else table.transaction_version(self.mark)
        return version is not None and version >= batch_id


def having(
    table: DeltaTable, column: str, values: pa.Array | None, columns: list[str] | None, **partition: str
) -> pa.Table:
    """The rows of which `column` is one of `values` (None: all), read file by file; of one `partition`, where it is named.

    Arrow's own filters do not compare the least and largest texts that Delta's log has of a file.
    """
    chosen = [(name, "=", value) for name, value in partition.items()] or None
    data = table.to_pyarrow_dataset(file_pruning_predicate=chosen)
    found = [data.schema.empty_table().select(columns or data.schema.names)]
    for batch in data.to_batches(columns=columns):
        if values is not None:
            batch = batch.filter(pc.is_in(batch.column(column).cast(values.type), value_set=values))
        found.append(pa.Table.from_batches([batch]))
    return pa.concat_tables(found, promote_options="permissive")


def _add(table: DeltaTable, rows: pa.Table, once: CommitProperties) -> None:
    staying = rows.filter(pc.invert(rows[GONE])).drop_columns([GONE])
    if staying.num_rows:
        write_deltalake(table, staying, mode="append", commit_properties=once)


def _merge(table: DeltaTable, rows: pa.Table, key: tuple[str, ...], once: CommitProperties) -> None:
    same = " AND ".join(f"t.{_quoted(name)} = s.{_quoted(name)}" for name in key)
    columns: Mapping[str, str] = {_quoted(n): f"s.{_quoted(n)}" for n in rows.schema.names if n != GONE}
    merger = table.merge(  # not streamed: what the rows' least and largest keys rule out is not read
        rows, same, source_alias="s", target_alias="t", streamed_exec=False, commit_properties=once
    )
    merger = merger.when_matched_delete(f"s.{GONE}").when_matched_update(dict(columns), f"NOT s.{GONE}")
    merger.when_not_matched_insert(dict(columns), f"NOT s.{GONE}").execute()


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
