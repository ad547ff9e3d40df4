"""Where results are kept, each batch with its offsets in one transaction."""

from typing import TYPE_CHECKING

from waterclock.lazily import first_use
from waterclock.sinks.base import (
    Batch,
    LastBatch,
    RecordingSink,
    Sink,
    apply_once,
    check_belongs,
    sink_of,
    written_once,
)
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
    "RecordingSink",
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
# a sink that needs the packages of an extra
__getattr__ = first_use(__name__, _LATER)
