"""What a commit of Delta Lake says of a Parquet file: rows, nulls, and the least and the largest value of columns.

Readers leave out files by these figures, so each is exact, or it is not there.

Rule 1: they come from the file's own footer, which Parquet made while it wrote; no column is read for them.
Rule 2: times are in milliseconds, the least rounded down, the largest up. A long text has no figures, nor have numbers with
        a point, of which NaN is none. Behind a nested column there are none at all.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

_LONGEST_TEXT = 64  # bytes
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_US, _LAST_US = -62_135_596_800_000_000, 253_402_300_799_000_000  # of the years 1 to 9999, whole seconds


def figures(footer: pq.FileMetaData, columns: pa.Schema) -> str:
    """The statistics of a file with these columns, as Delta's log has them: JSON.

    >>> import io
    >>> file, footer = io.BytesIO(), []
    >>> rows = pa.table({"n": [3, None, 1]})
    >>> pq.write_table(rows, file, metadata_collector=footer)
    >>> figures(footer[0], rows.schema)
    '{"numRecords": 3, "minValues": {"n": 1}, "maxValues": {"n": 3}, "nullCount": {"n": 1}}'
    """
    least, most, nulls = dict[str, Any](), dict[str, Any](), dict[str, int]()
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    for place, field in enumerate(columns):
        if pa.types.is_nested(field.type):
            break  # from here on the columns of the footer are others
        found = [group.column(place).statistics for group in groups]
        if not all(each is not None and each.has_null_count for each in found):
            continue
        nulls[field.name] = sum(each.null_count for each in found)
        filled = [each for group, each in zip(groups, found, strict=True) if each.null_count < group.num_rows]
        if (bounds := _bounds(field.type, filled)) is not None:
            least[field.name], most[field.name] = bounds
    told = {"numRecords": footer.num_rows, "minValues": least, "maxValues": most, "nullCount": nulls}
    return json.dumps(told, ensure_ascii=False)


def _bounds(kind: pa.DataType, found: Sequence[Any]) -> tuple[Any, Any] | None:
    """The least and the largest value of a column in Delta's words, of the row groups that are not all null; None where
    they are not to be had."""
    if not found or not all(each.has_min_max for each in found):
        return None
    lows, highs = [each.min_raw for each in found], [each.max_raw for each in found]
    if pa.types.is_integer(kind):
        return min(lows), max(highs)
    if pa.types.is_timestamp(kind) and kind.unit == "us":
        return _times(min(lows), max(highs))
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _texts(min(lows), max(highs))
    return None


def _times(low_us: int, high_us: int) -> tuple[str, str] | None:
    if low_us < _FIRST_US or high_us > _LAST_US:
        return None
    return _time(low_us // 1000), _time(-(-high_us // 1000))


def _time(ms: int) -> str:
    return (_EPOCH + timedelta(milliseconds=ms)).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _texts(low: bytes, high: bytes) -> tuple[str, str] | None:
    return None if max(len(low), len(high)) > _LONGEST_TEXT else (low.decode(), high.decode())
