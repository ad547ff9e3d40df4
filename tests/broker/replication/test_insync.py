"""The rules of the in-sync set alone, on logs without disks, with time turned by hand."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest

pytest.importorskip("crc32c")

from waterclock import ManualClock
from waterclock.broker.log.memo import Memo
from waterclock.broker.log.partition import Partition
from waterclock.broker.replication.replicas import Replicas
from waterclock.broker.settings import Settings, TopicSettings
from waterclock.broker.wire.errors import Error

LAG_S = 30.0


class Scene:
    """A partition, and replicas 1 and 2."""

    def __init__(self, least: int = 1) -> None:
        settings = Settings({"min.insync.replicas": str(least)})
        self.clock = ManualClock()
        self.partition = Partition("t", 0, "", TopicSettings(settings, {}), Memo(""))
        self.raised: list[Partition] = []
        self.replicas = Replicas(1, settings, self.clock, self._changed, lambda partition: None)

    def _changed(self, partitions: Iterable[Partition]) -> None:
        self.raised += partitions

    def append(self, count: int) -> None:
        self.partition.end += count
        self.partition.durable = self.partition.end
        self.replicas.raise_high(self.partition)

    def fetch(self, offset: int) -> None:
        self.replicas.heard()
        self.replicas.fetched(self.partition, offset)

    @property
    def in_sync(self) -> bool:
        return self.replicas.in_sync(self.partition) == (1, 2)


def test_without_a_follower_the_leaders_disk_is_enough() -> None:
    scene = Scene(least=2)
    scene.append(3)
    assert scene.partition.high == 3
    assert scene.replicas.refused(scene.partition) == Error.NONE


def test_a_new_follower_is_in_sync_for_a_partition_without_records_only() -> None:
    scene, other = Scene(), Scene()
    scene.append(3)
    scene.replicas.attach(2)
    other.replicas.attach(2)
    assert (scene.in_sync, other.in_sync) == (False, True)
    scene.append(1)
    other.append(1)
    assert (scene.partition.high, other.partition.high) == (4, 0)


def test_a_follower_that_is_always_a_round_behind_stays_in_sync() -> None:
    scene = Scene()
    scene.replicas.attach(2)
    scene.fetch(0)
    seen = 0
    for _ in range(100):
        scene.append(10)
        scene.clock.advance_s(1)
        scene.fetch(seen)
        seen = scene.partition.end
        assert scene.replicas.drop_laggards() == []
    assert scene.in_sync


def test_a_follower_that_falls_behind_more_and_more_is_dropped() -> None:
    scene = Scene()
    scene.replicas.attach(2)
    scene.fetch(0)
    for second in range(int(LAG_S) + 1):
        scene.append(10)
        scene.clock.advance_s(1)
        scene.fetch(second)
    scene.replicas.drop_laggards()
    assert not scene.in_sync
    assert scene.partition.high == scene.partition.end
    assert scene.partition in scene.raised


def test_a_follower_that_keeps_up_under_load_gets_in_sync_again() -> None:
    scene = Scene()
    scene.append(100)
    scene.replicas.attach(2)
    seen = 0
    for _ in range(5):
        scene.append(10)
        scene.clock.advance_s(1)
        scene.fetch(seen)
        seen = scene.partition.end
    assert scene.in_sync


def test_a_follower_that_lost_what_it_had_is_out_of_sync_and_holds_nobody_up() -> None:
    scene = Scene()
    scene.replicas.attach(2)
    scene.append(5)
    scene.fetch(5)
    scene.fetch(0)
    scene.append(1)
    assert (scene.in_sync, scene.partition.high) == (False, 6)


def test_a_follower_that_asks_from_beyond_the_leaders_end_has_nothing_that_counts() -> None:
    """It was taken for one that has everything, and what was acknowledged then had no copy."""
    scene = Scene(least=2)
    scene.replicas.attach(2)
    scene.fetch(0)
    scene.partition.end = 3  # appended, and not on the leader's own disk: nobody can have it
    for offset in (1, 3, 14):
        scene.fetch(offset)
    scene.append(11)
    assert scene.partition.high == 0
    scene.fetch(14)
    assert (scene.in_sync, scene.partition.high) == (True, 14)


def test_a_partition_made_while_the_follower_is_away_does_not_wait_for_it() -> None:
    scene = Scene()
    scene.replicas.attach(2)
    scene.clock.advance_s(LAG_S + 1)
    scene.append(1)
    assert (scene.in_sync, scene.partition.high) == (False, 1)


def test_below_min_insync_the_high_watermark_stands_still_until_there_are_enough() -> None:
    scene = Scene(least=2)
    scene.replicas.attach(2)
    scene.append(1)
    scene.clock.advance_s(LAG_S + 1)
    scene.replicas.drop_laggards()
    assert (scene.in_sync, scene.partition.high) == (False, 0)
    assert scene.replicas.refused(scene.partition) == Error.NOT_ENOUGH_REPLICAS
    scene.fetch(1)
    assert (scene.in_sync, scene.partition.high) == (True, 1)


def test_a_leader_that_misses_its_follower_has_too_few_and_waits_for_nobody() -> None:
    scene, other = Scene(least=2), Scene()
    scene.replicas.follower = 2
    other.replicas.follower = 2
    other.append(1)
    assert scene.replicas.refused(scene.partition) == Error.NOT_ENOUGH_REPLICAS
    assert other.partition.high == 1


def test_after_a_start_the_follower_of_before_counts_with_what_it_had() -> None:
    scene = Scene()
    scene.append(5)
    scene.replicas.attach(2)
    scene.partition.high = 3
    scene.replicas.expect(scene.partition)
    assert (scene.partition.high, scene.in_sync, scene.replicas.unsure(scene.partition)) == (3, True, True)
    scene.replicas.raise_high(scene.partition)
    assert scene.partition.high == 3
    scene.fetch(5)
    assert (scene.partition.high, scene.replicas.unsure(scene.partition)) == (5, False)


@pytest.mark.parametrize("seed", range(20))
def test_the_high_watermark_is_never_above_what_an_in_sync_follower_has_and_never_falls(seed: int) -> None:
    rng = random.Random(seed)
    scene = Scene(least=rng.randint(1, 2))
    scene.replicas.attach(2)
    follower = high = 0
    for _ in range(500):
        step = rng.randrange(5)
        if step == 0:
            scene.append(rng.randint(1, 5))
        elif step == 1:
            follower = rng.randint(follower, scene.partition.end)
            scene.fetch(follower)
        elif step == 2:
            scene.fetch(follower)
        elif step == 3:
            scene.clock.advance_s(rng.random() * 20)
        else:
            scene.replicas.drop_laggards()
        assert high <= scene.partition.high <= scene.partition.durable
        high = scene.partition.high
        assert not scene.in_sync or high <= follower


def test_a_deposed_leader_raises_no_high_watermark() -> None:
    scene = Scene()
    scene.partition.deposed = True
    scene.append(1)
    assert scene.partition.high == 0
