"""What the broker tells about itself: each count from a request that makes it."""

from __future__ import annotations

import ast
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import FrozenInstanceError, asdict, replace
from datetime import timedelta
from pathlib import Path

import pytest

pytest.importorskip("kio")

import waterclock.broker
from tests.broker.raw_client import RawClient
from tests.conformance.waiting import until
from waterclock.broker import Broker, BrokerStatistics, Error
from waterclock.broker.flusher import THREADS
from waterclock.broker.process import line
from waterclock.broker.statistics import FlushStatistics, ReplicationStatistics, prometheus
from waterclock.clock import ManualClock


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(clock=ManualClock(), settings={"log.message.timestamp.after.max.ms": str(2**62)}) as broker:
        broker.create_topic("orders", 3)
        yield broker


def test_requests_are_counted_by_the_name_of_their_api(broker: Broker, client: RawClient) -> None:
    client.produce("orders", b"a")
    client.produce("orders", b"b")
    client.end("orders")
    assert broker.statistics().requests == {"Produce": 2, "ListOffsets": 1}


def test_a_request_that_a_fault_met_counts_too(broker: Broker, client: RawClient) -> None:
    with broker.faults.answer("Produce", Error.NOT_LEADER_OR_FOLLOWER):
        client.produce("orders", b"a")
    assert broker.statistics().requests == {"Produce": 1}
    assert broker.statistics().records_in == 0


def test_connections_are_those_that_are_open_now(broker: Broker) -> None:
    with RawClient(broker.bootstrap) as one, RawClient(broker.bootstrap) as other:
        one.end("orders"), other.end("orders")
        assert broker.statistics().connections == 2
    until(lambda: broker.statistics().connections == 0)


def test_bytes_are_those_of_the_network_and_records_those_of_the_log(broker: Broker, client: RawClient) -> None:
    before = broker.statistics()
    client.send_produce("orders", b"a" * 1000, b"b")
    client.produced()
    after = broker.statistics()
    assert after.records_in - before.records_in == 2
    assert 1000 < after.record_bytes_in < after.bytes_in < after.record_bytes_in + 100
    assert 0 < after.bytes_out < 100


def test_topics_and_partitions_are_those_that_there_are(broker: Broker) -> None:
    broker.create_topic("others", 2)
    statistics = broker.statistics()
    assert (statistics.topics, statistics.partitions) == (2, 5)


def test_what_waits_is_told_by_purgatory(broker: Broker, client: RawClient) -> None:
    broker.faults.freeze("orders")
    client.send_produce("orders", b"a")
    until(lambda: broker.statistics().purgatories["produce"].delayed == 1)
    fetches = broker.statistics().purgatories["fetch"]
    assert (fetches.delayed, fetches.watched) == (0, 0)
    broker.faults.thaw("orders")
    client.produced()
    produces = broker.statistics().purgatories["produce"]
    assert (produces.delayed, produces.watched, produces.completed) == (0, 0, 1)


def purgatories_in_the_source() -> list[str]:
    """The names that purgatories are made with, anywhere in the broker; one whose name is no text stands as its code."""
    calls = [
        node
        for path in Path(waterclock.broker.__path__[0]).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == "Purgatory"
    ]
    return [
        ast.literal_eval(call.args[0]) if isinstance(call.args[0], ast.Constant) else ast.unparse(call)
        for call in calls
    ]


def test_every_purgatory_that_the_broker_makes_is_in_its_statistics(broker: Broker) -> None:
    """Delayed DeleteRecords were waited for, and no figure showed them."""
    assert sorted(broker.statistics().purgatories) == sorted(purgatories_in_the_source())
    assert len(purgatories_in_the_source()) >= 6


def test_a_deletion_of_records_is_counted_where_it_waited(broker: Broker, client: RawClient) -> None:
    for value in (b"a", b"b"):
        client.produce("orders", value)
    partitions = [{"partition_index": 0, "offset": 1}]
    topics = [{"name": "orders", "partitions": partitions}]
    answer = client.ask("DeleteRecords", 2, topics=topics, timeout=timedelta(seconds=10))
    assert answer.topics[0].partitions[0].low_watermark == 1
    ended = {name: one.completed for name, one in broker.statistics().purgatories.items()}
    assert ended == {"produce": 2, "fetch": 0, "delete records": 1, "join": 0, "heartbeat": 0, "transaction": 0}


def test_every_purgatory_is_on_prometheuss_page(broker: Broker) -> None:
    page = prometheus(broker.statistics())
    for name in purgatories_in_the_source():
        assert f'waterclock_broker_delayed_operations{{purgatory="{name}"}} 0' in page
        assert f'waterclock_broker_ended_operations_total{{purgatory="{name}",end="expired"}} 0' in page


