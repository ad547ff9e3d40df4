"""The compiled engine of a bucket, where it was built; the plain one does the same, slower.

numbered.py  the rules as it takes them: names and columns as numbers
lists.py     columns that it takes and gives as lists of values
engine.py    who drives it: what rests, what comes and goes as columns
_engine.pyx  between buffers and C++; the headers beside it are the rules, over rows by number
"""

from __future__ import annotations

from collections.abc import Callable

from waterclock.rules.model import Rules
from waterclock.streaming.state.blobs import BlobStore
from waterclock.streaming.state.pages import Search
from waterclock.streaming.state.plain import ColumnEngine, PlainEngine
from waterclock.streaming.state.rows import Rows

try:
    from waterclock.streaming.state.compiled.engine import CompiledEngine

    COMPILED = True
except ImportError:  # no compiler, or another Python than that it was built for
    COMPILED = False


def engine_for(rules: Rules, rows: Rows, store: BlobStore, find: Callable[[Search], None]) -> ColumnEngine:
    """The compiled engine if it is there, else the plain one."""
    if COMPILED:
        return CompiledEngine(rules, rows, store, find)
    return PlainEngine(rules, rows, store, find)
