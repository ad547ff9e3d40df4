"""What only the sink of PostgreSQL promises: values to the last bit, NUL as a dead letter, names, transactions."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from tests.postgres_server import PostgresServer
from tests.sinks.database_stores import kept
from tests.sinks.stores import SCHEMA, PostgresStore, batch, everything, of_batches
from waterclock.errors import UsageError
from waterclock.sinks import PostgresSink, Sink, apply_once, written_once
from waterclock.streaming import frames

pytestmark = pytest.mark.postgres


@pytest.fixture
def store(postgres: PostgresServer) -> PostgresStore:
    return PostgresStore(postgres)


@pytest.fixture
def sink(store: PostgresStore) -> Iterator[Sink]:
    with closing(store.sink()) as made:
        made.open(SCHEMA)
        yield made


# Values

TEXTS = [
    "",
    " ",
    "🕰️ déjà vu",
    'it\'s "quoted" \\ %s $1',
    "a\tb\r\nc",
    "\\N",
    "\\.",
    "\u0001\u007f\uffff",
    "x" * (1 << 20),
]
TIMES = [
    datetime(1, 1, 1, tzinfo=UTC),
    datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
    datetime(2000, 1, 1, tzinfo=UTC),
    datetime(2007, 10, 1, 12, 0, 0, 1, tzinfo=UTC),
    datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.string(), TEXTS),
        (pa.int64(), [0, -1, 2**63 - 1, -(2**63)]),
        (pa.int32(), [0, -1, 2**31 - 1, -(2**31)]),
        (pa.bool_(), [True, False]),
        (frames.TIMESTAMP, TIMES),
        (pa.timestamp("us"), [time.replace(tzinfo=None) for time in TIMES]),
    ],
    ids=["texts", "long", "int", "boolean", "time", "time without a zone"],
)
def test_what_is_written_is_what_is_read(store: PostgresStore, kind: pa.DataType, values: list[Any]) -> None:
    assert kept(store, kind, [None, *values, None]) == [None, *values, None]


def test_doubles_keep_every_bit(store: PostgresStore) -> None:
    values = [math.inf, -math.inf, math.nan, -0.0, 0.1, 5e-324, 1.7976931348623157e308]
    assert list(map(repr, kept(store, pa.float64(), values))) == list(map(repr, values))


def test_rows_in_pieces_and_slices_are_whole(store: PostgresStore) -> None:
    values = [None if n % 7 == 0 else "x" * (n % 3_000) for n in range(20_000)]
    assert kept(store, pa.string(), values) == values


@pytest.mark.parametrize("us", [253_402_300_800_000_000, -62_135_596_800_000_001, 2**62, -(2**62)])
def test_a_time_outside_of_the_calendar_is_refused_or_kept_but_never_another_one(
    store: PostgresStore, sink: Sink, us: int
) -> None:
    rows = pa.Table.from_pylist([{"kind": "emit", "key": "a", "due": us}], schema=SCHEMA)
    with suppress(UsageError):
        apply_once(sink, replace(batch(0), results=rows))
    assert store.look("(extract(epoch FROM due) * 1000000)::bigint, 1") in ([], [(us, 1)])


def test_a_time_that_postgresql_does_not_know_is_told(sink: Sink) -> None:
    rows = pa.Table.from_pylist([{"kind": "emit", "key": "a", "due": -(2**62)}], schema=SCHEMA)
    with pytest.raises(UsageError, match="timestamp out of range"):
        apply_once(sink, replace(batch(0), results=rows))


def test_a_batch_tells_its_counters_watermark_and_seconds(store: PostgresStore, sink: Sink) -> None:
    apply_once(sink, batch(0))
    told = store.look("counters, watermark, seconds, offsets, query_id", "results_batches")
    assert told == [({"events": 2, "late": 1}, datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), 0.25, "offsets 0", "q")]


# NUL


def test_a_result_with_nul_is_a_dead_letter_with_the_whole_row_and_the_others_are_kept(
    store: PostgresStore, sink: Sink
) -> None:
    made = batch(0, count=3)
    rows = made.results.to_pylist()
    rows[1]["event"]["case"] = "a\x00b"
    counted = {**made.counters, "results": 3}
    written = written_once(sink, replace(made, results=pa.Table.from_pylist(rows, schema=SCHEMA), counters=counted))
    # a live pipeline adds up what its sink wrote: its figures were not those of the tables
    assert written is not None
    assert written.counters == sink.totals()
    assert store.in_order("batch_row, event_n") == [(0, 0), (1, 2)]
    ((_, _, why, text),) = store.in_order("file, line, reason, text", "results_dead_letters")[1:]
    assert why == "'event_case' holds the character NUL, which a text in PostgreSQL cannot"
    row = json.loads(text)
    assert (row["event_case"], row["event_n"], row["result_id"]) == ("a\x00b", 1, "r0-1")
    assert row["due"] == "1970-01-01 00:00:00.000001"
    assert sink.totals() == {"dead_letters": 1, "events": 2, "late": 1, "results": 2}


def test_nul_in_a_dead_letter_is_written_out(store: PostgresStore, sink: Sink) -> None:
    letter = {"file": "f", "line": 1, "reason": "bad \x00", "text": "{\x00\x00"}
    apply_once(sink, replace(batch(0), dead_letters=pa.Table.from_pylist([letter], schema=frames.DEAD_SCHEMA)))
    assert store.in_order("reason, text", "results_dead_letters") == [("bad \\u0000", "{\\u0000\\u0000")]


# Names and places


def test_a_schema_that_is_missing_is_made(postgres: PostgresServer) -> None:
    with closing(PostgresSink(postgres.url(), schema="made_here")) as sink:
        sink.open(SCHEMA)
        assert apply_once(sink, batch(0)) is True
        assert "'made_here'" in sink.describe()


def test_a_column_that_would_be_cut_is_refused(store: PostgresStore) -> None:
    long = pa.schema([("ä" * 29, pa.string())])  # event_ and 58 bytes
    with closing(store.sink()) as sink, pytest.raises(UsageError, match=r"'event_ä+' is too long"):
        sink.open(frames.result_schema(pa.string(), long))


def test_a_role_without_the_right_is_told_so(postgres: PostgresServer, store: PostgresStore) -> None:
    store.run("CREATE ROLE weak LOGIN")
    sink = PostgresSink(postgres.url("weak"), schema=store.schema)
    with closing(sink), pytest.raises(UsageError, match="permission denied for schema"):
        sink.open(SCHEMA)


def test_a_database_that_does_not_hold_every_text_is_refused(postgres: PostgresServer, store: PostgresStore) -> None:
    store.run("CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0")
    sink = PostgresSink(postgres.url(database="latin"))
    with closing(sink), pytest.raises(UsageError, match=r"encoding LATIN1.*CREATE DATABASE"):
        sink.open(SCHEMA)


# Transactions


def test_what_a_role_sets_for_its_transactions_weakens_none_of_ours(
    postgres: PostgresServer, store: PostgresStore
) -> None:
    store.run("CREATE ROLE careless LOGIN SUPERUSER")
    for name, value in (
        ("synchronous_commit", "off"),
        ("default_transaction_isolation", "serializable"),
        ("default_transaction_read_only", "on"),
        ("client_encoding", "latin1"),
        ("search_path", "nowhere"),
        ("timezone", "Asia/Tokyo"),
    ):
        store.run(f"ALTER ROLE careless SET {name} = '{value}'")
    with closing(PostgresSink(postgres.url("careless"), schema=store.schema)) as sink:
        sink.open(SCHEMA)
        apply_once(sink, batch(0))
        rows = pa.Table.from_pylist([{"kind": "event", "key": "é🕰"}], schema=SCHEMA)
        apply_once(sink, replace(batch(1), results=rows, offsets="é🕰"))
        sink.begin()
        found = sink.db.run("SELECT current_setting('synchronous_commit'), current_setting('transaction_isolation')")
        sink.rollback()
    assert found == [("on", "read committed")]
    assert store.look("batch_id, key") == [(0, "a"), (0, "a"), (1, "é🕰")]
    assert store.look("batch_id, offsets", "results_batches") == [(0, "offsets 0"), (1, "é🕰")]


def test_a_transaction_in_which_a_statement_failed_does_not_pass_for_committed(
    store: PostgresStore, sink: PostgresSink
) -> None:
    sink.begin()
    with pytest.raises(UsageError):
        sink.db.run("SELECT 1 / 0")
    with pytest.raises(RuntimeError, match="undone"):
        sink.commit()
    assert apply_once(sink, batch(0)) is True


def test_readers_are_not_kept_waiting(store: PostgresStore, sink: Sink) -> None:
    sink.begin()
    sink.write(batch(0))
    assert everything(store) == of_batches()
    sink.commit()


def test_nothing_is_prepared_or_set_beyond_a_transaction_so_that_a_pooler_may_stand_between(
    sink: PostgresSink,
) -> None:
    settings = "SELECT name, setting FROM pg_settings WHERE source = 'session' ORDER BY 1"
    before = sink.db.run(settings)
    for batch_id in range(10):
        apply_once(sink, batch(batch_id))
    assert sink.db.run("SELECT count(*) FROM pg_prepared_statements") == [(0,)]
    assert sink.db.run(settings) == before


def test_psycopg_is_not_imported_before_it_is_needed() -> None:
    script = "import sys, waterclock.sinks; print('psycopg' in sys.modules)"
    assert (
        subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout == "False\n"
    )


def test_connections_of_a_sink_are_its_own_and_end_with_it(store: PostgresStore, postgres: PostgresServer) -> None:
    sink = store.sink()
    sink.open(SCHEMA)
    with closing(psycopg.connect(postgres.url(), autocommit=True)) as other:
        query = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'waterclock'"
        assert other.execute(query).fetchone() == (1,)
        sink.close()
        for _ in range(2_000):
            if other.execute(query).fetchone() == (0,):
                return
    raise AssertionError("the connection is still there")
