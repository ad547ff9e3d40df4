"""What the tables of a sink hold, wherever they stand, and what is wrong with one that differs or is somebody else's.

    <table>                 results, a row each: their own columns, and those of the event, taken out of its struct as
                            event_<name>. Results that a user's own step made may lack some of COMMON, and have others
    <table>_dead_letters    what could not be read, or not be kept: batch_id, file, line, reason, text
    <table>_batches         a row a batch: query_id, batch_id, offsets, counters, watermark, seconds
    <table>_positions       of changes of tables: a row for each key that was ever seen, and the position of its last change
    <table>_owner           if a checkpoint may be taken over: which run may write (ledger.py)

Rule 1: a row that could be read and cannot be kept is a dead letter in the same transaction. It stops no pipeline, and
        nothing of it is lost: its text is the row as JSON, not cut.
Rule 2: rows of a batch stand in no order in a lake; `batch_row` counts them, from 0, as they came.
Rule 3: a table with the name of one of a sink's, and without its columns, is somebody else's: it is reported, and left
        alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from waterclock.errors import UsageError
from waterclock.sinks.base import Batch

DEAD_LETTERS, BATCHES, POSITIONS = "_dead_letters", "_batches", "_positions"
DEAD_NAMES = ("batch_id", "file", "line", "reason", "text")
BATCH_NAMES = ("query_id", "batch_id", "offsets", "counters", "watermark", "seconds")
BATCH_KEY = ("query_id", "batch_id")
POSITION_COLUMNS = ("table_name", "key", "position", "deleted")
POSITION_KEY = ("table_name", "key")
COMMON = ("kind", "key", "rule", "due", "emitted_at", "source_id", "result_id")
LETTERS = pa.schema([("file", pa.string()), ("line", pa.int64()), ("reason", pa.string()), ("text", pa.string())])
_FIRST_US, _LAST_US = -62_135_596_800_000_000, 253_402_300_799_999_999  # of the years 1 to 9999
_TIME = pa.timestamp("us", tz="UTC")
_PLACE = (("batch_id", pa.int64()), ("batch_row", pa.int64()))
_DEAD = (pa.int64(), pa.string(), pa.int64(), pa.string(), pa.string())
_BATCH = (pa.string(), pa.int64(), pa.string(), pa.string(), _TIME, pa.float64())
SIDES = {DEAD_LETTERS: pa.schema(zip(DEAD_NAMES, _DEAD)), BATCHES: pa.schema(zip(BATCH_NAMES, _BATCH))}  # noqa: B905


@dataclass(frozen=True, slots=True)
class Table:
    """A table of a sink as it stands or should stand; `columns` are (name, type in the words of the database)."""

    part: str  # the end of its name, behind the sink's own
    columns: tuple[tuple[str, str], ...]
    key: tuple[str, ...] = ()

    def definition(self) -> str:
        """What stands between the brackets of CREATE TABLE.

        >>> Table("", (("id", "INTEGER"), ("a b", "TEXT")), ("id",)).definition()
        '"id" INTEGER NOT NULL, "a b" TEXT, PRIMARY KEY ("id")'
        """
        never_null = dict.fromkeys(self.key, " NOT NULL")
        parts = [f"{quoted(name)} {kind}{never_null.get(name, '')}" for name, kind in self.columns]
        return ", ".join([*parts, *([f"PRIMARY KEY ({listed(self.key)})"] if self.key else [])])


def quoted(name: str) -> str:
    """A name as SQL writes it, whatever is in it."""
    return '"' + name.replace('"', '""') + '"'


def listed(names: tuple[str, ...] | list[str]) -> str:
    """Names as a list in SQL."""
    return ", ".join(map(quoted, names))


def folded(name: str) -> str:
    """As SQLite and DuckDB compare it.

    >>> folded("Größe ÄB") == folded("gRößE Äb"), folded("Ä") == folded("ä")
    (True, False)
    """
    return "".join(letter.lower() if letter.isascii() else letter for letter in name)


def alike(what: str, database: str) -> UsageError:
    """What to say of two names that a database takes for one."""
    return UsageError(
        f"{what} in the source differ by case only, which {database} does not tell apart: rename one there, choose the "
        "tables without it with 'tables' in [source], or put them into PostgreSQL"
    )


def refuse(faults: Iterable[str]) -> None:
    """Raise UsageError with the first of the faults, if there is one."""
    for fault in faults:
        raise UsageError(fault)


def sentences_of(*checks: Callable[[], object]) -> list[str]:
    """The sentences of those checks that refuse something."""
    sentences: list[str] = []
    for check in checks:
        try:
            check()
        except UsageError as error:
            sentences.append(str(error))
    return sentences


def unlike(where: str, found: Table, wanted: Table, kind: str = "table") -> list[str]:
    """What is wrong with `found` if it is not the `wanted` table, with each column that differs: one sentence, or none.
    `kind` is what the place calls it."""
    differences = "; ".join(_differences(found, wanted))
    sentence = (
        f"{where} has other columns than this pipeline writes ({differences}). "
        f"Name another {kind} in [sink], or start over with --fresh."
    )
    return [sentence] if differences else []


def missing(table: str, place: str, rows: Mapping[str, bool | None]) -> list[str]:
    """What is wrong if some tables of the sink `table` hold rows and another one is gone, with all that it held.

    `rows` says it by the end of a table's name: whether there are any, None if there was no table.
    """
    gone = [part for part, found in rows.items() if found is None] if any(rows.values()) else []
    return [
        f"the table {table + part!r} in {place} is gone, and those beside it hold rows. Restore it (to empty a table, "
        "delete its rows), or start over with --fresh."
        for part in gone
    ]


def _differences(found: Table, wanted: Table) -> list[str]:
    there, here = dict(found.columns), dict(wanted.columns)
    differences = [f"{name!r} is missing there" for name in here if name not in there]
    differences += [f"{name!r} is only there" for name in there if name not in here]
    both = [name for name in here if name in there]
    differences += [
        f"{name!r} is {there[name]} there and {here[name]} here" for name in both if there[name] != here[name]
    ]
    if not differences and found.columns != wanted.columns:
        differences.append("they stand in another order there")
    if wanted.key and sorted(found.key) != sorted(wanted.key):
        differences.append(f"the primary key is ({', '.join(found.key)}) there and ({', '.join(wanted.key)}) here")
    return differences


# Results as rows -----------------------------------------------------------------------------------------------


def flat_schema(results: pa.Schema) -> pa.Schema:
    """The columns of flattened results."""
    own = [field for field in results if not _is_event(field)]
    event = results.field("event").type if len(own) < len(results) else []
    return pa.schema([*own, *(field.with_name(f"event_{field.name}") for field in event)])


def columns_of(results: pa.Schema) -> tuple[tuple[str, str], ...]:
    """Name and type of the columns that a table of results has."""
    return tuple((field.name, str(field.type)) for field in flat_schema(results))


def chosen_schema(results: pa.Schema, names: Sequence[str]) -> pa.Schema:
    """The columns `names` of flattened results, in their order; UsageError if results have none of that name."""
    there = flat_schema(results)
    if unknown := [name for name in names if name not in there.names]:
        raise UsageError(f"[sink]: 'columns' names the column {unknown[0]!r}; results have {', '.join(there.names)}")
    return pa.schema([there.field(name) for name in names])


def flat(results: pa.Table) -> pa.Table:
    """Results with the event's struct taken apart."""
    own = [field.name for field in results.schema if not _is_event(field)]
    parts = []
    if len(own) < results.num_columns:
        column = results.column("event")
        event = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
        parts = event.flatten()
    schema = flat_schema(results.schema)
    return pa.Table.from_arrays([*(results.column(name) for name in own), *parts], schema=schema)


