"""A relay that stands by: its files follow what another one owns, and it goes on with them when that one is gone."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.relay.lapping import LAP_BYTES, YEAR_MS, cut_off, fill, lap, long_ones, until_delivered
from tests.relay.test_full_disk import Disk
from tests.relay.test_kills import dying, owner_of, run_until_death
from tests.relay.world import World, step_quietly, step_until
from waterclock.relay.follower import Follower
from waterclock.relay.options import StandsBy
from waterclock.relay.prometheus import prometheus
from waterclock.relay.relay import Relay
from waterclock.relay.standby import AGAIN_NS, EACH_NS, QUIET_MS
from waterclock.relay.store import StoreDamaged
from waterclock.relay.turn import Turn
from waterclock.testing import Broker

_numbers = count()


@pytest.fixture
def wide(relay_broker: Broker, tmp_path: Path) -> Iterator[World]:
    with World(relay_broker, tmp_path, f"standby{next(_numbers)}", 2) as made:
        yield made


def pair(world: World, **options: object) -> tuple[Relay, Relay]:
    """One that owns everything, and one that follows it. Their places in the group end with them."""
    one = world.started("one", name=None, **options)
    two = world.relay("two", name=None, **options)
    step_until(lambda: two.standby.followers, one, two)
    return one, two


def follower_of(relay: Relay) -> Follower:
    (follower,) = relay.standby.followers.values()
    return follower


def followed(world: World, one: Relay, two: Relay) -> None:
    """Steps until the second has in its files what the first one has."""
    step_quietly(one)
    owner = owner_of(one)

    def is_level() -> bool:
        follower = follower_of(two) if two.standby.followers else None
        return follower is not None and (follower.position, follower.settled_position) == (
            owner.position, owner.settled_position,
        )  # fmt: skip

    step_until(is_level, one, two)


def hand_over(world: World, one: Relay, two: Relay) -> None:
    """The first ends, the second goes on."""
    world.close(one)
    step_until(lambda: two.owners and owner_of(two).has_caught_up, two)


def test_what_is_filed_and_settled_elsewhere_is_filed_and_settled_here(world: World) -> None:
    one, two = pair(world)
    world.send("soon", in_ms=1_000)
    world.send("late", in_ms=YEAR_MS, id="x")
    world.put(b"bad")
    followed(world, one, two)
    assert follower_of(two).store.pending == 2
    world.advance_ms(1_000)
    step_until(lambda: world.values() == ["soon"], one)
    followed(world, one, two)
    assert follower_of(two).store.pending == 1
    assert follower_of(two).store.loaded_until == 0
    assert not two.owners


def test_whoever_stood_by_reads_nothing_again_and_goes_on(world: World) -> None:
    one, two = pair(world)
    world.send("a", "b", in_ms=2_000)
    world.send("c", in_ms=3_000, id="x")
    step_quietly(one)
    world.advance_ms(1_000)
    step_until(lambda: owner_of(one).command_position == 3, one)
    followed(world, one, two)
    hand_over(world, one, two)
    assert (two._counts.requests, owner_of(two).store.rebuilt, two.standby.followers) == (0, None, {})
    world.advance_ms(1_000)
    world.put(None, delay_id="x", delay_action="cancel")
    step_until(lambda: world.replies(), two)
    step_quietly(two)
    assert (world.values(), world.replies()) == (["a", "b"], [("x", "cancelled", 1)])


def test_what_the_dead_one_did_not_answer_is_answered(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The follower has filed what stands behind the command, and only TOPIC.settled moves the command position."""
    one = world.started("one")
    two = world.relay("two")
    world.send("a", in_ms=1_000, id="x")
    step_until(lambda: two.standby.followers, one, two)
    followed(world, one, two)
    with monkeypatch.context() as patch:
        dying(patch, Turn, "commit", "before")
        world.put(None, delay_id="x", delay_action="cancel")
        world.send("b", in_ms=1_000)
        run_until_death(world, one)
    answered = follower_of(two)._replay.answered
    step_until(lambda: follower_of(two).position == 3, two)
    assert follower_of(two)._replay.answered == answered
    world.close(two)
    last = world.started("two", name="one")
    world.advance_ms(1_000)
    step_until(lambda: world.values(), last)
    step_quietly(last)
    assert (world.values(), world.replies()) == (["b"], [("x", "cancelled", 1)])


def test_what_is_given_back_is_followed_with_the_files_that_are_there(wide: World) -> None:
    one = wide.started("one", name=None)
    wide.send("a", in_ms=YEAR_MS)
    wide.put(b"b", partition=1, deliver_to=wide.target, deliver_at=wide.now_ms + YEAR_MS)
    step_quietly(one)
    two = wide.relay("two", name=None)
    each = (one.owners, one.standby.followers), (two.standby.followers, two.owners)
    step_until(lambda: all(len(own) == len(other) == 1 for own, other in each), one, two)
    assert all(own.keys() != other.keys() for own, other in each)
    follower = follower_of(one)
    assert (follower.store.pending, follower.store.rebuilt, follower.position) == (1, None, 1)


