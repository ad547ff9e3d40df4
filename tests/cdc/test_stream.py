"""PostgreSQL's slot as a stream: what the server shows of it, an idle one that moves on, large transactions before their
commit, a server that is gone."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest

from tests.cdc.mariadb import as_found
from tests.cdc.postgres import changes, run
from tests.kafka.reader import committed
from tests.postgres_server import PostgresServer, running_server
from waterclock.cdc import capture as capturing
from waterclock.cdc.capture import Capture
from waterclock.cdc.position import Position
from waterclock.cdc.postgres import stream, streamed
from waterclock.cdc.postgres.beginning import begun
from waterclock.cdc.postgres.pgoutput import lsn_number
from waterclock.cdc.postgres.session import ReplicationSlot
from waterclock.cdc.postgres.slot import OWN, SlotReader, current, stands_by
from waterclock.cdc.produce import Publisher, Target
from waterclock.cdc.source import SourceMark, TableFilter
from waterclock.changes.maxwell import MaxwellMessage
from waterclock.clock import SystemClock
from waterclock.errors import ConnectionLost, UsageError
from waterclock.testing import Broker

pytestmark = pytest.mark.postgres
WALSENDER = "select pid, application_name, state from pg_stat_replication where application_name = "


def reader_of(slot: ReplicationSlot, start: Position, *tables: str) -> SlotReader:
    return SlotReader(slot, start, TableFilter(tables, OWN), SystemClock())


def until(reader: SlotReader, end: str) -> Iterator[Any]:
    for item in reader.items():
        yield item
        if reader.reached(end):
            return


def test_the_server_shows_the_capture_by_its_slots_name_and_frees_the_slot_at_the_end(slot: ReplicationSlot) -> None:
    with closing(reader_of(slot, begun(slot, []))):
        ((_, name, state),) = run(slot.conninfo, f"{WALSENDER}'{slot.name}'")
        assert (name, state) == (slot.name, "streaming")
    assert run(slot.conninfo, f"select active from pg_replication_slots where slot_name = '{slot.name}'") == [(False,)]


@pytest.mark.parametrize(
    ("names", "counts"), [("*", True), ("FIRST 1 (replica, *)", True), ('ANY 1 (a, "d")', True), ("replica", False)]
)
def test_a_capture_that_the_server_counts_as_a_standby_is_told(names: str, counts: bool) -> None:
    """Commits waited for the capture, and were confirmed by it in place of the replica."""
    told = {"wal_level": "logical", "synchronous_commit": "local", "synchronous_standby_names": names}
    with running_server(told) as server:
        slot = ReplicationSlot(server.url(), "d", "d")
        assert bool(stands_by(slot)) is counts
        with closing(reader_of(slot, begun(slot, []))):
            state = run(
                slot.conninfo, "select sync_state <> 'async' from pg_stat_replication where application_name = 'd'"
            )
            assert state == [(counts,)]


def test_a_slot_moves_on_where_nothing_wanted_is_written_and_keeps_to_what_was_stored(slot: ReplicationSlot) -> None:
    """WAL piled up behind a slot whose tables nobody wrote to."""
    run(slot.conninfo, "create table t (id int primary key)", "create table noise (id int)")
    start = begun(slot, ["public.t"])
    run(slot.conninfo, "insert into noise select generate_series(1, 5000)")
    end = current(slot)
    confirmed = f"select confirmed_flush_lsn::text from pg_replication_slots where slot_name = '{slot.name}'"
    with closing(reader_of(slot, start, "public.t")) as reader:
        assert not [item for item in until(reader, end) if isinstance(item, MaxwellMessage)]
        assert run(slot.conninfo, confirmed) == [(start.place,)]
        reader.stored(reader.position())
    ((found,),) = run(slot.conninfo, confirmed)
    assert lsn_number(found) >= lsn_number(end)


def test_the_end_of_a_record_that_fills_its_page_is_reached_on_a_server_that_writes_no_more(
    slot: ReplicationSlot,
) -> None:
    """The server names the next record's place, behind the next page's header: what is read never ends there."""
    start = begun(slot, [])
    with psycopg.connect(slot.conninfo, autocommit=True) as connection:

        def written(letters: int) -> int:
            connection.execute("select pg_logical_emit_message(false, '', repeat('x', %s))", (letters,))
            return lsn_number(str(connection.execute("select pg_current_wal_insert_lsn()").fetchall()[0][0]))

        for _ in range(50):
            before = written(8)
            record = written(1000) - before - 1000  # but for its text; more if it went over a page's end
            at = written(8) % 8192
            if written(8192 - at - record if at < 7000 else 1000) % 8192 == 24:
                break
        else:
            pytest.fail("no record ended with its page")
    end = current(slot)
    assert lsn_number(end) % 8192 == 0
    with closing(reader_of(slot, start)) as reader:
        assert reader.reached(end) or list(until(reader, end))


def large(slot: ReplicationSlot) -> None:
    """PostgreSQL sends a transaction before its commit once it has more than this."""
    run(slot.conninfo, f"alter database {slot.name} set logical_decoding_work_mem = '64kB'")


ROWS = "insert into t select n, repeat('x', 100) from generate_series({}, {}) n"


def test_large_transactions_that_are_written_at_once_come_whole_in_the_order_of_their_commits(
    slot: ReplicationSlot,
) -> None:
    run(slot.conninfo, "create table t (id int primary key, c text)")
    start = begun(slot, [])
    large(slot)
    with psycopg.connect(slot.conninfo) as one, psycopg.connect(slot.conninfo) as other:
        one.execute(ROWS.format(1, 3000))
        other.execute(ROWS.format(10_001, 13_000))
        run(slot.conninfo, "insert into t values (0, 'small')")
        one.execute(ROWS.format(3001, 6000))
        other.commit()
        one.commit()
    found = changes(slot, start)
    assert [change.data["id"] for change in found] == list(map(str, [0, *range(10_001, 13_001), *range(1, 6001)]))
    assert [change.xoffset for change in found] == [0, *range(3000), *range(6000)]
    assert [change.xoffset for change in found if change.commit] == [0, 2999, 5999]
    assert len({change.gtid for change in found}) == 3
    half = Position(start.place, 0, 4, found[1].gtid)
    assert found[0].gtid != half.inside
    assert changes(slot, Position(start.place, held=start.held)) == found


def test_what_a_large_transaction_rolled_back_does_not_come_and_what_it_changed_in_a_table_does(
    slot: ReplicationSlot,
) -> None:
    run(slot.conninfo, "create table t (id int primary key, c text)")
    start = begun(slot, [])
    large(slot)
    with psycopg.connect(slot.conninfo) as connection:
        connection.execute(ROWS.format(1, 2000))
        with connection.transaction() as part:
            connection.execute("alter table t rename c to gone")
            connection.execute("insert into t select n, repeat('y', 100) from generate_series(2001, 4000) n")
            raise psycopg.Rollback(part)
        connection.execute(ROWS.format(4001, 6000))
        connection.execute("alter table t add d int default 7")
        connection.execute("insert into t values (9999, 'after', 8)")
    with psycopg.connect(slot.conninfo) as connection:
        connection.execute("insert into t select n, 'z' from generate_series(20000, 24000) n")
        connection.rollback()
    run(slot.conninfo, "insert into t values (10000, 'last', 9)")
    found = [change.values() for change in changes(slot, start)]
    assert [row["id"] for row in found] == [*range(1, 2001), *range(4001, 6001), 9999, 10000]
    assert {tuple(row) for row in found[:-2]} == {("id", "c")}
    assert found[-2:] == [{"id": 9999, "c": "after", "d": 8}, {"id": 10000, "c": "last", "d": 9}]


def test_a_large_transaction_is_kept_on_the_disk_and_one_that_does_not_fit_is_told(
    slot: ReplicationSlot, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(slot.conninfo, "create table t (id int primary key, c text)")
    start = begun(slot, [])
    large(slot)
    run(slot.conninfo, ROWS.format(1, 2000))

    class Full:
        def write(self, data: bytes) -> None:
            raise OSError(28, "No space left on device")

        def close(self) -> None: ...

    with monkeypatch.context() as patched:
        patched.setattr(streamed.tempfile, "SpooledTemporaryFile", lambda size: Full())
        with pytest.raises(UsageError, match=r"No space left on device.*TMPDIR"):
            changes(slot, start)
    assert len(changes(slot, start)) == 2000


def test_a_second_reader_of_a_slot_is_told_and_the_first_one_goes_on(
    slot: ReplicationSlot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "HELD_S", 0.3)
    run(slot.conninfo, "create table t (id int primary key)")
    start = begun(slot, [])
    with closing(reader_of(slot, start)) as reader:
        with pytest.raises(ConnectionLost, match="is read by another process"):
            reader_of(slot, start)
        run(slot.conninfo, "insert into t values (1)")
        found = [item for item in until(reader, current(slot)) if isinstance(item, MaxwellMessage)]
    assert as_found(found) == [("insert", {"id": 1})]


def test_a_server_that_went_away_is_noticed_and_one_that_says_nothing_too(
    slot: ReplicationSlot, logical: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "GONE_S", 2.0)
    monkeypatch.setattr(stream, "END_S", 0.1)
    run(slot.conninfo, f"alter database {slot.name} set wal_sender_timeout = '1s'")
    start = begun(slot, [])
    with closing(reader_of(slot, start)) as reader:
        ((pid, _, _),) = run(slot.conninfo, f"{WALSENDER}'{slot.name}'")
        os.kill(pid, signal.SIGSTOP)
        try:
            with pytest.raises(ConnectionLost, match="has not said how far it is for 2 seconds"):
                assert set(reader.items()) == {SourceMark.QUIET}
        finally:
            os.kill(pid, signal.SIGCONT)
    with closing(reader_of(slot, start)) as reader:
        logical.crash()
        logical.start()
        with pytest.raises(ConnectionLost):
            list(reader.items())
    with closing(reader_of(slot, start)) as reader:
        list(until(reader, current(slot)))


def test_a_server_is_waited_for_as_long_as_it_would_wait_itself(
    slot: ReplicationSlot, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that decodes a transaction for minutes was taken for gone, each time anew, and nothing of it could be set."""
    monkeypatch.setattr(stream, "GONE_S", 0.5)
    run(slot.conninfo, f"alter database {slot.name} set wal_sender_timeout = '20s'", "create table t (id int)")
    with closing(reader_of(slot, begun(slot, []))) as reader:
        ((pid, _, _),) = run(slot.conninfo, f"{WALSENDER}'{slot.name}'")
        os.kill(pid, signal.SIGSTOP)
        end_s = SystemClock().monotonic_s() + 3
        try:
            for _ in reader.items():
                if SystemClock().monotonic_s() > end_s:
                    break
        finally:
            os.kill(pid, signal.SIGCONT)
        run(slot.conninfo, "insert into t values (1)")
        found = [item for item in until(reader, current(slot)) if isinstance(item, MaxwellMessage)]
    assert as_found(found) == [("insert", {"id": 1})]