def _is_event(field: pa.Field) -> bool:
    return bool(field.name == "event" and pa.types.is_struct(field.type))


# Dead letters --------------------------------------------------------------------------------------------------


def letters_of(rows: pa.Table, reasons: pa.ChunkedArray) -> pa.Table:
    """A letter for each of `rows` whose reason is not null: no file and no line, but the row."""
    reasons, rows = reasons.drop_null(), rows.filter(pc.is_valid(reasons))
    texts = [json.dumps(row, ensure_ascii=False) for row in _with_texts_for_times(rows).to_pylist()]
    nothing = pa.nulls(rows.num_rows)
    columns = [nothing.cast(pa.string()), nothing.cast(pa.int64()), reasons, pa.array(texts, pa.string())]
    return pa.Table.from_arrays(columns, schema=LETTERS)


def put_aside(batch: Batch, rows: pa.Table, reasons: pa.ChunkedArray) -> Batch:
    """`batch` without those results, flat in `rows`, whose reason is not null: they are dead letters."""
    if reasons.null_count == rows.num_rows:
        return batch
    kept = batch.results.filter(pc.is_null(reasons))
    return with_letters(replace(batch, results=kept), letters_of(rows, reasons))


def with_letters(batch: Batch, letters: pa.Table) -> Batch:
    """`batch` with more dead letters behind its own, counted: they are no results any more."""
    count = letters.num_rows
    if not count:
        return batch
    counters = {**batch.counters, "dead_letters": batch.counters.get("dead_letters", 0) + count}
    if "results" in counters:
        counters["results"] -= count
    own = batch.dead_letters.select(LETTERS.names).replace_schema_metadata(None)
    return replace(batch, dead_letters=pa.concat_tables([own, letters]), counters=counters)


def _with_texts_for_times(rows: pa.Table) -> pa.Table:
    """JSON has no times, and Python's own end in the year 9999; Arrow's texts do neither harm."""
    for place, field in enumerate(rows.schema):
        if pa.types.is_timestamp(field.type):
            plain = pa.timestamp(field.type.unit)
            texts = rows.column(place).cast(pa.int64()).cast(plain).cast(pa.string())
            rows = rows.set_column(place, field.name, texts)
    return rows


