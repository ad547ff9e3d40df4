"""PostgreSQL: what a role, a database or a cluster has set, and who else is at work there, changes nothing of a capture."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, closing

import psycopg
import pytest

from tests.cdc.postgres import changes, run
from tests.postgres_server import running_server
from waterclock.cdc import snapshot
from waterclock.cdc.agreement import INITIAL, Terms
from waterclock.cdc.held import OlderRest
from waterclock.cdc.part import OlderPart
from waterclock.cdc.postgres.beginning import begun
from waterclock.cdc.postgres.chunks import SlotChunks
from waterclock.cdc.postgres.session import ReplicationSlot, connected, walsender
from waterclock.cdc.postgres.slot import OWN, SlotReader
from waterclock.cdc.postgres.view import unseen
from waterclock.cdc.snapshot import SnapshotSource, WholePlace
from waterclock.cdc.source import TableFilter
from waterclock.clock import SystemClock

pytestmark = pytest.mark.postgres
TERMS, CLOCK = Terms(snapshot=INITIAL), SystemClock()
TIMEOUTS = "'statement_timeout', 'lock_timeout', 'idle_in_transaction_session_timeout', 'idle_session_timeout'"


def of_slot(slot: ReplicationSlot) -> SlotReader:
    return SlotReader(slot, begun(slot, []), TableFilter([], OWN), CLOCK, terms=TERMS)


def test_a_limit_of_time_that_a_role_has_ends_no_wait_of_a_capture(slot: ReplicationSlot) -> None:
    """A first start ended with "The connection to PostgreSQL broke", and so did each later one."""
    run(slot.conninfo, "create table t (id int primary key)")
    for name in TIMEOUTS.replace("'", "").split(", "):
        run(slot.conninfo, f"alter database {slot.name} set {name} = '200ms'")
    with ExitStack() as opened:
        for session in (connected(slot), walsender(slot)):
            opened.enter_context(closing(session))
            found = session.execute(f"select name, setting from pg_settings where name in ({TIMEOUTS})").fetchall()
            assert [setting for _, setting in found] == ["0"] * 4
    own = "-c idle_in_transaction_session_timeout=0 -c idle_session_timeout=0"
    with psycopg.connect(slot.conninfo, options=own) as other:
        other.execute("insert into t values (1)")
        threading.Timer(1, other.commit).start()
        start = begun(slot, [])
        run(slot.conninfo, "insert into t values (2)")
    assert [change.data["id"] for change in changes(slot, start)] == ["2"]


@pytest.mark.parametrize("path", ['"$user", public', "", "pg_catalog"])
def test_a_key_of_a_type_that_the_role_does_not_see_has_its_own_order(
    path: str, slot: ReplicationSlot, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The operators of text were taken for those of citext, and rows were passed over."""
    for name in ("FIRST_ROWS", "MOST_ROWS", "LEAST_ROWS"):
        monkeypatch.setattr(snapshot, name, 2)
    run(slot.conninfo, "create schema ext", "create extension citext schema ext", "create extension ltree schema ext")
    run(slot.conninfo, "create table one (k ext.citext primary key)", "create table path (k ext.ltree primary key)")
    run(slot.conninfo, "create table two (n int, k ext.citext, primary key (n, k))")
    run(
        slot.conninfo,
        "insert into one values ('a'), ('B'), ('c'), ('D'), ('e')",
        "insert into path values ('a.b'), ('a')",
    )
    run(slot.conninfo, "insert into two select n, k from one, generate_series(1, 2) n", "insert into path values ('b')")
    run(slot.conninfo, f"alter database {slot.name} set search_path = {path or repr('')}")
    reader = of_slot(slot)
    found: dict[str, list[str]] = {"one": [], "two": [], "path": []}
    with closing(SnapshotSource(reader, SlotChunks(reader, slot, CLOCK), CLOCK)) as source:
        for item in source.items():
            if isinstance(item, OlderPart):
                found[item.of.table] += [row["k"] for row in item.rows.values()]
            if source.reached(WholePlace()):
                break
    every = [f'"{key}"' for key in "aBcDe"]
    assert found == {"one": every, "two": [*every, *every], "path": ['"a"', '"a.b"', '"b"']}


def test_a_transaction_that_is_prepared_and_left_alone_keeps_no_snapshot_waiting() -> None:
    """Its number is locked, whoever prepared it is gone, and none of its tables needs to be captured."""
    with running_server({"wal_level": "logical", "max_prepared_transactions": "2"}) as server:
        slot, rests = ReplicationSlot(server.url(), "d", "d"), {"public.t": OlderRest()}
        run(server.url(), "create table t (id int primary key)", "insert into t values (1)")
        with closing(of_slot(slot)) as reader:
            run(server.url(), "begin; insert into t values (2); prepare transaction 'left'")
            with closing(SlotChunks(reader, slot, CLOCK)) as chunks:
                (chunk,) = chunks.read(rests, 10)
                assert [row["id"] for row in chunk.rows.values()] == ["1"]
            # one whose commit stands in the log already is waited for
            run(server.url(), "alter system set synchronous_standby_names = 'nobody'", "select pg_reload_conf()")
            ending = threading.Thread(target=run, args=(server.url(), "commit prepared 'left'"))
            ending.start()
            try:
                waits = "select 1 from pg_stat_activity where wait_event = 'SyncRep'"
                until(lambda: bool(run(server.url(), waits)))
                with closing(SlotChunks(reader, slot, CLOCK)) as chunks:
                    assert chunks.read(rests, 10) == []
            finally:
                run(server.url(), "alter system reset synchronous_standby_names", "select pg_reload_conf()")
                ending.join()
            with closing(SlotChunks(reader, slot, CLOCK)) as chunks:
                assert len(chunks.read(rests, 10)[0].rows) == 2


def test_one_that_is_at_work_when_a_snapshot_begins_and_idle_later_is_not_waited_for(slot: ReplicationSlot) -> None:
    """A session between two statements of its transaction has not begun to commit."""
    run(slot.conninfo, "create table t (id int primary key)", "insert into t values (1)")
    with closing(of_slot(slot)) as reader, psycopg.connect(slot.conninfo) as other:
        other.execute("insert into t values (2)")
        working = threading.Thread(target=other.execute, args=("select pg_sleep(2)",))
        working.start()
        with closing(connected(slot)) as asking:
            until(lambda: bool(unseen(asking)))
        with closing(SlotChunks(reader, slot, CLOCK)) as chunks:
            assert chunks.read({"public.t": OlderRest()}, 10) == []
            working.join()
            assert len(chunks.read({"public.t": OlderRest()}, 10)[0].rows) == 1


def until(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < end
