"""What becomes of a batch when the sink's server, or the way to it, goes away: all of it or nothing, and told which."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from tests.sinks.far_servers import FarServer, Interrupted
from tests.sinks.stores import SCHEMA, Store, batch, everything, of_batches
from waterclock.errors import CommitUnknown, SinkLost, UsageError
from waterclock.sinks import LastBatch, apply_once

STEPS = ("begin", "is_applied", "write", "commit")


@pytest.fixture(scope="module")
def mariadb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One of this file's own, whose commits outlast the kills of the server."""
    pytest.importorskip("pymysqlreplication", reason="the server's fixture is that of the extra cdc")
    from tests.cdc.mariadb import running_server

    with running_server(tmp_path_factory.mktemp("mariadb"), "--innodb-flush-log-at-trx-commit=1") as server:
        yield server


@pytest.fixture
def store(far: FarServer) -> Store:
    return far.store


# The server dies


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("step", STEPS)
def test_a_server_that_dies_between_two_steps_and_comes_back_costs_a_second_try(
    far: FarServer, store: Store, sink: Any, step: str, when: str
) -> None:
    def restart() -> None:
        far.crash()
        far.server.start()

    assert apply_once(Interrupted(sink, step, when, restart), batch(1)) is True
    assert everything(store) == of_batches(0, 1)
    assert apply_once(sink, batch(1)) is False
    assert sink.totals() == {"events": 4, "late": 2}


@pytest.mark.parametrize("step", STEPS)
def test_a_server_that_stays_away_is_told_and_a_rerun_makes_the_table_whole(
    far: FarServer, store: Store, sink: Any, step: str
) -> None:
    with pytest.raises(SinkLost, match=rf"the connection to {far.scheme}://.* went away: .*the same command goes on"):
        apply_once(Interrupted(sink, step, "before", far.crash), batch(1))
    sink.rollback()
    far.server.start()
    assert everything(store) == of_batches(0)
    assert apply_once(sink, batch(1)) is True
    assert everything(store) == of_batches(0, 1)


def test_a_sink_that_was_idle_while_the_server_restarted_notices_nothing(far: FarServer, sink: Any) -> None:
    for look in (sink.last_applied, sink.totals, sink.begin):
        far.crash()
        far.server.start()
        look()
    sink.rollback()
    assert sink.last_applied() == LastBatch("q", 0)


def test_a_server_that_is_not_there_at_the_start_is_a_usage_error(far: FarServer, store: Store) -> None:
    far.crash()
    with closing(store.sink()) as sink, pytest.raises(UsageError, match=r"cannot connect to .*Is the server there"):
        sink.open(SCHEMA)


def test_a_connection_that_is_ended_inside_of_a_batch_is_never_replaced_in_the_middle_of_it(
    far: FarServer, store: Store, sink: Any
) -> None:
    sink.begin()
    sink.write(batch(1))
    far.end_connections()
    for call in (lambda: sink.write(batch(2)), lambda: sink.is_applied("q", 1), sink.last_applied):
        with pytest.raises(SinkLost):
            call()
    with pytest.raises(CommitUnknown):
        sink.commit()
    assert everything(store) == of_batches(0)


# A commit without an answer


@pytest.mark.parametrize("cut", ["before", "after"])
def test_a_commit_without_an_answer_is_looked_up_and_the_batch_is_there_once(
    far: FarServer, store: Store, cut: str
) -> None:
    with closing(store.sink()) as straight:
        straight.open(SCHEMA)
    with far.way(cut) as sink:
        assert apply_once(sink, batch(0)) is True
        assert everything(store) == of_batches(0)
        assert apply_once(sink, batch(0)) is False


@pytest.mark.parametrize("cut", ["before", "after"])
def test_a_commit_without_an_answer_is_no_success(far: FarServer, store: Store, cut: str) -> None:
    with closing(store.sink()) as straight:
        straight.open(SCHEMA)
    with far.way(cut) as sink:
        sink.begin()
        sink.write(batch(0))
        with pytest.raises(CommitUnknown, match="it may have got through"):
            sink.commit()
    far.until_undone()
    assert everything(store) == (of_batches() if cut == "before" else of_batches(0))
