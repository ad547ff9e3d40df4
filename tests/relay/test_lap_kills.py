"""A relay that dies between any two steps of a lap, of a snapshot, of a trim; a zombie in a lap; a partition that moves."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from tests.relay.lapping import (
    LAP_BYTES,
    YEAR_MS,
    all_once,
    cut_off,
    fill,
    lapping,
    long_ones,
    owner_of,
    until_delivered,
)
from tests.relay.test_kills import Death, dying
from tests.relay.world import World, step_quietly, step_until
from waterclock.errors import UsageError
from waterclock.relay.owner.take_over import TakeOver
from waterclock.relay.relay import Relay
from waterclock.relay.store.folder import Folder
from waterclock.relay.upkeep.lap import LapTurn
from waterclock.relay.upkeep.upkeep import SnapshotTurn

LAP = ("choose", "copy", "settle", "commit", "apply")
SNAPSHOT = ("write", "commit", "apply")
QUICK = {("commit", "after")}
LATER_MS = 30_000


def each(steps: Sequence[str]) -> list[Any]:
    """Each step and moment; those that are no quick ones have their turn in a campaign."""
    return [
        pytest.param(*one, marks=() if one in QUICK else pytest.mark.long(seconds=4))
        for one in product(steps, ("before", "after"))
    ]


def filled(world: World) -> Relay:
    """One that has moved things on before, and has messages of every kind."""
    relay = lapping(world)
    world.send("a", "b", in_ms=YEAR_MS, key=b"k")
    world.send("gone", in_ms=YEAR_MS, id="cart-1")
    world.send("late", in_ms=YEAR_MS + 1)
    step_quietly(relay)
    cut_off(world, relay)
    world.send("c", in_ms=world_due(world, relay) - world.now_ms, key=b"k")
    step_quietly(relay)
    return relay


def world_due(world: World, relay: Relay) -> int:
    """When the first of them is due."""
    due_ms = owner_of(relay).store.next_due
    assert due_ms is not None
    return due_ms


def until_death(world: World, relay: Relay) -> None:
    """Fill the input until the death comes; its files are as the last checkpoint left them."""
    with pytest.raises(Death):
        live_on(world, relay)
    world.crash(relay)


def live_on(world: World, relay: Relay) -> None:
    for _ in range(20):
        fill(world, relay)
        step_quietly(relay)
        world.advance_ms(1_000)


def check(world: World, relay: Relay) -> None:
    """A cancel of what was moved on is heard, everything else comes once, in its order."""
    world.put(None, delay_id="cart-1", delay_action="cancel")
    step_until(world.replies, relay)
    assert world.replies() == [("cart-1", "cancelled", 1)]
    world.advance_ms(YEAR_MS + 1)
    until_delivered(world, relay, "a", "b", "c", "late")


@pytest.mark.parametrize("with_files", [True, pytest.param(False, marks=pytest.mark.long(seconds=4))])
@pytest.mark.parametrize(
    ("turn", "step", "when"),
    [
        *(pytest.param(LapTurn, *one.values, marks=one.marks) for one in each(LAP)),
        *(pytest.param(SnapshotTurn, *one.values, marks=one.marks) for one in each(SNAPSHOT)),
        pytest.param(AdminClient, "delete_records", "before", marks=pytest.mark.long(seconds=4)),
        pytest.param(AdminClient, "delete_records", "after"),
    ],
)
def test_a_death_at_each_step_of_a_lap_a_snapshot_and_a_trim_loses_nothing_and_doubles_nothing(
    turn: Any, step: str, when: str, with_files: bool, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    relay = filled(world)
    with monkeypatch.context() as patch:
        dying(patch, turn, step, when)
        until_death(world, relay)
    folder = {} if with_files else {"folder": world.folder / "empty"}
    relay = lapping(world, **folder)
    fill(world, relay)
    step_quietly(relay)
    check(world, relay)


@pytest.mark.long(seconds=90)
@pytest.mark.parametrize("steps", [LAP, SNAPSHOT])
def test_death_after_death_leaves_a_log_that_is_read(
    steps: Sequence[str], world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each step of each second turn, one life after the other, with files and without."""
    relay = filled(world)
    for number, (step, when) in enumerate(product(steps, ("before", "after"))):
        with monkeypatch.context() as patch:
            dying(patch, LapTurn if steps is LAP else SnapshotTurn, step, when, 2)
            until_death(world, relay)
        relay = lapping(world, folder=world.folder / f"life {number}")
    check(world, relay)


