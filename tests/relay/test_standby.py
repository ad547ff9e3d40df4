"""A relay that stands by: its files follow what another one owns, and it goes on with them when that one is gone."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.relay.bystander import Bystander, Time, followed, handed_over, until
from tests.relay.lapping import LAP_BYTES, YEAR_MS, cut_off, fill, lap, owner_of, until_delivered
from tests.relay.test_full_disk import Disk
from tests.relay.test_kills import dying, run_until_death
from tests.relay.world import World, step_quietly, step_until
from waterclock.clock import SystemClock
from waterclock.relay.options import StandsBy
from waterclock.relay.progress import Progress
from waterclock.relay.prometheus import prometheus
from waterclock.relay.relay import Relay
from waterclock.relay.standby import AGAIN_NS, EACH_NS, QUIET_MS
from waterclock.relay.store import StoreDamaged
from waterclock.relay.turn import Turn
from waterclock.testing import Broker

_numbers = count()
Beside = Callable[..., Bystander]


@pytest.fixture
def wide(relay_broker: Broker, tmp_path: Path) -> Iterator[World]:
    with World(relay_broker, tmp_path, f"standby{next(_numbers)}", 2) as made:
        yield made


@pytest.fixture
def beside(world: World) -> Iterator[Beside]:
    """Makes one that stands by."""
    made: list[Bystander] = []

    def make(*arguments: object, **options: object) -> Bystander:
        made.append(Bystander(world, *arguments, **options))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_what_is_filed_and_settled_elsewhere_is_filed_and_settled_here(world: World, beside: Beside) -> None:
    one = world.started("one")
    two = beside(one)
    world.send("soon", in_ms=1_000)
    world.send("late", in_ms=YEAR_MS, id="x")
    world.put(b"bad")
    followed(one, two)
    assert two.follower.store.pending == 2
    world.advance_ms(1_000)
    step_until(lambda: world.values() == ["soon"], one)
    followed(one, two)
    assert (two.follower.store.pending, two.follower.store.loaded_until) == (1, 0)


def test_whoever_stood_by_reads_nothing_again_and_goes_on(world: World, beside: Beside) -> None:
    one = world.started("one")
    two = beside(one)
    world.send("a", "b", in_ms=2_000)
    world.send("c", in_ms=3_000, id="x")
    step_quietly(one)
    world.advance_ms(1_000)
    step_until(lambda: owner_of(one).command_position == 3, one)
    followed(one, two)
    last = handed_over(world, one, two)
    assert (last._counts.requests, owner_of(last).store.rebuilt) == (0, None)
    world.advance_ms(1_000)
    world.put(None, delay_id="x", delay_action="cancel")
    step_until(lambda: world.replies(), last)
    step_quietly(last)
    assert (world.values(), world.replies()) == (["a", "b"], [("x", "cancelled", 1)])


def test_what_the_dead_one_did_not_answer_is_answered(
    world: World, beside: Beside, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The follower has filed what stands behind the command, and only TOPIC.settled moves the command position."""
    one = world.started("one")
    two = beside(one)
    world.send("a", in_ms=1_000, id="x")
    followed(one, two)
    with monkeypatch.context() as patch:
        dying(patch, Turn, "commit", "before")
        world.put(None, delay_id="x", delay_action="cancel")
        world.send("b", in_ms=1_000)
        run_until_death(world, one)
    answered = two.follower._replay.answered
    until(two.has(3), two)
    assert two.follower._replay.answered == answered
    two.close()
    last = world.started("two", name="one")
    world.advance_ms(1_000)
    step_until(lambda: world.values(), last)
    step_quietly(last)
    assert (world.values(), world.replies()) == (["b"], [("x", "cancelled", 1)])


def test_two_relays_of_a_group_stand_by_for_each_other(wide: World) -> None:
    """What one gives back it follows, with the files that are there."""
    one = wide.started("one", name=None)
    wide.send("a", in_ms=YEAR_MS)
    wide.put(b"b", partition=1, deliver_to=wide.target, deliver_at=wide.now_ms + YEAR_MS)
    step_quietly(one)
    two = wide.relay("two", name=None)
    each = (one.owners, one.standby.followers), (two.standby.followers, two.owners)
    step_until(lambda: all(len(own) == len(other) == 1 for own, other in each), one, two)
    assert all(own.keys() != other.keys() for own, other in each)
    (follower,) = one.standby.followers.values()
    assert (follower.store.pending, follower.store.rebuilt, follower.position) == (1, None, 1)
    wide.close(one)
    step_until(lambda: len(two.owners) == 2, two)
    assert not two.standby.followers
    assert all(owner.store.rebuilt is None and owner.store.pending == 1 for owner in two.owners.values())


def test_one_that_stands_by_for_nothing_has_no_files(world: World) -> None:
    relay = world.relay("two", standby=StandsBy.NONE)
    relay.standby.is_ready = True
    for _ in range(5):
        assert relay.standby.step(()) == 0
    assert not relay.standby.followers
    assert not list(world.folder.glob("two/*"))


