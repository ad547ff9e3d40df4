"""A leader that was started again, and whose follower may lack what stands in its store: nobody is told of it before the
follower has it.

The simulation found what was confirmed to a client that asked once more, and was gone with a promotion.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("kio")
pytest.importorskip("crc32c")

from tests.broker.replication.frozen import replicas_needed
from tests.broker.replication.pairs import FETCHED, Pair, client, pair, until
from tests.broker.replication.test_alone import commit, commit_soon, committed, journal, promote, waiting
from tests.broker.transactions.client import Client, Id, batch
from waterclock.broker import Broker
from waterclock.broker.wire.errors import Error

LOADING = "COORDINATOR_LOAD_IN_PROGRESS"


@pytest.fixture
def both(tmp_path: Path) -> Iterator[Pair]:
    with pair(tmp_path) as both:
        assert commit(both, 1)
        yield both


def again(both: Pair) -> Broker:
    """The leader anew after a power cut, its follower frozen."""
    both.one.cut_power()
    return both.again("one").start()


def fetched(both: Pair) -> tuple[Error, int]:
    """A group's offset, and its error, as the leader has it."""
    with client(both.one) as raw:
        row = raw.ask("OffsetFetch", 7, **FETCHED).topics[0].partitions[0]
    return Error(row.error_code.value), int(row.committed_offset)


def test_an_offset_that_only_the_store_has_is_told_when_the_follower_has_it(both: Pair) -> None:
    both.freeze()
    with client(both.one) as raw:
        commit_soon(raw, 2)
        until(lambda: waiting(both) == 1, "it is in the store")
        again(both)
    assert fetched(both)[0] is Error.COORDINATOR_LOAD_IN_PROGRESS
    assert not commit(both, 2)
    both.thaw()
    until(lambda: fetched(both) == (Error.NONE, 2), "the follower has it")
    promote(both)
    assert committed(both) == 2


@pytest.mark.parametrize("protocol", [1, 2])
def test_a_decision_that_only_the_store_has_is_neither_told_nor_marked_before_the_follower_has_it(
    both: Pair, protocol: int
) -> None:
    version = 4 if protocol == 1 else 5
    producer = _decided_alone(both, version)
    with Client(again(both).bootstrap) as asking:
        end = asking.end("n", producer, True, version)
        assert (end if protocol == 1 else end[0]) == LOADING
        assert asking.init("n")[0] == LOADING
        assert asking.produce("n", "t", batch("b", producer, 1))[0] == "NOT_ENOUGH_REPLICAS"
        assert [one.text for one in asking.log("t")] in ([], ["a"])  # no marker
        both.thaw()
        until(lambda: LOADING not in [end := asking.end("n", producer, True, version), end[0]], "the follower has it")
        until(lambda: asking.state("n") == "CompleteCommit")
        assert asking.committed("t") == ["a"]
    both.synced()
    both.one.close()
    both.two.promote()
    with Client(both.two.bootstrap) as reader:
        assert reader.committed("t") == ["a"]
        assert reader.state("n") == "CompleteCommit"


def _decided_alone(both: Pair, version: int) -> Id:
    """A producer with a record in a transaction whose end stands in the leader's store alone."""
    with Client(both.one.bootstrap) as asking:
        producer = asking.ready("n")
        asking.add("n", producer, "t")
        assert asking.produce("n", "t", batch("a", producer, 0))[0] == "NONE"
        both.freeze()
        before = waiting(both)
        asking.end_soon("n", producer, version=version)
        until(lambda: waiting(both) > before, "the decision is in the store")
    assert journal(both).partition.end > 0
    return producer


def test_a_leader_whose_follower_is_gone_serves_groups_once_it_counts_no_more(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with pair(tmp_path, {"min.insync.replicas": "2", "replica.lag.time.max.ms": "300"}) as both:
        assert commit(both, 1)
        both.two.close()
        again(both)
        until(lambda: both.one.statistics().replication.in_sync == 0, "the follower is out of sync")
        assert fetched(both)[0] is Error.COORDINATOR_LOAD_IN_PROGRESS
        with client(both.one) as raw:
            assert replicas_needed(raw, 1)
        until(lambda: fetched(both) == (Error.NONE, 1), "one is enough")
    said = [record.getMessage() for record in caplog.records if "groups and transactions" in record.getMessage()]
    assert [one.startswith("groups and transactions are served once replica") for one in said] == [True, False]
