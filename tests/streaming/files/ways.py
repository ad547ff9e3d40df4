"""One file read in several ways, which must not be told apart: with the fast way and without it, in blocks of a few
bytes and in one block.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import pyarrow as pa
from hypothesis import HealthCheck, Phase, settings

from waterclock import Rules
from waterclock.streaming.files import reading
from waterclock.streaming.layout import ROW_ID

COLUMNS = {
    "k": "string",
    "t": "timestamp",
    "i": "string",
    "n": "long",
    "d": "double",
    "b": "boolean",
    "at": "timestamp",
}
RULES = Rules(key="k", time="t", id="i", sequence="n")
LAYOUT = reading.Layout("jsonl", COLUMNS, RULES)
NO_ID = reading.Layout("jsonl", COLUMNS, Rules(key="k", time="t"))
PARQUET = reading.Layout(
    "parquet", {"k": "string", "t": "timestamp", "n": "long"}, Rules(key="k", time="t", id="k", sequence="n")
)
T = '"2020-01-01T00:00:00Z"'
ROW = f'"k":"a","t":{T},"i":"x","n":1'
GOOD = f"{{{ROW}}}\n".encode()
BEAT = f'{{"t":{T}}}\n'.encode()
Y2020 = 1_577_836_800_000_000

quick = settings(
    max_examples=40, deadline=None, suppress_health_check=list(HealthCheck), phases=set(Phase) - {Phase.explain}
)


class Read(NamedTuple):
    """A whole file as plain values, exactly: times in microseconds, texts in bytes, doubles as they print."""

    rows: list[tuple[Any, ...]]
    dead: list[tuple[int | None, str]]  # line, text


def read(folder: Path, data: bytes, layout: reading.Layout, block: int = 4 << 20, fast: bool = True) -> Read:
    file = folder / "file.jsonl"
    file.write_bytes(data)
    way = reading._fast if fast else lambda *_: None
    with patch.object(reading, "BLOCK_BYTES", block), patch.object(reading, "_fast", way):
        return together(reading.read_file(file.as_uri(), layout))


def together(blocks: Iterator[reading.Block]) -> Read:
    rows, dead = [], []
    for block in blocks:
        columns = dict(zip(block.rows.column_names, map(exactly, block.rows.columns), strict=True))
        made = columns.pop(ROW_ID, [None] * block.rows.num_rows)  # a block has the column where any row needs it
        named = zip(*columns.values(), strict=True)
        rows += [row if made_id is None else (*row, made_id) for row, made_id in zip(named, made, strict=True)]
        dead += [(letter["line"], letter["text"]) for letter in block.dead.to_pylist()]
    return Read(rows, dead)


def exactly(column: pa.ChunkedArray) -> list[Any]:
    if pa.types.is_timestamp(column.type):
        return column.cast(pa.int64()).to_pylist()  # type: ignore[no-any-return]
    if pa.types.is_string(column.type):
        return column.cast(pa.binary()).to_pylist()  # type: ignore[no-any-return]
    if pa.types.is_floating(column.type):
        return [value if value is None else repr(value) for value in column.to_pylist()]
    return column.to_pylist()  # type: ignore[no-any-return]


def read_alike(folder: Path, data: bytes, layout: reading.Layout = LAYOUT) -> Read:
    """What every way of reading makes of `data`."""
    law = read(folder, data, layout, fast=False)
    assert read(folder, data, layout) == law, "the fast way differs"
    for block in (1, 7, 100):
        assert read(folder, data, layout, block, fast=False) == law, "the size of the block shows"
        assert read(folder, data, layout, block) == law, "the fast way differs in small blocks"
    return law


def one_dead_letter(path: str, layout: reading.Layout = LAYOUT) -> str:
    (block,) = reading.read_file(path, layout)
    assert block.rows.num_rows == 0
    assert block.rows.schema.names[: len(layout.columns)] == list(layout.columns)
    (letter,) = block.dead.to_pylist()
    assert (letter["file"], letter["line"], letter["text"]) == (path, None, None)
    return letter["reason"]  # type: ignore[no-any-return]