def test_one_that_stands_by_for_nothing_has_no_files(world: World) -> None:
    one = world.started("one", name=None)
    two = world.relay("two", name=None, standby=StandsBy.NONE)
    step_until(lambda: two.standby.is_ready, one, two)
    step_until(lambda: sum(relay.step(0.01) for relay in (one, two)) == 0, one, two)
    assert not two.standby.followers
    assert not list(world.folder.glob("two/*"))


def test_what_it_follows_and_how_far_behind_it_is_can_be_seen(world: World) -> None:
    one, two = pair(world)
    world.send("a", "b", in_ms=YEAR_MS)
    followed(world, one, two)
    step_until(
        lambda: world.advance_ms(1_000) or (two.statistics().standby and two.statistics().standby[0].pending), two
    )
    (told,) = two.statistics().standby.values()
    assert (told.pending, told.position, told.behind, told.why) == (2, 2, 0, "")
    page = prometheus(two.statistics())
    assert (
        f'waterclock_relay_standby_pending_messages{{group="{world.topic}",topic="{world.topic}",partition="0"}} 2'
        in page
    )


# Copies


def copies(world: World) -> tuple[Relay, Follower]:
    """What a lap has moved, and a follower that has heard nothing of it."""
    relay = world.started("one", lap_bytes=LAP_BYTES)
    world.send("long", in_ms=YEAR_MS)
    step_quietly(relay)
    fill(world, relay)
    step_until(lambda: relay._counts.laps, relay)
    return relay, follower_by_hand(world, relay)


def follower_by_hand(world: World, relay: Relay) -> Follower:
    from dataclasses import replace

    return Follower(replace(relay._around, folder=world.folder / "by hand"), 0)


def test_a_copy_that_is_seen_before_it_is_named_waits_for_that(world: World) -> None:
    relay, follower = copies(world)
    logs, topics = relay._logs, relay.topics
    try:
        end = logs.bounds(topics.input, 0)[1]
        place = owner_of(relay).extent.moves.next_copy(0)
        assert place is not None
        low = follower.position
        follower.file(list(logs.read(topics.input, 0, low, end)))
        assert follower.position == place
        assert [message.offset() for message in follower.held][:1] == [place]
        for message in logs.read(topics.settled, 0, 0, logs.bounds(topics.settled, 0)[1]):
            follower.settle(message)
        assert not follower.held
        assert follower.position > place
        assert follower.store.pending == 1
    finally:
        follower.store.close()


def test_what_a_user_writes_with_that_header_waits_until_the_owner_has_gone_on_behind_it(world: World) -> None:
    one, two = pair(world)
    world.send("a", in_ms=1_000)
    followed(world, one, two)
    world.put(b"mine", deliver_to=world.target, deliver_at=1, delay_origin="0 5")
    world.send("b", in_ms=1_000)
    step_until(lambda: follower_of(two).held, two)
    assert follower_of(two).position == 1
    followed(world, one, two)
    assert (follower_of(two).position, follower_of(two).store.pending) == (3, 2)
    assert len(world.letters()) == 1


def test_it_follows_through_laps_snapshots_and_trims(world: World) -> None:
    one, two = pair(world, lap_bytes=LAP_BYTES)
    world.send("far", in_ms=YEAR_MS)
    cut_off(world, one)
    fill(world, one)
    followed(world, one, two)
    assert follower_of(two).store.pending == owner_of(one).store.pending
    hand_over(world, one, two)
    world.advance_ms(YEAR_MS)
    until_delivered(world, two, "far")


def pause(relay: Relay, is_paused: bool) -> None:
    """Have nothing come of what it follows."""
    for place in relay.standby._places(0):
        relay.standby._tails.pause(place, is_paused)


class Usage(NamedTuple):
    """As `shutil.disk_usage` tells it."""

    total: int
    used: int
    free: int


class Time:
    """Goes by with the steps of relays."""

    def __init__(self, world: World) -> None:
        self.world = world

    def step(self, wait_s: float) -> None:
        self.world.advance_ms(1_000)


