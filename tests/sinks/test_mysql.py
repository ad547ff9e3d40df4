"""What only the sink of MySQL and MariaDB promises: values, texts, engine, rights."""

from __future__ import annotations

import json
import math
from contextlib import closing
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

pytest.importorskip("pymysqlreplication", reason="the server's fixture is that of the extra cdc")

from tests.sinks.database_stores import MySQLStore, kept
from tests.sinks.stores import SCHEMA, batch, everything, of_batches
from tests.spark.least_pipeline import least_with
from waterclock.errors import UsageError
from waterclock.sinks import MySQLSink, Sink, apply_once
from waterclock.sinks.mysql.destination import MySQLDatabase
from waterclock.streaming import frames

if TYPE_CHECKING:
    from tests.cdc.mariadb import MariaServer

pytestmark = pytest.mark.mariadb
TEXTS = ["", "a\x00b", "NULL", "'", '"', "\\", "%s", "\u00e4\U0001f570", " a ", "\uffff", "x" * (1 << 20)]
TIMES = [
    datetime(1000, 1, 1),
    datetime(1969, 12, 31, 23, 59, 59, 999_999),
    datetime(2007, 10, 1, 12, 0, 0, 1),
    datetime(9999, 12, 31, 23, 59, 59, 999_999),
]


@pytest.fixture
def store(mariadb: MariaServer) -> MySQLStore:
    return MySQLStore(mariadb)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.string(), TEXTS),
        (pa.int64(), [0, -1, 2**63 - 1, -(2**63)]),
        (pa.int32(), [2**31 - 1, -(2**31)]),
        (pa.bool_(), [True, False]),
        (pa.float64(), [-0.0, 0.1, 2.2250738585072014e-308, 1.7976931348623157e308]),
        (pa.timestamp("us"), TIMES),
        (frames.TIMESTAMP, TIMES),
    ],
    ids=["texts", "long", "int", "boolean", "double", "time without a zone", "time"],
)
def test_what_is_written_is_what_is_read(store: MySQLStore, kind: pa.DataType, values: list[Any]) -> None:
    assert kept(store, kind, [None, *values, None]) == [None, *values, None]


def test_rows_in_many_statements_are_whole(store: MySQLStore) -> None:
    values = [None if n % 7 == 0 else "x" * (n % 3_000) for n in range(5_000)]
    assert kept(store, pa.string(), values) == values


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ({"due": -30_610_224_000_000_001}, "a time outside of the years 1000 to 9999, which MySQL does not keep"),
        ({"due": 253_402_300_800_000_000}, "a time outside of the years 1000 to 9999, which MySQL does not keep"),
        ({"event": {"d": math.nan}}, "'event_d' is no number that MySQL keeps"),
        ({"event": {"d": -math.inf}}, "'event_d' is no number that MySQL keeps"),
    ],
)
def test_what_mysql_does_not_keep_is_a_dead_letter_and_the_others_are_kept(
    store: MySQLStore, sink: Sink, row: dict[str, Any], why: str
) -> None:
    given = {"kind": "emit", "key": "a", "due": 0}
    rows = pa.Table.from_pylist([{**given, **row}, {**given, "key": "b"}], schema=SCHEMA)
    counted = {"results": 2}
    assert apply_once(sink, replace(batch(1), results=rows, counters=counted)) is True
    assert store.look("`key`, batch_row", "results WHERE batch_id = 1") == [("b", 0)]
    ((reason, text),) = store.look("reason, text", "results_dead_letters WHERE file IS NULL")
    assert (reason, json.loads(text)["key"]) == (why, "a")
    assert sink.totals() == {"events": 2, "late": 1, "results": 1, "dead_letters": 1}


def test_a_batch_tells_its_counters_watermark_and_seconds(store: MySQLStore, sink: Sink) -> None:
    told = store.look("counters, watermark, seconds", "results_batches")
    assert told == [('{"events": 2, "late": 1}', datetime(1970, 1, 1, 0, 0, 1), 0.25)]


def test_a_row_larger_than_the_server_takes_is_told_with_the_setting(store: MySQLStore, sink: Sink) -> None:
    rows = pa.Table.from_pylist([{"kind": "emit", "key": "x" * (70 << 20)}], schema=SCHEMA)
    with pytest.raises(UsageError, match=r"a row of 734\d+ bytes .* max_allowed_packet = 67108864: raise it there"):
        apply_once(sink, replace(batch(1), results=rows))
    assert everything(store) == of_batches(0)
    assert apply_once(sink, batch(1)) is True


# Tables


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("ALTER TABLE results ENGINE=MyISAM", "has the engine MyISAM, whose rows no transaction undoes"),
        (
            "ALTER TABLE results MODIFY event_case longtext CHARACTER SET latin1",
            "the column 'event_case' of the table 'results' in .* has texts of latin1, which does not hold every",
        ),
    ],
)
def test_a_table_that_could_lose_rows_or_texts_is_refused(store: MySQLStore, statement: str, told: str) -> None:
    with closing(store.sink()) as sink:
        sink.open(SCHEMA)
        store.run(statement)
        assert len(sink.look(SCHEMA)) == 1
        with pytest.raises(UsageError, match=told):
            sink.open(SCHEMA)


# Where it is, and who comes


def test_a_user_without_the_right_is_told_so(mariadb: MariaServer, store: MySQLStore) -> None:
    mariadb.run(f"CREATE USER r_{store.name}", f"GRANT SELECT ON {store.name}.* TO r_{store.name}")
    with (
        closing(MySQLSink(store.url.replace("root@", f"r_{store.name}@"))) as sink,
        pytest.raises(UsageError, match="refused what was to be written: CREATE command denied"),
    ):
        sink.open(SCHEMA)


def test_a_pipelines_file_names_it(tmp_path: Path) -> None:
    made = least_with(tmp_path, "[sink]\nformat = 'mysql'\nurl = 'mariadb://me@h/shop?tls=true'\ntable = 'late'\n").sink
    assert made == MySQLDatabase("mariadb://me@h/shop?tls=true", "late")
    assert made.place == made.sink().describe() == "the table 'late' in mariadb://me@h/shop?tls=true"
