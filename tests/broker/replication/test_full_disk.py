"""A follower whose disk is full waits for room and goes on: it ended by itself, in most such faults of a campaign."""

from __future__ import annotations

import errno
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("kio")

from tests.broker.consistency.node import Node
from tests.broker.raw_client import RawClient
from tests.broker.replication.pairs import Pair, following, pair, partition, until
from waterclock.broker import Broker
from waterclock.broker.log.memo import Memo
from waterclock.broker.log.segment import Segment
from waterclock.broker.replication import fetcher
from waterclock.broker.wire.errors import Error

FULL = OSError(errno.ENOSPC, "No space left on device")


@pytest.fixture
def both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pair]:
    monkeypatch.setattr(fetcher, "NO_ROOM_S", 0.02)
    with pair(tmp_path, {"replica.lag.time.max.ms": "1500"}) as brokers:
        yield brokers


@contextmanager
def refusing(kind: type, name: str, folder: Path) -> Iterator[list[str]]:
    """Within, what belongs to `folder` is refused by the disk; what was is in the list."""
    refused, real = list[str](), getattr(kind, name)

    def refuse(self: Any, *arguments: Any) -> Any:
        if Path(self.path).is_relative_to(folder):
            refused.append(self.path)
            raise FULL
        return real(self, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kind, name, refuse)
        yield refused


def produce(broker: Broker, count: int) -> None:
    with RawClient(broker.bootstrap) as client:
        for _ in range(count):
            assert client.produce("t", b"v", acks=1)[0] == 0


def test_it_waits_for_room_to_append(both: Pair, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with refusing(Segment, "append", tmp_path / "two") as refused:
        produce(both.one, 3)
        until(lambda: refused, "the disk refuses")
        until(lambda: "No space left on device" in caplog.text, "it is said")
    # not `synced`: with acks=1 the leader may not have all of it on its own disk yet
    until(lambda: both.two.failure or both.two.call(lambda: partition(both.two).end) == 3, "all is copied")
    assert both.two.failure is None


def test_an_epoch_that_could_not_be_kept_is_kept_then(both: Pair, tmp_path: Path) -> None:
    both.one.call(lambda: partition(both.one).memo.epochs.append((7, 0)))
    with refusing(Memo, "save", tmp_path / "two") as refused:
        produce(both.one, 1)
        until(lambda: refused, "the disk refuses")
        assert both.two.call(lambda: partition(both.two).memo.epoch) == 0
    both.synced()
    assert Memo.load(both.two.call(lambda: partition(both.two).folder)).epoch == 7


def test_a_start_that_could_not_be_kept_is_kept_then(both: Pair, tmp_path: Path) -> None:
    produce(both.one, 5)
    until(lambda: both.two.call(lambda: partition(both.two).end) == 5, "they are copied")
    with refusing(Memo, "save", tmp_path / "two") as refused:
        both.one.call(lambda: both.one.inside.upkeep.begin_at(partition(both.one), 3, lambda done: None))
        produce(both.one, 1)
        until(lambda: refused, "the disk refuses")
        assert both.two.call(lambda: partition(both.two).start) == 0
    until(lambda: both.two.call(lambda: partition(both.two).start) == 3, "its start has moved")
    assert Memo.load(both.two.call(lambda: partition(both.two).folder)).start == 3


def test_what_its_store_refused_is_done_when_it_takes_it(both: Pair, caplog: pytest.LogCaptureFixture) -> None:
    store = following(both.two).store
    both.two.call(lambda: setattr(store, "commit_group", lambda group: False))
    both.one.create_topic("new", 2)
    produce(both.one, 1)
    until(lambda: "the replica of the store cannot be written" in caplog.text, "it is said")
    both.two.call(lambda: delattr(store, "commit_group"))
    until(lambda: "new" in store.load("topic"), "the store has the topic")
    both.synced()
    assert both.two.failure is None


def test_a_disk_that_fails_otherwise_ends_it(both: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Segment.append

    def refuse(self: Segment, *arguments: Any) -> None:
        if "two" in Path(self.path).parts:
            raise OSError(errno.EIO, "Input/output error")
        real(self, *arguments)

    monkeypatch.setattr(Segment, "append", refuse)
    produce(both.one, 1)
    until(lambda: both.two.failure is not None, "it ends")


@pytest.mark.long(seconds=30)
@pytest.mark.parametrize("limit", [0, 1000, 4096, 32_768])
def test_a_pair_with_a_full_follower_loses_nothing_and_nobody_ends(
    tmp_path: Path, limit: int, campaign_seed: int
) -> None:
    dice = random.Random(f"{campaign_seed} {limit}")
    settings = {"min.insync.replicas": "1", "replica.lag.time.max.ms": "1000", "log.segment.bytes": "20000"}
    one, two = Node(tmp_path / "one", settings), Node(tmp_path / "two", settings)
    try:
        one.start()
        two.start(one.address)
        with RawClient(one.address) as client:
            client.ask("Metadata", 4, topics=[{"name": "t"}], allow_auto_topic_creation=True)
            until(lambda: client.produce("t", b"first")[0] == 0, "the topic is there")
            for room in (None, limit, None, limit, None):
                two.fill_disk(room)
                for number in range(100):
                    assert client.produce("t", b"x" * dice.choice((20, 300, 3000)))[0] == Error.NONE
                    if number % 40 == 0:
                        client.ask(
                            "Metadata", 4, topics=[{"name": f"t{dice.random()}"}], allow_auto_topic_creation=True
                        )
            end = client.end("t")
        assert one.runs, one.said
        assert two.runs, two.said
        until(lambda: _has(two, end), "the follower has everything")
    finally:
        one.end()
        two.end()


def _has(node: Node, end: int) -> bool:
    logs = sorted(node.data.glob("topics/t-0.*/*.log"))
    data = logs[-1].read_bytes() if logs else b""
    offset, at = int(logs[-1].stem) if logs else 0, 0
    while at + 61 <= len(data):
        offset = int.from_bytes(data[at : at + 8], "big") + 1
        at += 12 + int.from_bytes(data[at + 8 : at + 12], "big")
    return offset == end
