"""A relay that stands by: its files follow what another one owns, and it goes on with them when that one is gone."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from math import inf
from threading import Event, Timer

import pytest
from confluent_kafka import Message

from tests.relay.bystander import Beside, Bystander, Time, followed, handed_over, until
from tests.relay.lapping import LAP_BYTES, YEAR_MS, cut_off, fill, lap, owner_of, until_delivered
from tests.relay.test_kills import dying, run_until_death
from tests.relay.world import World, step_quietly, step_until
from waterclock.clock import SystemClock
from waterclock.relay.options import StandsBy
from waterclock.relay.owner.context import Context
from waterclock.relay.owner.turn import Turn
from waterclock.relay.relay import Relay
from waterclock.relay.standby.standby import OPENING_S
from waterclock.relay.statistics import prometheus
from waterclock.relay.store import PartitionStore
from waterclock.relay.watching.progress import Progress


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
    two.follower.checkpoint()
    assert two.follower.store.settled_position == owner_of(one).settled_position
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


@pytest.mark.long(seconds=4)
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


def test_a_series_goes_on_with_whoever_stood_by(world: World, beside: Beside) -> None:
    one = world.started("one")
    two = beside(one)
    world.put(b"v", deliver_to=world.target, delay_cron="* * * * *", delay_id="s")
    followed(one, two)
    last = handed_over(world, one, two)
    for many in (1, 2):
        step_until(lambda many=many: world.advance_ms(10_000) or len(world.values()) == many, last)  # type: ignore[misc]
        step_quietly(last)
    assert owner_of(last).store.pending == 1


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
    place = owner_of(relay).log_span.moves.next_copy(0)
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


def test_files_that_end_before_the_log_begins_are_kept_and_what_stood_between_is_said(
    world: World, beside: Beside, caplog: pytest.LogCaptureFixture
) -> None:
    one = world.started("one")
    two = beside(one)
    world.send("a", in_ms=YEAR_MS)
    followed(one, two)
    two.standby.let_go(0)
    world.send("b", "c", in_ms=YEAR_MS)
    world.cut(2, one.topics.input)
    until(two.has(3), two)
    assert "begins at offset 2, and the files hold it up to 1: what stood at the 1 offsets between" in caplog.text
    assert two.follower.store.pending == 2


@pytest.mark.long(seconds=5)
def test_one_that_falls_behind_where_the_logs_are_cut_off_goes_on_with_its_files(
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
    until(lambda: two.is_there, two, Time(world))
    followed(one, two, Time(world))
    assert two.follower.store.pending == owner_of(one).store.pending
    last = handed_over(world, one, two, lap_bytes=LAP_BYTES)
    world.advance_ms(YEAR_MS)
    until_delivered(world, last, "far")


def test_what_nobody_knows_of_any_more_is_not_followed(
    world: World, beside: Beside, caplog: pytest.LogCaptureFixture
) -> None:
    """TOPIC.settled was cut off, and there is no snapshot."""
    one = world.started("one")
    world.send("a", in_ms=0)
    step_until(world.values, one)
    settled = one.topics.settled
    world.cut(one._logs.bounds(settled, 0)[1], settled)
    two = beside(one)
    until(lambda: "no snapshot of what was settled" in caplog.text, two)
    assert not two.is_there


@pytest.mark.parametrize("ends", [False, True])
def test_nothing_waits_for_files_that_are_opened(
    world: World, beside: Beside, monkeypatch: pytest.MonkeyPatch, ends: bool
) -> None:
    """Opened in the thread that delivers, they held up the partitions that are owned; if it ends meanwhile, so do they."""
    one = world.started("one")
    world.send("a", in_ms=YEAR_MS)
    step_quietly(one)
    may_open, open_store, opened = Event(), Context.open_store, list[PartitionStore]()

    def slowly(context: Context, number: int) -> PartitionStore:
        assert may_open.wait(30)
        opened.append(open_store(context, number))
        return opened[-1]

    monkeypatch.setattr(Context, "open_store", slowly)
    two = beside(one)
    for _ in range(3):
        two.step(0)
    assert (two.is_there, two.standby.wait_s()) == (False, OPENING_S)
    Timer(0.2 if ends else 0.0, may_open.set).start()
    if ends:
        two.close()
        monkeypatch.undo()
        with closing(replace(one._context, folder=world.folder / "two").open_store(0)) as free:  # nobody has it
            assert not free.pending
    else:
        followed(one, two)
        assert (two.follower.store, two.follower.store.pending) == (opened[0], 1)


def test_what_was_opened_is_let_go_if_the_disk_is_nearly_full_then(
    world: World, beside: Beside, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was looked for 200 times a second, for as long as the disk was, and memory never went back to the system."""
    one = world.started("one")
    two = beside(one)
    two.step(0)
    assert two.standby._opening
    monkeypatch.setattr(two.standby, "_is_roomy", lambda now_ns: False)
    two.step(0)
    assert (two.standby._opening, two.standby.wait_s()) == ({}, inf)
    replace(one._context, folder=world.folder / "two").open_store(0).close()  # nobody has it


def test_what_had_come_of_a_follower_that_ended_is_nothing_for_the_next_one(world: World, beside: Beside) -> None:
    one = world.started("one")
    world.send("a", "b", in_ms=YEAR_MS)
    two = beside(one)
    followed(one, two)
    standby = two.standby
    consumer = standby._tails._consumer
    standby._queue.append(standby_message(one))
    standby.let_go(0)
    assert not standby._queue
    until(lambda: two.is_there, two)
    assert standby._tails._consumer is not consumer


def standby_message(relay: Relay) -> Message:
    """A record that was taken, and not filed yet."""
    message = relay._logs.record(relay.topics.input, 0, 1)
    assert message is not None
    return message


def pause(two: Bystander, is_paused: bool) -> None:
    """Have nothing come of what it follows."""
    for place in two.standby._places(0):
        two.standby._tails.pause(place, is_paused)


def owned(relay: Relay) -> set[int]:
    return set(relay.owners)


def test_what_a_relay_owns_it_does_not_follow(wide: World) -> None:
    relay = wide.started("one")
    relay.standby.step(owned(relay))
    step_quietly(relay)
    assert (owned(relay), relay.standby.followers) == ({0, 1}, {})