def test_what_it_follows_and_how_far_behind_it_is_can_be_seen(world: World, beside: Beside) -> None:
    one = world.started("one")
    two = beside(one)
    world.send("a", "b", in_ms=YEAR_MS)
    followed(one, two)
    until(lambda: two.standby.statistics()[0].behind == 0, two)
    one.standby = two.standby
    one._gather(now=True)
    now = one.statistics()
    assert (now.standby[0].pending, now.standby[0].position, now.standby[0].why) == (2, 2, "")
    labels = f'{{group="{world.topic}",topic="{world.topic}",partition="0"}}'
    assert f"waterclock_relay_standby_pending_messages{labels} 2" in prometheus(now)
    assert "stands by for 1" in Progress(SystemClock(), as_json=False)._line(now)


# The two logs


def test_a_copy_that_is_seen_before_it_is_named_waits_for_that(world: World, beside: Beside) -> None:
    relay = world.started("one", lap_bytes=LAP_BYTES)
    two = beside(relay)
    until(lambda: two.is_there, two)
    pause(two, True)
    world.send("long", in_ms=YEAR_MS)
    step_quietly(relay)
    fill(world, relay)
    step_until(lambda: relay._counts.laps, relay)
    step_quietly(relay)
    logs, topics, follower = relay._logs, relay.topics, two.follower
    place = owner_of(relay).extent.moves.next_copy(0)
    follower.file(list(logs.read(topics.input, 0, follower.position, logs.bounds(topics.input, 0)[1])))
    assert [message.offset() for message in follower.held][:1] == [follower.position] == [place]
    for message in logs.read(topics.settled, 0, 0, logs.bounds(topics.settled, 0)[1]):
        follower.settle(message)
    assert not follower.held
    assert follower.position == owner_of(relay).position
    assert follower.store.pending == 1


def test_what_a_user_writes_with_that_header_waits_until_the_owner_has_gone_on_behind_it(
    world: World, beside: Beside
) -> None:
    one = world.started("one")
    two = beside(one)
    world.send("a", in_ms=1_000)
    followed(one, two)
    world.put(b"mine", deliver_to=world.target, deliver_at=1, delay_origin="0 5")
    world.send("b", in_ms=1_000)
    until(lambda: two.follower.held, two)
    assert two.follower.position == 1
    followed(one, two)
    assert (two.follower.position, two.follower.store.pending) == (3, 2)
    assert len(world.letters()) == 1


@pytest.mark.long(seconds=4)
def test_it_follows_through_laps_snapshots_and_trims(world: World, beside: Beside) -> None:
    one = world.started("one", lap_bytes=LAP_BYTES)
    two = beside(one)
    world.send("far", in_ms=YEAR_MS)
    cut_off(world, one)
    fill(world, one)
    followed(one, two, Time(world))
    assert two.follower.store.pending == owner_of(one).store.pending
    last = handed_over(world, one, two, lap_bytes=LAP_BYTES)
    world.advance_ms(YEAR_MS)
    until_delivered(world, last, "far")


def test_one_that_falls_behind_where_the_logs_are_cut_off_begins_anew(
    world: World, beside: Beside, caplog: pytest.LogCaptureFixture
) -> None:
    one = world.started("one", lap_bytes=LAP_BYTES)
    two = beside(one)
    world.send("far", in_ms=YEAR_MS)
    followed(one, two)
    two.follower.checkpoint()
    pause(two, True)
    cut_off(world, one)
    lap(world, one)
    pause(two, False)
    until(lambda: "discarded, to be filed anew" in caplog.text and two.is_there, two, Time(world))
    followed(one, two, Time(world))
    assert two.follower.store.pending == owner_of(one).store.pending
    last = handed_over(world, one, two, lap_bytes=LAP_BYTES)
    world.advance_ms(YEAR_MS)
    until_delivered(world, last, "far")


def pause(two: Bystander, is_paused: bool) -> None:
    """Have nothing come of what it follows."""
    for place in two.standby._places(0):
        two.standby._tails.pause(place, is_paused)


# What goes wrong


def test_damaged_files_are_discarded_and_made_again(
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
    until(lambda: "does not hold what was written" in caplog.text, one, two)
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
    owner_of(one).room.is_refusing = True
    until(lambda: not two.is_there, two)
    assert [file.name for file in folder.iterdir()] == ["lock"]
    assert "not made again for ten minutes" in caplog.text
    owner_of(one).room.took()
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


def test_following_yields_to_owning(world: World, beside: Beside) -> None:
    one = world.started("one")
    two = beside(one, is_beside=True)
    until(lambda: two.is_there, two)
    world.send("near", in_ms=QUIET_MS)
    step_quietly(one)
    two.step(0)  # it was time; from here on it is not
    position = two.follower.position
    for _ in range(100):
        two.step(0)
        one.step(0.005)
    assert two.follower.position == position
    assert two.standby.wait_s() > 0
    until(two.has(1), two, Time(world, EACH_NS // 1_000_000))


def owned(relay: Relay) -> set[int]:
    return set(relay.owners)


def test_what_a_relay_owns_it_does_not_follow(wide: World) -> None:
    relay = wide.started("one")
    relay.standby.step(owned(relay))
    step_quietly(relay)
    assert (owned(relay), relay.standby.followers) == ({0, 1}, {})