# A batch as rows of three tables -------------------------------------------------------------------------------


def schemas(results: pa.Schema) -> dict[str, pa.Schema]:
    """The columns of the tables by the ends of their names; the results come last."""
    return {**SIDES, "": pa.schema([*_PLACE, *flat_schema(results)])}


def rows_of(batch: Batch) -> dict[str, pa.Table]:
    """What `batch` brings to each table, in the order in which they are committed: the results come last."""
    return {**sides_of(batch), "": results_of(batch)}


def results_of(batch: Batch) -> pa.Table:
    """The rows of the table of results."""
    rows = flat(batch.results)
    place = [[batch.batch_id] * rows.num_rows, range(rows.num_rows)]
    return typed([*place, *rows.columns], pa.schema([*_PLACE, *rows.schema]))


def far_times(rows: pa.Table, reason: str, first_us: int = _FIRST_US) -> pa.ChunkedArray | None:
    """`reason` at the rows with a time before `first_us` or after the year 9999, null at others; None if none has one."""
    is_far = pa.chunked_array([pa.array([False] * rows.num_rows, pa.bool_())])
    for field in rows.schema:
        if pa.types.is_timestamp(field.type):
            us = rows.column(field.name).cast(pa.timestamp("us", field.type.tz)).cast(pa.int64())
            outside = pc.or_(pc.less(us, first_us), pc.greater(us, _LAST_US))
            is_far = pc.or_(is_far, pc.fill_null(outside, False))
    return pc.if_else(is_far, reason, None) if pc.any(is_far).as_py() else None


def with_times_that_fit(batch: Batch, reason: str) -> Batch:
    """`batch` with those results put aside, each with `reason`, that have a time outside of the years 1 to 9999."""
    rows = flat(batch.results)
    reasons = far_times(rows, reason)
    return batch if reasons is None else put_aside(batch, rows, reasons)


def sides_of(batch: Batch) -> dict[str, pa.Table]:
    """The dead letters, and the row of the batch itself; TypeError for counters that are no numbers."""
    dead = batch.dead_letters
    counters = json.dumps(dict(batch.counters), sort_keys=True)
    row = (batch.query_id, batch.batch_id, batch.offsets, counters, batch.watermark_us, batch.seconds)
    return {
        DEAD_LETTERS: typed([[batch.batch_id] * dead.num_rows, *dead.columns], SIDES[DEAD_LETTERS]),
        BATCHES: typed([[value] for value in row], SIDES[BATCHES]),
    }


def typed(columns: list[Any], schema: pa.Schema) -> pa.Table:
    """A table of these columns, cast to the types of `schema`."""
    return pa.Table.from_arrays(
        [
            column.cast(field.type) if isinstance(column, pa.ChunkedArray) else pa.array(column, field.type)
            for column, field in zip(columns, schema, strict=True)
        ],
        schema=schema,
    )


# Tables of somebody else ---------------------------------------------------------------------------------------


Find = Callable[[str], Table]  # a table by the end of its name, as it stands; without columns if there is none
_SIDES = {DEAD_LETTERS: {*DEAD_NAMES}, BATCHES: {*BATCH_NAMES}}
# by the end of a table's name, the columns that show it to be a sink's: what lacks them is somebody else's
OF_RESULTS: Mapping[str, set[str]] = {"": {"batch_id", *COMMON}, **_SIDES}
OF_CHANGES: Mapping[str, set[str]] = {POSITIONS: {*POSITION_COLUMNS}, **_SIDES}


def rows_of_somebody_else(name: str) -> UsageError:
    """What to say of a table that is to be a mirror, and is none."""
    return UsageError(
        f"the table {name} is there already and holds rows that waterclock did not write: it is left alone. Empty it, or "
        "name another database in [sink]"
    )


def rows_gone(name: str) -> UsageError:
    """What to say of a mirror that is not there, and held rows."""
    return UsageError(
        f"the table {name} is gone, with rows that its source does not send again: restore it, or start over with "
        "--fresh"
    )


def constrained(place: object, why: str) -> UsageError:
    """What to say of a constraint that somebody put on a table."""
    return UsageError(
        f"a constraint of a table in {place} refuses a row: {why}. Take the constraint away, and start again: what was "
        "committed stays"
    )


def another_key(table: str, there: Sequence[str], here: Sequence[str]) -> UsageError:
    """What to say where a mirror has another primary key than its changes."""
    return UsageError(
        f"the primary key of {table} is ({', '.join(there)}) in the target and ({', '.join(here)}) in the changes: drop "
        "the table in the target, and start over with --fresh. If the source changed its key, have its rows written "
        "into a new topic before, and read that"
    )


def refuse_other_keys(table: str, there: Sequence[str], keys: Iterable[str]) -> None:
    """UsageError if one of the keys, as JSON, is of other columns than the mirror's, under which no row is found."""
    for key in {tuple(sorted(json.loads(key))) for key in keys} - {tuple(sorted(there))}:
        raise another_key(table, there, key)


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
