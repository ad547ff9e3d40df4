"""What a sink of Delta Lake is given and keeps: results, or changes of tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import pyarrow as pa
from deltalake import DeltaTable

from waterclock.sinks.base import Batch
from waterclock.sinks.delta.merge import Change
from waterclock.sinks.delta.replica import POSITIONS_SCHEMA, DeltaReplica
from waterclock.sinks.files.files import refuse_unseen
from waterclock.sinks.files.side_rows import SIDES, rows_of, schemas, sides_of
from waterclock.sinks.mirrors.strangers import OF_CHANGES, OF_RESULTS, needed_of_results
from waterclock.sinks.tables.tables import BATCHES, POSITIONS

Tables = Mapping[str, DeltaTable]  # by the ends of their names


class DeltaKept(Protocol):
    """See `DeltaResults` and `DeltaChanges`."""

    last_step: str  # the table by which a batch is applied

    def wanted(self, results: pa.Schema) -> dict[str, pa.Schema]:
        """The columns of the tables that are made, by the ends of their names; that of results last."""

    def needed(self, batches: set[str]) -> dict[str, set[str]]:
        """The columns that show a table to be a sink's, if the table of batches has the columns `batches`."""

    def prepared(self, batch: Batch, location: str, tables: Tables) -> tuple[dict[str, pa.Table], list[Change]]:
        """What a batch brings: rows to add, in the order of their commits, and changes of tables."""

    def empty(self, location: str, positions: DeltaTable | None) -> None:
        """Take all rows out of tables that are not removed."""


class DeltaResults:
    """Rows of results, in a table of their own."""

    last_step = ""

    def wanted(self, results: pa.Schema) -> dict[str, pa.Schema]:
        """See `DeltaKept`."""
        return schemas(results)

    def needed(self, batches: set[str]) -> dict[str, set[str]]:
        """See `DeltaKept`."""
        return {**OF_RESULTS, "": {"batch_row", *needed_of_results(batches)}}

    def prepared(self, batch: Batch, location: str, tables: Tables) -> tuple[dict[str, pa.Table], list[Change]]:
        """See `DeltaKept`."""
        refuse_unseen(location, batch.files)
        return rows_of(batch), []

    def empty(self, location: str, positions: DeltaTable | None) -> None:
        """See `DeltaKept`: the table is removed."""


class DeltaChanges:
    """Changes of tables, each in the table that it names; here stand their positions."""

    last_step = BATCHES

    def wanted(self, results: pa.Schema) -> dict[str, pa.Schema]:
        """See `DeltaKept`."""
        return {**SIDES, POSITIONS: POSITIONS_SCHEMA}

    def needed(self, batches: set[str]) -> dict[str, set[str]]:
        """See `DeltaKept`."""
        return dict(OF_CHANGES)

    def prepared(self, batch: Batch, location: str, tables: Tables) -> tuple[dict[str, pa.Table], list[Change]]:
        """See `DeltaKept`."""
        changes = DeltaReplica(location).changes(batch.query_id, batch.results, tables[POSITIONS])
        return sides_of(batch), changes

    def empty(self, location: str, positions: DeltaTable | None) -> None:
        """See `DeltaKept`."""
        if positions is not None:
            DeltaReplica(location).empty_all(positions)
