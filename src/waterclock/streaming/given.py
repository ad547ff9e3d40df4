"""What of a batch a sink is given: some of its parts, and of its results some columns. No Spark in this file."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc

from waterclock.rules.events import LATE
from waterclock.sinks import Batch
from waterclock.sinks.tables import chosen_schema
from waterclock.streaming import frames


class ChosenColumns:
    """Some columns of the results, and no others."""

    def __init__(self, columns: tuple[str, ...], results: pa.Schema) -> None:
        """UsageError if results of the schema `results` lack one of them."""
        self.schema = chosen_schema(results, columns)
        self.taken = frames.with_kind(self.schema)  # of the frames of a batch, if no other sink needs more

    def of(self, results: pa.Table) -> pa.Table:
        """What the sink gets of a batch's results, be they whole or as `taken`."""
        return frames.chosen(results, self.schema.names).replace_schema_metadata(None).select(self.schema.names)


def of_kinds(batch: Batch, takes: tuple[str, ...]) -> Batch:
    """What of a batch a sink takes that `takes` some of it."""
    rows = batch.results
    if "kind" in rows.column_names:
        is_late = pc.fill_null(pc.equal(rows["kind"], LATE), False)
        keep = {"results": pc.invert(is_late), "late": is_late}
        chosen = [keep[name] for name in takes if name in keep]
        rows = rows.filter(reduce(pc.or_, chosen)) if chosen else rows.slice(0, 0)
    elif "results" not in takes:
        rows = rows.slice(0, 0)
    dead = batch.dead_letters if "dead_letters" in takes else batch.dead_letters.slice(0, 0)
    return with_results(replace(batch, dead_letters=dead), rows)


def with_results(batch: Batch, rows: pa.Table) -> Batch:
    """The batch with these results, counted."""
    return replace(batch, results=rows, counters={**batch.counters, "results": rows.num_rows})
