"""Two brokers in one process: each has a thread of its own, and neither sees what the other's clients send."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("kio")

from tests.broker.raw_client import RawClient
from tests.broker.record_batches import stored
from waterclock.broker import Broker
from waterclock.broker.log.partition import Partition


def everything(broker: Broker) -> bytes:
    def read() -> bytes:
        partition = broker.inside.topics.partition("t", 0)
        assert partition is not None
        found = partition.read(0, 1 << 20, partition.high)
        return found.read() if found is not None else b""

    return broker.call(read)


def test_a_request_that_another_broker_of_the_process_reads_meanwhile_does_not_change_ours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with Broker() as one, Broker() as two, RawClient(one.bootstrap) as client, RawClient(two.bootstrap) as other:
        one.create_topic("t")
        two.create_topic("t")
        ours = one.call(lambda: one.inside.topics.partition("t", 0))
        append = Partition.append

        def interrupted(partition: Partition, *arguments: Any) -> Any:
            if partition is ours:  # its request lies where it was read into
                assert other.produce("t", b"theirs") == (0, 0)
            return append(partition, *arguments)

        monkeypatch.setattr(Partition, "append", interrupted)
        assert client.produce("t", b"ours  ") == (0, 0)
        assert [b"ours  " in batch.raw for batch in stored(everything(one))] == [True]
        assert [b"theirs" in batch.raw for batch in stored(everything(two))] == [True]