def test_one_that_falls_behind_where_the_logs_are_cut_off_begins_anew(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    one, two = pair(world, lap_bytes=LAP_BYTES)
    world.send("far", in_ms=YEAR_MS)
    followed(world, one, two)
    follower_of(two).checkpoint()
    pause(two, True)
    cut_off(world, one)
    lap(world, one)
    pause(two, False)
    step_until(lambda: "discarded, to be filed anew" in caplog.text and two.standby.followers, two, Time(world))  # type: ignore[arg-type]
    followed(world, one, two)
    assert follower_of(two).store.pending == owner_of(one).store.pending
    hand_over(world, one, two)
    world.advance_ms(YEAR_MS)
    until_delivered(world, two, "far")
    assert long_ones(world) == ["far"]


# What goes wrong


def test_damaged_files_are_discarded_and_made_again(world: World, caplog: pytest.LogCaptureFixture) -> None:
    one, two = pair(world)
    world.send("a", in_ms=YEAR_MS)
    followed(world, one, two)

    def damaged() -> bool:
        raise StoreDamaged("a file does not hold what was written")

    follower_of(two).store.append = lambda *_: damaged()  # type: ignore[assignment, method-assign]
    world.send("b", in_ms=YEAR_MS)
    step_until(lambda: "does not hold what was written" in caplog.text, one, two)
    step_until(lambda: two.standby.followers, one, two, Time(world))  # type: ignore[arg-type]
    followed(world, one, two)
    assert follower_of(two).store.pending == 2


def test_files_that_were_damaged_while_nobody_looked_are_not_believed(world: World) -> None:
    one, two = pair(world)
    world.send("a", in_ms=YEAR_MS)
    followed(world, one, two)
    folder = follower_of(two).store.folder
    two.standby.let_go(0)
    file = next(folder.glob("*.index"))
    file.write_bytes(bytes(file.stat().st_size))
    step_until(lambda: two.standby.followers, one, two)
    assert "is not the file that was written here" in (follower_of(two).store.rebuilt or "")
    followed(world, one, two)
    assert follower_of(two).store.pending == 1


def test_a_disk_that_refuses_what_it_follows_hurts_nothing_that_it_owns(
    wide: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    one, two = wide.relay("one", name=None), wide.relay("two", name=None)
    step_until(lambda: len(one.owners) == len(two.owners) == 1 == len(two.standby.followers), one, two)
    disk = Disk(follower_of(two).store.folder, monkeypatch)
    disk.is_full = True
    for number in range(2):
        wide.put(b"%d" % number, partition=number, deliver_to=wide.target, deliver_at=wide.now_ms)
    step_until(lambda: len(wide.values()) == 2 and disk.refused, one, two)
    assert "No space left on device" in caplog.text
    assert two.standby.statistics().popitem()[1].why
    disk.is_full = False
    step_until(lambda: two.standby.followers and follower_of(two).position == 1, one, two, Time(wide))  # type: ignore[arg-type]
    assert not two.standby.statistics().popitem()[1].why


def test_the_files_of_what_it_follows_make_room_for_those_of_what_it_owns(
    wide: World, caplog: pytest.LogCaptureFixture
) -> None:
    one, two = wide.relay("one", name=None), wide.relay("two", name=None)
    step_until(lambda: len(one.owners) == len(two.owners) == 1 == len(two.standby.followers), one, two)
    folder = follower_of(two).store.folder
    owner_of(two).room.is_refusing = True
    step_until(lambda: not two.standby.followers, two)
    assert [file.name for file in folder.iterdir()] == ["lock"]
    assert "not made again for ten minutes" in caplog.text
    owner_of(two).room.took()
    step_quietly(two)
    assert not two.standby.followers
    wide.advance_ms(AGAIN_NS // 1_000_000)
    step_until(lambda: two.standby.followers, two)


def test_a_disk_that_is_nearly_full_is_for_the_owners(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    one, two = pair(world)
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda folder: Usage(100, 96, 4))
        step_until(lambda: "nearly full" in caplog.text, two, Time(world))  # type: ignore[arg-type]
        world.send("a", in_ms=YEAR_MS)
        step_quietly(one)
        for _ in range(5):
            two.step(0.01)
        assert follower_of(two).position == 0
        assert two.standby.statistics()[0].why == "the disk is nearly full"
    step_until(lambda: world.advance_ms(1_000) or follower_of(two).position == 1, two)


def test_what_ends_an_owner_does_not_end_a_relay_that_follows(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """A record of TOPIC.settled that a later version wrote."""
    one, two = pair(world)
    world._producer.produce(one.topics.settled, b"wcsettle" + bytes([99]) + bytes(40), partition=0)
    world._producer.flush(10)
    step_until(lambda: not two.standby.followers, two)
    assert "is written by a later relay" in two.standby.statistics()[0].why
    assert "does not stand by" in caplog.text


def test_following_yields_to_owning(wide: World) -> None:
    one, two = wide.relay("one", name=None), wide.relay("two", name=None)
    step_until(lambda: len(one.owners) == len(two.owners) == 1 == len(two.standby.followers), one, two)
    number, follower = owner_of(one).number, follower_of(two)
    wide.put(b"near", partition=owner_of(two).number, deliver_to=wide.target, deliver_at=wide.now_ms + QUIET_MS)
    step_until(lambda: owner_of(two).position, two)
    two.standby.step({owner_of(two).number})
    wide.put(b"a", partition=number, deliver_to=wide.target, deliver_at=wide.now_ms + YEAR_MS)
    step_until(lambda: owner_of(one).position, one)
    for _ in range(20):
        two.step(0.01)
    assert follower.position == 0
    step_until(lambda: wide.clock.advance_s(EACH_NS / 1e11) or follower.position, two)
