"""Files into rows: JSON lines and Parquet, with a place for every line that cannot be read. No Spark in this file.

A file is read in blocks of whole lines. A block goes through Arrow's reader at once; where that refuses anything, the same
block is read line by line, and each line is judged alone.

Rule 1: the slow way is the law; the fast way may only accept what the slow one accepts, with the same values.
Rule 2: nothing is guessed: a text where a number is declared is a dead letter, with file, line and reason.
Rule 3: a row without a key is a heartbeat when it carries nothing but a time; otherwise its key is missing.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs
import pyarrow.json
import pyarrow.parquet as pq

from waterclock.rules.durations import datetime_us
from waterclock.rules.model import Rules
from waterclock.spark.rows import ROW_ID
from waterclock.spark.frames import DEAD_SCHEMA, TIMESTAMP

TYPES = {
    "string": pa.string(),
    "long": pa.int64(),
    "int": pa.int64(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "timestamp": TIMESTAMP,
}
BLOCK_BYTES = 4 << 20
_LONGEST_TEXT = 2_000
Letter = tuple[str, int | None, str, str | None]  # file, line, reason, text
_NULL = "\x00null"


@dataclass(frozen=True, slots=True)
class Layout:
    """What a file holds: its format, the declared columns, and what the rules need of them."""

    format: str
    columns: Mapping[str, str]
    rules: Rules

    def schema(self) -> pa.Schema:
        return pa.schema([(name, TYPES[kind]) for name, kind in self.columns.items()])


@dataclass(frozen=True, slots=True)
class Block:
    """Some lines of a file: the rows that could be read, and the dead letters."""

    rows: pa.Table
    dead: pa.Table


def read_file(path: str, layout: Layout) -> Iterator[Block]:
    """The blocks of one file; a file that cannot be opened or is no such file is one dead letter."""
    read = _parquet_blocks if layout.format == "parquet" else _json_blocks
    try:
        yield from read(path, layout)
    except (OSError, pa.ArrowException) as error:
        yield Block(layout.schema().empty_table(), _dead([(path, None, f"cannot be read: {error}", None)]))


def open_file(path: str) -> Any:
    filesystem, inner = pa.fs.FileSystem.from_uri(path)
    return filesystem.open_input_file(inner)


# JSON lines ----------------------------------------------------------------------------------------------------


def _json_blocks(path: str, layout: Layout) -> Iterator[Block]:
    first = 1
    with open_file(path) as file:
        for block in _whole_lines(file):
            rows = _fast(block, layout)
            yield Block(rows, _dead([])) if rows is not None else _slow(block, layout, path, first)
            first += block.count(b"\n")


def _whole_lines(file: Any) -> Iterator[bytes]:
    rest = b""
    while chunk := file.read(BLOCK_BYTES):
        head, newline, tail = chunk.rpartition(b"\n")
        if newline:
            yield rest + head + newline
            rest = tail
        else:
            rest += chunk
    if rest:
        yield rest


def _fast(block: bytes, layout: Layout) -> pa.Table | None:
    """All rows of a block, or None where any line needs a closer look."""
    schema = pa.schema([(f.name, pa.string() if f.type == TIMESTAMP else f.type) for f in layout.schema()])
    parse = pa.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
    read = pa.json.ReadOptions(use_threads=False, block_size=len(block) + 1)
    try:
        raw = pa.json.read_json(io.BytesIO(block), read, parse).select(schema.names)
        rows = pa.table({f.name: _moments(raw.column(f.name), f.type) for f in layout.schema()}, layout.schema())
    except pa.ArrowException:
        return None
    return _with_row_id(rows, layout.rules) if all_good(rows, layout.rules) else None


def _moments(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    if kind != TIMESTAMP or column.type == TIMESTAMP:
        return column
    try:
        return column.cast(pa.timestamp("us")).cast(TIMESTAMP)
    except pa.ArrowInvalid:
        return column.cast(TIMESTAMP)


def all_good(rows: pa.Table, rules: Rules) -> bool:
    """True when every row has a key, a time, and a sequence number from 1 where the rules ask for one."""
    needed = [rules.key, rules.time, *([rules.sequence] if rules.sequence else [])]
    if any(rows.column(name).null_count for name in needed):
        return False
    return not rules.sequence or rows.num_rows == 0 or pc.min(rows.column(rules.sequence)).as_py() >= 1


def _slow(block: bytes, layout: Layout, path: str, first: int) -> Block:
    good: list[Any] = []
    dead: list[Letter] = []
    readers = {name: _READERS[kind] for name, kind in layout.columns.items()}
    for number, line in enumerate(block.splitlines(), first):
        if line.strip():
            try:
                good.append(_row(line, readers, layout.rules))
            except ValueError as error:
                dead.append((path, number, str(error), line.decode(errors="replace")[:_LONGEST_TEXT]))
    rows = pa.Table.from_pylist(good, schema=layout.schema())
    return Block(_with_row_id(rows, layout.rules), _dead(dead))


def _row(line: bytes, readers: Mapping[str, Callable[[Any], Any]], rules: Rules) -> dict[str, Any]:
    parsed = json.loads(line)
    if not isinstance(parsed, dict):
        raise ValueError(f"not a JSON object but {type(parsed).__name__}")
    row = {name: _value(name, read, parsed.get(name)) for name, read in readers.items()}
    check_row(row, rules)
    return row


def _value(name: str, read: Callable[[Any], Any], value: Any) -> Any:
    try:
        return None if value is None else read(value)
    except ValueError as error:
        raise ValueError(f"column {name!r}: {error}") from error


def check_row(row: Mapping[str, Any], rules: Rules) -> None:
    """Raise ValueError for a row that the rules cannot take."""
    if row[rules.time] is None:
        raise ValueError(f"column {rules.time!r} (the time) is missing")
    if row[rules.key] is None:
        if any(value is not None for name, value in row.items() if name != rules.time):
            raise ValueError(f"column {rules.key!r} (the key) is missing")
    elif rules.sequence and (row[rules.sequence] is None or row[rules.sequence] < 1):
        raise ValueError(f"column {rules.sequence!r} (the sequence) needs a number from 1, got {row[rules.sequence]}")


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"needs a text, got {value!r}")
    return value


def _integer(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not -(2**63) <= value < 2**63:
        raise ValueError(f"needs an integer of 64 bits, got {value!r}")
    return value


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"needs a number, got {value!r}")
    return float(value)


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"needs true or false, got {value!r}")
    return value


def _moment(value: Any) -> int:
    try:
        return datetime_us(datetime.fromisoformat(_text(value)))
    except ValueError:
        raise ValueError(f'needs an ISO 8601 time such as "2007-03-09T12:00:00Z", got {value!r}') from None


_READERS: dict[str, Callable[[Any], Any]] = {
    "string": _text,
    "long": _integer,
    "int": _integer,
    "double": _number,
    "boolean": _boolean,
    "timestamp": _moment,
}


# Parquet -------------------------------------------------------------------------------------------------------


def _parquet_blocks(path: str, layout: Layout) -> Iterator[Block]:
    first = 1
    with open_file(path) as file:
        for batch in pq.ParquetFile(file).iter_batches(batch_size=65_536):
            yield _checked(_declared(batch, layout), layout.rules, path, first)
            first += batch.num_rows


def _declared(batch: pa.RecordBatch, layout: Layout) -> pa.Table:
    present = set(batch.schema.names)
    columns = [
        batch.column(f.name).cast(f.type) if f.name in present else pa.nulls(batch.num_rows, f.type)
        for f in layout.schema()
    ]
    return pa.Table.from_arrays(columns, schema=layout.schema())


def _checked(rows: pa.Table, rules: Rules, path: str, first: int) -> Block:
    if all_good(rows, rules):
        return Block(_with_row_id(rows, rules), _dead([]))
    good: list[Any] = []
    dead: list[Letter] = []
    for number, row in enumerate(rows.to_pylist()):
        try:
            check_row(row, rules)
            good.append(number)
        except ValueError as error:
            dead.append((path, first + number, str(error), str(row)[:_LONGEST_TEXT]))
    return Block(_with_row_id(rows.take(pa.array(good, pa.int64())), rules), _dead(dead))


def _with_row_id(rows: pa.Table, rules: Rules) -> pa.Table:
    if rules.id is not None:
        return rows
    texts = [column.cast(pa.string()).fill_null(_NULL) for column in rows.columns]
    joined = pc.binary_join_element_wise(*texts, "\x1f").to_pylist()
    ids = (blake2b(text.encode(), digest_size=16).hexdigest() for text in joined)
    return rows.append_column(ROW_ID, pa.array(ids, pa.string()))


def _dead(letters: list[Letter]) -> pa.Table:
    columns: tuple[Any, ...] = tuple(zip(*letters, strict=True)) or ((), (), (), ())
    arrays = [pa.array(column, field.type) for column, field in zip(columns, DEAD_SCHEMA, strict=True)]
    return pa.Table.from_arrays(arrays, schema=DEAD_SCHEMA)
