"""Where results are kept, each batch with its offsets in one transaction."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from waterclock.sinks.base import Batch, LastBatch, Sink, apply_once, check_belongs, sink_of, written_once
from waterclock.sinks.mirrors import Replica
from waterclock.sinks.sqlite.sqlite import SQLiteSink

if TYPE_CHECKING:
    from waterclock.sinks.delta.delta import DeltaSink
    from waterclock.sinks.duckdb.duckdb import DuckDBSink
    from waterclock.sinks.iceberg.iceberg import IcebergSink
    from waterclock.sinks.mysql.mysql import MySQLSink
    from waterclock.sinks.postgres.postgres import PostgresSink
    from waterclock.sinks.topic.topic import TopicSink

__all__ = [
    "Batch",
    "DeltaSink",
    "DuckDBSink",
    "IcebergSink",
    "LastBatch",
    "MySQLSink",
    "PostgresSink",
    "Replica",
    "SQLiteSink",
    "Sink",
    "TopicSink",
    "apply_once",
    "check_belongs",
    "sink_of",
    "written_once",
]


_LATER = {
    "PostgresSink": "waterclock.sinks.postgres.postgres",
    "MySQLSink": "waterclock.sinks.mysql.mysql",
    "DuckDBSink": "waterclock.sinks.duckdb.duckdb",
    "DeltaSink": "waterclock.sinks.delta.delta",
    "IcebergSink": "waterclock.sinks.iceberg.iceberg",
    "TopicSink": "waterclock.sinks.topic.topic",
}


def __getattr__(name: str) -> Any:
    """A sink on first use, if it needs the packages of an extra."""
    if name not in _LATER:
        raise AttributeError(f"module 'waterclock.sinks' has no attribute {name!r}")
    return getattr(import_module(_LATER[name]), name)
