"""The compiled engine of a bucket, where it was built and for the rules that it knows; the plain one does the same, slower.

knows.py     the rules that it knows, and how they are told to it
engine.py    who drives it: what rests, what comes and goes as columns
_engine.pyx  between buffers and C++; the headers beside it are the rules, over rows by number
"""

from __future__ import annotations

from collections.abc import Callable

from waterclock.rules.model import Rules
from waterclock.spark.state.blobs import BlobStore
from waterclock.spark.state.compiled.knows import unknown
from waterclock.spark.state.pages import Search
from waterclock.spark.state.plain import ColumnEngine, PlainEngine
from waterclock.spark.state.rows import Rows

try:
    from waterclock.spark.state.compiled.engine import CompiledEngine

    COMPILED = True
except ImportError:  # no compiler, or another Python than that it was built for
    COMPILED = False


def engine_for(rules: Rules, rows: Rows, store: BlobStore, find: Callable[[Search], None]) -> ColumnEngine:
    """The compiled engine where it is there and knows the rules, else the plain one.

    Rules without a sequence take the plain one until a fault is found: keys that are empty texts have a state that the
    compiled engine takes for a damaged one (tests/spark/state/compiled/test_compiled.py, the long streams).
    """
    if COMPILED and rules.sequence is not None and unknown(rules) is None:
        return CompiledEngine(rules, rows, store, find)
    return PlainEngine(rules, rows, store, find)
