"""Where a follower's log and its leader's part: everything that is left before that end must be the leader's."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("kio")

from tests.broker.replication.pairs import Pair, client, following, log_bytes, partition, until, values
from waterclock.broker import Broker
from waterclock.broker.log.memo import Memo
from waterclock.broker.log.partition import Partition
from waterclock.broker.log.recovery import open_partition
from waterclock.broker.log.removal import begin_anew, begin_at
from waterclock.broker.replication import fetcher
from waterclock.broker.replication.fetcher import ReplicaFetcher
from waterclock.broker.replication.journal import TOPIC
from waterclock.broker.settings import Settings, TopicSettings
from waterclock.broker.wire.errors import Error

OWN = TopicSettings(Settings({}), {})


class Leader:
    """The other end of a link, with these epochs in a log that ends at `end`."""

    address = "leader"

    def __init__(self, epochs: list[tuple[int, int]], end: int) -> None:
        self._memo, self._end = Memo("", epochs=epochs), end

    async def end_of_epoch(
        self, node: int, topic: str, number: int, epoch: int, current: int = -1
    ) -> tuple[Error, int, int]:
        late = current > self._memo.epoch
        return Error.UNKNOWN_LEADER_EPOCH if late else Error.NONE, *self._memo.end_of(epoch, self._end)


def log_of(epochs: list[tuple[int, int]], start: int, end: int) -> Partition:
    found = Partition("t", 0, "", OWN, Memo("", start, epochs=epochs))
    found.end = end
    return found


@pytest.mark.parametrize(
    ("ours", "start", "theirs", "expected"),
    [
        ([(0, 0)], 0, [(0, 0)], 15),
        ([(0, 0)], 0, [(0, 0), (1, 12)], 12),
        ([(0, 0), (1, 10)], 0, [(0, 0), (2, 12)], 10),  # KIP-279: what is ours from 10 on, they have never had
        ([(0, 0), (1, 10)], 0, [(0, 0), (2, 7)], 7),
        ([(0, 0), (1, 10)], 0, [(0, 0), (1, 10), (2, 13)], 13),
        ([(0, 0)], 0, [(2, 4)], 0),  # they have begun anew
        (
            [(0, 0), (1, 10)],
            12,
            [(0, 0), (2, 12)],
            10,
        ),  # what they have from 10 on was never here, whatever starts here
        ([(0, 0), (1, 10)], 12, [(0, 0), (2, 7)], 7),
        ([(1, 12)], 12, [(0, 0), (2, 14)], 0),  # nothing here is theirs: all that they have is to be copied
        ([(0, 12)], 12, [(2, 4)], 0),
        ([(0, 0), (3, 1), (5, 15)], 0, [(0, 0), (4, 1), (7, 16)], 1),  # the epochs of both that the other never had
    ],
)
def test_two_logs_part_where_their_epochs_do(
    ours: list[tuple[int, int]], start: int, theirs: list[tuple[int, int]], expected: int
) -> None:
    node: Any = SimpleNamespace(node=2)
    copying = ReplicaFetcher(SimpleNamespace(journal=None), Leader(theirs, 20), node)  # type: ignore[arg-type]
    assert asyncio.run(copying._common_end(log_of(ours, start, 15))) == expected


class Copy:
    """A broker's log as a list of the epochs in which each record was written, dropped ones too."""

    def __init__(self) -> None:
        self.said: list[int] = []
        self.memo = Memo("")

    def lead(self, epoch: int, count: int) -> None:
        self.memo.epochs.append((epoch, len(self.said)))
        self.said += [epoch] * count

    def agree_with(self, leader: Copy, patch: pytest.MonkeyPatch) -> None:
        found = log_of(self.memo.epochs, self.memo.start, len(self.said))
        found.memo = self.memo

        def cut(log: Partition, end: int) -> Partition:
            log.memo.forget_from(end)
            log.end = end
            return log

        patch.setattr(fetcher, "cut", cut)
        replica: Any = SimpleNamespace(journal=None, replace=lambda old, new: None)
        link: Any = Leader(leader.memo.epochs, len(leader.said))
        asyncio.run(ReplicaFetcher(replica, link, SimpleNamespace(node=2))._agree([found]))  # type: ignore[arg-type]
        del self.said[found.end :]

    def copy(self, leader: Copy, count: int) -> None:
        for epoch in leader.said[len(self.said) :][:count]:
            if epoch > self.memo.epoch:
                self.memo.epochs.append((epoch, len(self.said)))
            self.said.append(epoch)


def test_a_follower_that_has_agreed_has_nothing_that_its_leader_has_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever led when, whatever was copied of it, and wherever the logs begin. No two leaders share an epoch."""
    for seed in range(300):
        rng = random.Random(seed)
        leader, follower = Copy(), Copy()
        for epoch in range(1, 12):
            if rng.random() < 0.6:
                leader, follower = follower, leader
            leader.lead(epoch, rng.randrange(6))
            if rng.random() < 0.7:
                follower.agree_with(leader, monkeypatch)
                assert follower.said == leader.said[: len(follower.said)], seed
                follower.copy(leader, rng.randrange(8))
            for one in (leader, follower):
                if rng.random() < 0.4:
                    one.memo.start = rng.randint(one.memo.start, len(one.said))


# Two brokers


@pytest.mark.parametrize("name", ["t", TOPIC])
def test_a_follower_that_begins_beyond_its_leaders_end_copies_what_comes_and_counts_when_it_has(
    both: Pair, tmp_path: Path, name: str
) -> None:
    """As an earlier version left it, which had cut a log to before its start: it counted, and copied nothing."""
    with client(both.one) as raw:
        raw.produce("t", b"0")
    both.two.promote()
    until(lambda: not both.one.leads, "the old leader follows")
    both.synced(both.two)
    both.one.close()
    folder = tmp_path / "one" / "journal" if name == TOPIC else next((tmp_path / "one" / "topics").iterdir())
    log = open_partition(name, 0, str(folder), OWN)
    log = begin_anew(log, log.end + 10)
    log.memo.epochs = [(0, 0)]
    log.memo.save()
    del log
    both.again("one").start()
    with client(both.two) as raw:
        assert raw.produce("t", b"1") == (Error.NONE, 1)
    until(lambda: values(both.one)[-1:] == [b"1"], "it is copied")
    both.two.create_topic("later")
    until(lambda: both.one.call(lambda: "later" in following(both.one).topics.by_name))


def test_the_old_leaders_log_that_begins_behind_the_new_leaders_end_is_copied_from_where_they_part(both: Pair) -> None:
    with client(both.one) as raw:
        raw.produce("t", b"both have it")
        both.freeze()
        for number in range(5):
            raw.produce("t", b"only the old one %d" % number, acks=1)
        until(lambda: both.one.call(lambda: partition(both.one).durable) == 6)
    both.one.call(lambda: move_start(both.one, 6))
    both.one.close()
    both.thaw()
    both.two.promote()
    with client(both.two) as raw:
        for number in range(8):
            raw.produce("t", b"of the new leader %d" % number, acks=1)
    both.again("one").start()
    both.synced(both.two)
    assert log_bytes(both.one)[-100:] == log_bytes(both.two)[-100:]
    assert values(both.one) == values(both.two)[1:] == [b"of the new leader %d" % number for number in range(8)]


def move_start(broker: Broker, start: int) -> None:
    """As retention does."""
    found = partition(broker)
    found.roll()
    begin_at(found, found.end)
    assert found.start == start