def test_a_flush_counts_once_and_its_partitions_each(broker: Broker, client: RawClient) -> None:
    broker.create_topic("wide", 2 * THREADS)
    broker.faults.freeze("wide")
    for partition in range(2 * THREADS):
        assert client.produce("wide", b"a", acks=1, partition=partition)[0] == 0
    assert broker.statistics().flushes.count == 0
    broker.faults.thaw("wide")  # each thread gets its share at once
    until(lambda: broker.statistics().flushes.count == THREADS)
    flushes = broker.statistics().flushes
    assert (flushes.partitions, flushes.partitions_per_flush) == (2 * THREADS, 2)


def test_before_the_first_flush_its_time_is_not_known(broker: Broker, client: RawClient) -> None:
    assert (broker.statistics().flushes.last_ms, broker.statistics().flushes.worst_ms) == (None, None)
    client.produce("orders", b"a")
    assert (broker.statistics().flushes.last_ms, broker.statistics().flushes.worst_ms) == (0.0, 0.0)


def test_the_time_of_a_flush_is_that_of_the_brokers_clock(broker: Broker, client: RawClient) -> None:
    client.produce("orders", b"a")
    assert (broker.statistics().flushes.last_ms, broker.statistics().flushes.worst_ms) == (0, 0)
    with Broker() as real:
        real.create_topic("orders")
        with RawClient(real.bootstrap) as other:
            other.produce("orders", b"a")
        flushes = real.statistics().flushes
        assert 0 < flushes.last_ms <= flushes.worst_ms


def test_groups_and_their_members_are_counted_by_state(broker: Broker, client: RawClient) -> None:
    assert (broker.statistics().groups, broker.statistics().group_members) == ({}, 0)
    fields = {
        "group_id": "readers", "session_timeout": timedelta(seconds=10), "rebalance_timeout": timedelta(seconds=10),
        "member_id": "", "protocol_type": "consumer", "protocols": [{"name": "range", "metadata": b""}],
    }  # fmt: skip
    client.send("JoinGroup", 2, **fields)
    until(lambda: broker.statistics().group_members == 1)
    with RawClient(broker.bootstrap) as other:
        other.send("JoinGroup", 2, **fields)
        until(lambda: broker.statistics().group_members == 2)
    assert sum(broker.statistics().groups.values()) == 1


def test_transactions_are_counted_by_state(broker: Broker, client: RawClient) -> None:
    assert broker.statistics().transactions == {}
    answer = client.ask(
        "InitProducerId", 4, transactional_id="tx", transaction_timeout=timedelta(seconds=10), producer_epoch=-1
    )
    assert answer.error_code.value == 0
    assert broker.statistics().transactions == {"Empty": 1}


def test_the_record_is_frozen_and_json_takes_it(broker: Broker) -> None:
    statistics = broker.statistics()
    with pytest.raises(FrozenInstanceError):
        statistics.topics = 7  # type: ignore[misc]
    assert json.loads(json.dumps(asdict(statistics)))["purgatories"]["fetch"]["delayed"] == 0
    assert isinstance(statistics, BrokerStatistics)


def test_the_line_on_stderr_has_numbers_where_nothing_is_known(broker: Broker) -> None:
    """It is read by programs since before None stood in the record."""
    nothing = FlushStatistics(0, 0, None, None)
    follows = ReplicationStatistics(False, "a:1", None, None)
    found = json.loads(line(replace(broker.statistics(), flushes=nothing, replication=follows)))
    assert found["flushes"] == {"count": 0, "partitions": 0, "last_ms": 0.0, "worst_ms": 0.0}
    assert found["replication"] == {"leads": False, "peer": "a:1", "in_sync": 0, "lag": -1}
    known = json.loads(line(replace(broker.statistics(), flushes=FlushStatistics(2, 3, 0.5, 1.5))))
    assert known == {
        **asdict(broker.statistics()),
        "flushes": {"count": 2, "partitions": 3, "last_ms": 0.5, "worst_ms": 1.5},
    }


def test_the_command_prints_a_line_of_json_every_so_many_seconds() -> None:
    command = [sys.executable, "-m", "waterclock.cli", "broker", "--port", "0", "--statistics-every", "0.1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        ready = process.stdout.readline()
        lines = [json.loads(process.stderr.readline()) for _ in range(2)]
        process.send_signal(signal.SIGTERM)
    assert "ready on" in ready
    assert [line["connections"] for line in lines] == [0, 0]
    assert lines[0]["flushes"] == {"count": 0, "partitions": 0, "last_ms": 0.0, "worst_ms": 0.0}
    assert process.returncode == 0