def test_a_word_of_the_server_leaves_half_of_a_transaction_where_it_is(
    slot: ReplicationSlot, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server says how far it is between the pieces of a large transaction: then the position forgot what of it was in
    Kafka, and it came once more."""
    monkeypatch.setattr(capturing, "LARGEST", 1000)
    monkeypatch.setattr(capturing, "LONGEST_MS", 0)
    run(slot.conninfo, "create table t (id int primary key, c text)")
    start = begun(slot, [])
    large(slot)
    run(slot.conninfo, ROWS.format(1, 3500))
    end, stored = current(slot), list[Position]()
    following, spoke = stream.ReplicationStream.next, list[stream.ReplicationStream]()

    def said(self: stream.ReplicationStream, wait_s: float) -> bytes | int | None:
        if self in spoke:
            return following(self, wait_s)
        spoke.append(self)
        return lsn_number(start.place) + 8 * len(spoke)

    monkeypatch.setattr(stream.ReplicationStream, "next", said)

    class Dying(Publisher):
        def commit(self, position: Position) -> None:
            super().commit(position)
            stored.append(position)
            if len(stored) in (2, 4):
                raise KeyboardInterrupt

    capture = Capture(
        lambda: Dying(Target(broker.bootstrap, slot.name, "global"), slot.name),
        lambda position: reader_of(slot, position),
        SystemClock(),
        start=start,
    )
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            capture.run(end)
    capture.run(end)
    ids = [json.loads(value)["data"]["id"] for _, value in committed(broker, slot.name)[0]]
    assert ids == list(range(1, 3501))
