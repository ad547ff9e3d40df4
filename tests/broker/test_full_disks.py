"""A disk that is full: what cannot be kept is refused, nobody ends by itself, and with room again everything goes on."""

from __future__ import annotations

import random
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("kio")
pytest.importorskip("crc32c")

from tests.broker.consistency.node import Node
from tests.broker.raw_client import RawClient
from tests.broker.replication.pairs import until

PARTITIONS = 4


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    node = Node(tmp_path / "data", {"num.partitions": str(PARTITIONS), "log.segment.bytes": "20000"})
    node.start()
    yield node
    node.end()


@pytest.mark.long(seconds=20)
@pytest.mark.parametrize("limit", [0, 1000, 4096, 32_768, 200_000])
def test_a_broker_whose_disk_is_full_refuses_and_goes_on(node: Node, limit: int, campaign_seed: int) -> None:
    """4096 and 32768 ended it: the write-ahead log, whose room was reserved before, was refused a frame."""
    dice = random.Random(f"{campaign_seed} {limit}")
    acknowledged: dict[int, int] = dict.fromkeys(range(PARTITIONS), 0)
    with RawClient(node.address) as client:
        client.ask("Metadata", 4, topics=[{"name": "t"}], allow_auto_topic_creation=True)
        until(lambda: client.produce("t", b"first")[0] == 0, "the topic is there")
        acknowledged[0] += 1
        for room in (None, limit, None, limit, None):
            node.fill_disk(room)
            for _ in range(300):
                number, size = dice.randrange(PARTITIONS), dice.choice((20, 300, 3000))
                error, offset = client.produce("t", b"x" * size, partition=number)
                assert error == 0 or room is not None
                if error == 0:
                    assert offset == acknowledged[number]
                    acknowledged[number] += 1
        assert node.runs, node.said
    node.end(signal.SIGKILL)
    node.start()
    with RawClient(node.address) as client:
        assert {number: client.end("t", number) for number in range(PARTITIONS)} == acknowledged
