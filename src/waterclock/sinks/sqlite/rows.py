"""A connection to a SQLite file that takes Arrow's columns: compiled if it was built, else by `executemany`.

Rule 1: there is ONE SQLite in the process, the one of Python's own `sqlite3`, and the compiled part calls its functions on
        its connection. A second copy, as ADBC's driver brings one, does not know the first one's locks: a look at the file
        by Python's `sqlite3` that is closed again then takes the write-ahead log away from under the writer, and what
        was committed is gone. `test_a_look_at_the_file_by_the_same_process_takes_nothing_from_the_sink` plays it.
Rule 2: both ways write the same rows in the same transaction, and say SQLite's own words of what it refuses.
Rule 3: SQLite reports each connection that it makes (sqlite3_auto_extension): so its address is known, and
        so it is proven that the functions are those of the SQLite which made it. If it reports none, rows go by
        `executemany`.
"""

from __future__ import annotations

import ctypes
import sqlite3
import threading
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow as pa

try:
    _rows: Any = import_module("waterclock.sinks._rows")
except ImportError:  # not built
    _rows = None

_Reported = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
_connecting = threading.Lock()
_made: list[tuple[int, int]] = []  # the thread that connects, and the address of the connection
_Column = tuple[int, int, int, int, int]  # see `_rows.insert`
_CODES: dict[int, type[sqlite3.Error]] = {  # SQLite's codes as sqlite3 raises them, if it is no OperationalError
    11: sqlite3.DatabaseError,  # the file is damaged
    18: sqlite3.DataError,  # a text is too long
    19: sqlite3.IntegrityError,
    26: sqlite3.DatabaseError,  # the file is no database
}


class ArrowConnection(sqlite3.Connection):
    """A connection of `sqlite3` that takes tables of Arrow too."""

    address: int | None = None  # of the connection, if SQLite gave it

    def insert(self, table: str, rows: pa.Table) -> None:
        """Add `rows`, in their order, to `table`, a quoted name; in the transaction that was begun."""
        statement = f"INSERT INTO {table} VALUES ({', '.join('?' * rows.num_columns)})"
        batches = _compiled(rows) if self.address is not None else None
        if batches is None or not self.in_transaction:
            self.executemany(statement, zip(*(column.to_pylist() for column in rows.columns), strict=True))
            return
        assert self.address is not None
        refused = _rows.insert(_addresses(), self.address, statement.encode(), batches)
        if refused is not None:
            code, words = refused
            error = _CODES.get(code & 0xFF, sqlite3.OperationalError)(words)
            error.sqlite_errorcode = code
            raise error

    def close(self) -> None:
        """See `sqlite3.Connection`."""
        self.address = None
        super().close()


def connect(path: Path, wait_s: float) -> ArrowConnection:
    """A connection to the file at `path` without transactions of Python's own; it waits `wait_s` for another's lock."""
    with _connecting, _Watch() as watch:
        made = sqlite3.connect(
            path, timeout=wait_s, isolation_level=None, check_same_thread=False, factory=ArrowConnection
        )
    made.address = watch.address
    return made


class _Watch:
    """A context that knows the connection which this thread makes in it; None if SQLite gives none."""

    address: int | None = None

    def __enter__(self) -> _Watch:
        _made.clear()
        if _addresses():
            _library().sqlite3_auto_extension(_note)
        return self

    def __exit__(self, *_: object) -> None:
        if _addresses():
            _library().sqlite3_cancel_auto_extension(_note)
        mine = [address for thread, address in _made if thread == threading.get_ident()]
        self.address = mine[0] if len(mine) == 1 else None


def _connected(connection: int, message: int, routines: int) -> int:
    _made.append((threading.get_ident(), connection))
    return 0


_note = _Reported(_connected)


@cache
def _library() -> Any:
    """The SQLite of Python's sqlite3: among what its module is linked to, or, if that is a part of Python, in there."""
    import _sqlite3

    return ctypes.CDLL(getattr(_sqlite3, "__file__", None))


@cache
def _addresses() -> tuple[int, ...]:
    """Where the functions lie that the compiled part calls; empty if it or one of them is not there."""
    if _rows is None:
        return ()
    try:
        library = _library()
        for name in ("auto_extension", "cancel_auto_extension"):
            getattr(library, f"sqlite3_{name}")
        found = [getattr(library, f"sqlite3_{name}") for name in _rows.NAMES]
    except (ImportError, OSError, AttributeError):
        return ()
    return tuple(ctypes.cast(function, ctypes.c_void_p).value or 0 for function in found)


# Rows ----------------------------------------------------------------------------------------------------------


def _compiled(rows: pa.Table) -> Iterator[tuple[int, list[_Column]]] | None:
    """`rows` as the compiled part takes them; None if a column is of a type that it does not."""
    kinds = [kind for kind in map(_kind, rows.schema.types) if kind is not None]
    if len(kinds) < rows.num_columns:
        return None
    columns = [column.cast(type_) for column, (_, type_) in zip(rows.columns, kinds, strict=True)]
    batches = pa.Table.from_arrays(columns, names=[str(place) for place in range(len(columns))]).to_batches()
    return (
        (batch.num_rows, [_lie(kind, column) for (kind, _), column in zip(kinds, batch.columns, strict=True)])
        for batch in batches
    )


def _kind(type_: pa.DataType) -> tuple[int, pa.DataType] | None:
    """What a value is bound as, and the type in which its column has to lie."""
    if pa.types.is_integer(type_):
        return _rows.INTEGER, pa.int64()
    if pa.types.is_floating(type_):
        return _rows.REAL, pa.float64()
    if pa.types.is_boolean(type_):
        return _rows.BOOLEAN, type_
    return (_rows.TEXT, type_) if pa.types.is_string(type_) else None


def _lie(kind: int, column: pa.Array) -> _Column:
    """Where a column's parts lie."""
    valid, values, *texts = (0 if buffer is None else buffer.address for buffer in column.buffers())
    return kind, column.offset, valid, values, texts[0] if texts else 0