@pytest.mark.parametrize("step", ["replay", pytest.param("verify", marks=pytest.mark.long(seconds=4))])
@pytest.mark.parametrize("when", ["before", pytest.param("after", marks=pytest.mark.long(seconds=4))])
def test_a_death_while_a_snapshot_is_read_is_followed_by_reading_it_again(
    step: str, when: str, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    relay = filled(world)
    world.crash(relay)
    with monkeypatch.context() as patch:
        dying(patch, TakeOver, step, when)
        patch.setattr(TakeOver, "give_up", lambda self: self._store and self._store.close())
        dead = world.relay(folder=world.folder / "empty", lap_bytes=LAP_BYTES)
        with pytest.raises(Death):
            step_until(lambda: False, dead)
        world.crash(dead)
    check(world, lapping(world, folder=world.folder / "empty"))


@pytest.mark.long(seconds=4)
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_death_around_the_first_checkpoint_of_files_made_of_a_snapshot(
    when: str, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.crash(filled(world))
    with monkeypatch.context() as patch:
        dying(patch, Folder, "write_manifest", when, 2)
        dead = world.relay(folder=world.folder / "empty", lap_bytes=LAP_BYTES)
        with pytest.raises(Death):
            step_until(lambda: world.advance_ms(1_000), dead)
        world.crash(dead)
    check(world, lapping(world, folder=world.folder / "empty"))


def test_a_cancel_that_stands_before_the_copy_is_not_answered_before_the_copy_is_read(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It came while the copy was made. The owner died; the new one has no files, and many commands wait."""
    relay = filled(world)
    copy, lows = LapTurn.copy, []

    def cancelled_meanwhile(self: LapTurn) -> None:
        if not lows:
            lows.append(relay._logs.bounds(world.topic, 0)[1])
            world.put(None, delay_id="cart-1", delay_action="cancel")
        copy(self)

    with monkeypatch.context() as patch:
        patch.setattr(LapTurn, "copy", cancelled_meanwhile)
        dying(patch, LapTurn, "commit", "after")
        until_death(world, relay)
    world.cut(lows[0])  # as far as it is swept, and answered
    monkeypatch.setattr("waterclock.relay.relay.READ", 1)
    monkeypatch.setattr("waterclock.relay.owner.turn.MOST_WAITING", 0)
    relay = lapping(world, folder=world.folder / "empty")
    step_until(world.replies, relay)
    assert world.replies() == [("cart-1", "cancelled", 1)]


@pytest.mark.long(seconds=8)
def test_a_zombie_in_a_lap_moves_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has made its copies, and sleeps; another takes over; it wakes, and commits."""
    zombie = lapping(world, "zombie")
    world.send("far", "too", in_ms=YEAR_MS)
    real, heirs = LapTurn.commit, []

    def commit(self: LapTurn) -> None:
        if not heirs:
            heirs.append(world.relay(name="zombie", folder=world.folder / "heir", lap_bytes=LAP_BYTES))
            step_until(lambda: heirs[0].owners, heirs[0])
        real(self)

    monkeypatch.setattr(LapTurn, "commit", commit)
    fill(world, zombie)
    with pytest.raises(UsageError, match="give each its own"):
        step_until(lambda: bool([heir.step(0.01) for heir in heirs]) and False, zombie)
    (heir,) = heirs
    step_until(lambda: heir.owners and owner_of(heir).has_caught_up, heir)  # the zombie may have had it for a moment
    copies = [seen for seen in world.seen(world.topic) if "delay-origin" in dict(seen.headers)]
    moved = [relay._counts.moved for relay in (zombie, heir)]  # the zombie may have been the owner once more
    assert len(copies) == sum(moved)
    fill(world, heir)
    step_until(lambda: heir._counts.laps, heir)
    world.advance_ms(YEAR_MS)
    until_delivered(world, heir, "far", "too")


@pytest.mark.long(seconds=8)
def test_partitions_that_move_between_two_relays_amid_laps(wide: World) -> None:
    """Whoever comes back finds files that are older than where the log begins."""
    one = wide.relay("one", lap_bytes=LAP_BYTES)
    step_until(lambda: len(one.owners) == 2, one)
    for partition in (0, 1):
        wide.send(f"far {partition}", in_ms=YEAR_MS, partition=partition)
    busy(wide, one)
    two = wide.relay("two", lap_bytes=LAP_BYTES)
    step_until(lambda: len(one.owners) == len(two.owners) == 1, one, two)
    busy(wide, one, two)
    wide.close(two)
    step_until(lambda: len(one.owners) == 2, one)
    busy(wide, one)
    wide.advance_ms(YEAR_MS)
    step_until(lambda: len(long_ones(wide)) == 2, one)
    assert sorted(long_ones(wide)) == ["far 0", "far 1"]
    assert all_once(wide)


def busy(world: World, *relays: Relay) -> None:
    """Both partitions are filled until each was moved on and cut off."""
    owners = [owner for relay in relays for owner in relay.owners.values()]
    lows = [owner.log_span.low for owner in owners]
    for round_ in range(40):
        for partition in (0, 1):
            world.send(*(f"short {world.now_ms} {partition} {n}" for n in range(40)), in_ms=0, partition=partition)
        step_quietly(*relays)
        world.advance_ms(1_000)
        step_quietly(*relays)
        if all(owner.log_span.low > low for owner, low in zip(owners, lows, strict=True)):
            return
        assert round_ < 39
