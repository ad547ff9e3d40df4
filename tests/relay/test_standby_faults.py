"""A relay that stands by where something goes wrong: nothing of it ends the relay, or hurts what it owns."""

from __future__ import annotations

import errno
import os
import shutil
from typing import NamedTuple

import pytest

from tests.relay.bystander import Beside, Time, followed, until
from tests.relay.lapping import YEAR_MS, owner_of
from tests.relay.test_full_disk import Disk
from tests.relay.world import World, step_quietly, step_until
from waterclock.relay.standby.standby import AGAIN_NS, EACH_NS, QUIET_MS
from waterclock.relay.store import StoreDamaged


def test_damaged_files_are_set_aside_and_made_again(
    world: World, beside: Beside, caplog: pytest.LogCaptureFixture
) -> None:
    one = world.started("one")
    two = beside(one)
    world.send("a", in_ms=YEAR_MS)
    followed(one, two)

    def damaged(*_: object) -> None:
        raise StoreDamaged("a file does not hold what was written")

    two.follower.store.append = damaged  # type: ignore[assignment, method-assign]
    world.send("b", in_ms=YEAR_MS)
    until(lambda: "filed anew" in caplog.text, one, two)
    until(lambda: two.is_there, two, Time(world))
    followed(one, two)
    assert two.follower.store.pending == 2


def test_files_that_were_damaged_while_nobody_looked_are_not_believed(world: World, beside: Beside) -> None:
    one = world.started("one")
    two = beside(one)
    world.send("a", in_ms=YEAR_MS)
    followed(one, two)
    folder = two.follower.store.folder
    two.standby.let_go(0)
    file = next(folder.glob("*.index"))
    file.write_bytes(bytes(file.stat().st_size))
    until(lambda: two.is_there, two)
    assert "is not the file that was written here" in (two.follower.store.rebuilt or "")
    followed(one, two)
    assert two.follower.store.pending == 1


def test_a_disk_that_refuses_what_it_follows_hurts_nothing_that_it_owns(
    world: World, beside: Beside, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    one = world.started("one")
    two = beside(one, is_beside=True)
    until(lambda: two.is_there, two)
    disk = Disk(two.follower.store.folder, monkeypatch)
    disk.is_full = True
    world.send("a", in_ms=0)
    until(lambda: world.values() and disk.refused, one, two)
    assert "No space left on device" in caplog.text
    assert two.standby.statistics()[0].why
    disk.is_full = False
    until(two.has(1), two, Time(world))
    assert not two.standby.statistics()[0].why


def test_the_files_of_what_it_follows_make_room_for_those_of_what_it_owns(
    world: World, beside: Beside, caplog: pytest.LogCaptureFixture
) -> None:
    one = world.started("one")
    two = beside(one, is_beside=True)
    until(lambda: two.is_there, two)
    folder = two.follower.store.folder
    owner_of(one).disk.is_refusing = True
    until(lambda: not two.is_there, two)
    assert [file.name for file in folder.iterdir()] == ["lock"]
    assert "not made again for ten minutes" in caplog.text
    owner_of(one).disk.took()
    for _ in range(3):
        two.step(0)
    assert not two.is_there
    world.advance_ms(AGAIN_NS // 1_000_000)
    until(lambda: two.is_there, two)


class Usage(NamedTuple):
    """As `shutil.disk_usage` tells it."""

    total: int
    used: int
    free: int


def test_a_disk_that_is_nearly_full_is_for_the_owners(
    world: World, beside: Beside, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    one = world.started("one")
    two = beside(one)
    until(lambda: two.is_there, two)
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda folder: Usage(100, 96, 4))
        until(lambda: "nearly full" in caplog.text, two, Time(world))
        world.send("a", in_ms=YEAR_MS)
        step_quietly(one)
        for _ in range(5):
            two.step(0)
        assert (two.follower.position, two.standby.statistics()[0].why) == (0, "the disk is nearly full")
    until(two.has(1), two, Time(world))


def test_what_ends_an_owner_does_not_end_a_relay_that_follows(
    world: World, beside: Beside, caplog: pytest.LogCaptureFixture
) -> None:
    """A record of TOPIC.settled that a later version wrote."""
    one = world.started("one")
    two = beside(one)
    until(lambda: two.is_there, two)
    world._producer.produce(one.topics.settled, b"wcsettle" + bytes([99]) + bytes(40), partition=0)
    world._producer.flush(10)
    until(lambda: not two.is_there, two)
    assert "is written by a later relay" in two.standby.statistics()[0].why
    assert "does not stand by" in caplog.text


def test_a_disk_that_refuses_all_keeps_nobody_from_a_take_over(world: World, beside: Beside) -> None:
    one = world.started("one")
    two = beside(one)
    world.send("a", in_ms=YEAR_MS)
    followed(one, two)
    follower = two.follower

    def damaged(*_: object) -> None:
        raise StoreDamaged("what was written cannot be flushed")

    def refused(*_: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    follower.checkpoint, follower.store.set_aside = damaged, refused  # type: ignore[method-assign]
    two.standby.let_go(0)
    until(two.has(1), two)  # its folder is not locked


def test_following_yields_to_owning(world: World, beside: Beside) -> None:
    one = world.started("one")
    two = beside(one, is_beside=True)
    until(lambda: two.is_there, two)
    world.send("near", in_ms=QUIET_MS)
    step_quietly(one)
    taken: list[int] = []
    take = two.standby._tails.take
    two.standby._tails.take = lambda most: taken.append(most) or take(most)  # type: ignore[method-assign, func-returns-value]
    world.advance_ms(EACH_NS // 1_000_000)
    for _ in range(3):
        two.step(0)
    assert len(taken) == 1
    world.advance_ms(EACH_NS // 1_000_000)
    two.step(0)
    assert len(taken) == 2
    step_until(lambda: world.values() == ["near"], one)
    until(two.has(1), two)
