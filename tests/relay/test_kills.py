"""A relay that dies between any two numbered steps, of a turn and of a take-over: nothing lost, nothing twice, in order.

Here a death is an exception that nobody catches, after which the relay's objects are left alone (`World.crash`): many are
tried in a second. tests/relay/test_process_kills.py kills processes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import pytest

from tests.relay.world import World, step_quietly, step_until
from waterclock.relay.owner.owner import Owner
from waterclock.relay.owner.take_over import TakeOver
from waterclock.relay.owner.turn import Turn
from waterclock.relay.relay import Relay
from waterclock.relay.store.folder import Folder

TURN = ("answer", "take", "read", "deliver", "settle", "send_position", "commit", "apply")
REFUSED = ("abort", "undo")  # behind deliver, settle, send_position or commit
TAKE_OVER = ("lock", "ask", "fence", "find_ends", "verify", "replay", "begin")
WHEN = ("before", "after")
HOUR_MS = 3_600_000
QUICK = {("deliver", "after"), ("commit", "before"), ("commit", "after"), ("replay", "before")}


def each(steps: Sequence[str]) -> list[Any]:
    """Each step and moment; those that are no quick ones have their turn in a campaign."""
    return [
        pytest.param(*one, marks=() if one in QUICK else pytest.mark.long(seconds=2)) for one in product(steps, WHEN)
    ]


class Death(BaseException):
    """Nobody catches it: it stands for kill -9."""


def dying(monkeypatch: pytest.MonkeyPatch, owner: Any, step: str, when: str, number: int = 1) -> None:
    """Have the `number`th call of a step be the last thing that happens."""
    real: Callable[..., Any] = getattr(owner, step)
    calls = 0

    def around(self: Any, *arguments: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        is_last = calls == number  # of this call: commits go on side by side
        if is_last and when == "before":
            raise Death
        found = real(self, *arguments, **named)
        if is_last:
            raise Death
        return found

    monkeypatch.setattr(owner, step, around)


def run_until_death(world: World, relay: Relay) -> None:
    with pytest.raises(Death):
        step_until(lambda: False, relay)
    world.crash(relay)


def fill(world: World) -> None:
    """Requests of every kind, all of them due within two seconds."""
    world.send("a", "b", in_ms=1_000, key=b"k")
    world.send("gone", in_ms=1_500, id="cart-1")
    world.send("old", in_ms=1_500, id="cart-2")
    world.put(b"bad")
    world.put(None, delay_id="cart-1", delay_action="cancel")
    world.send("new", in_ms=1_600, id="cart-2", delay_action="replace")
    world.send("late", in_ms=-5)
    world.put(None, delay_id="cart-9", delay_action="cancel")
    world.send("c", in_ms=1_900, key=b"k")


def check(world: World) -> None:
    assert world.values() == ["late", "a", "b", "new", "c"]
    assert world.replies() == [("cart-1", "cancelled", 1), ("cart-2", "replaced", 1), ("cart-9", "unknown", 0)]
    assert [letter["dead-from"] for letter in world.letters()] == [f"{world.topic}-0-4".encode()]


@pytest.mark.parametrize(("step", "when"), each(TURN))
def test_a_death_at_each_step_of_a_turn_loses_nothing_and_doubles_nothing(
    step: str, when: str, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    relay = world.started()
    fill(world)
    with monkeypatch.context() as patch:
        dying(patch, Turn, step, when)
        run_until_death(world, relay)
    with monkeypatch.context() as patch:
        relay = world.relay()
        dying(patch, Turn, step, when, 2)
        world.advance_ms(2_000)
        with pytest.raises((Death, Finished)):
            step_until(lambda: finished(world), relay)
        world.crash(relay)
    relay = world.started()
    step_until(lambda: "c" in world.values(), relay)
    step_quietly(relay)
    check(world)
    (owner,) = relay.owners.values()
    assert owner.store.pending == 0


class Finished(Exception):
    """All was delivered before the step was called that often."""


def finished(world: World) -> bool:
    if "c" in world.values():
        raise Finished
    return False


@pytest.mark.parametrize(("step", "when", "number"), [*product(REFUSED, WHEN, (1, 2))])
def test_a_death_at_each_step_about_a_refusal_loses_nothing_and_doubles_nothing(
    step: str, when: str, number: int, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second message that is too large is only tried, in a turn that is thrown away whatever Kafka says."""
    relay = world.started()
    world.alter(world.target, "max.message.bytes", 5_000)
    world.send("a", "b", in_ms=1_000)
    for _ in range(2):
        world.put(os.urandom(20_000), deliver_to=world.target, deliver_at=world.now_ms + 1_000)
    world.send("gone", in_ms=HOUR_MS, id="cart-1")
    world.send("c", in_ms=1_000)
    step_quietly(relay)
    world.put(None, delay_id="cart-1", delay_action="cancel")
    world.advance_ms(1_000)
    with monkeypatch.context() as patch:
        dying(patch, Turn, step, when, number)
        run_until_death(world, relay)
    relay = world.started()
    step_until(lambda: world.advance_ms(50) or (len(world.values()) == 3 and len(world.letters()) == 2), relay)
    step_quietly(relay)
    assert (world.values(), world.replies()) == (["a", "b", "c"], [("cart-1", "cancelled", 1)])
    assert [letter["dead-from"] for letter in world.letters()] == [f"{world.topic}-0-{n}".encode() for n in (2, 3)]
    assert owner_of(relay).store.pending == 0


@pytest.mark.parametrize(("step", "when"), each(TAKE_OVER))
def test_a_death_at_each_step_of_a_take_over_loses_nothing_and_doubles_nothing(
    step: str, when: str, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    relay = world.started()
    fill(world)
    step_quietly(relay)
    owner_of(relay).checkpoint()
    world.crash(relay)
    with monkeypatch.context() as patch:
        dying(patch, TakeOver, step, when)
        patch.setattr(TakeOver, "give_up", lambda self: self._store and self._store.close())
        run_until_death(world, world.relay())
    world.advance_ms(2_000)
    relay = world.started()
    step_until(lambda: "c" in world.values(), relay)
    check(world)


@pytest.mark.parametrize("when", ["before", pytest.param("after", marks=pytest.mark.long(seconds=1))])
def test_a_death_around_a_checkpoint_loses_nothing(when: str, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    relay = world.started()
    fill(world)
    step_quietly(relay)
    with monkeypatch.context() as patch:
        dying(patch, Folder, "write_manifest", when)
        world.advance_ms(2_000)
        run_until_death(world, relay)
    relay = world.started()
    step_until(lambda: "c" in world.values(), relay)
    check(world)


def owner_of(relay: Relay) -> Owner:
    (owner,) = relay.owners.values()
    return owner


# Two positions


def test_a_cancel_whose_transaction_dies_after_the_files_went_on_is_answered_all_the_same(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With one position the restart would begin behind the cancel, and deliver what was cancelled."""
    relay = world.started()
    world.send("keep", "gone", in_ms=5_000, id="x")
    step_quietly(relay)
    world.put(None, delay_id="x", delay_action="cancel")
    with monkeypatch.context() as patch:
        dying(patch, Turn, "commit", "before")
        owner = owner_of(relay)
        with pytest.raises(Death):
            step_until(lambda: False, relay)
        owner.checkpoint()
        assert owner.store.data_position == 3
        world.crash(relay)
    relay = world.started()
    step_quietly(relay)
    world.advance_ms(5_000)
    step_quietly(relay)
    assert (world.values(), world.replies()) == ([], [("x", "cancelled", 2)])


def test_what_was_answered_is_not_answered_again_when_the_files_are_gone(world: World) -> None:
    relay = world.started()
    fill(world)
    step_quietly(relay)
    world.crash(relay)
    relay = world.started(folder=world.folder / "empty")
    world.advance_ms(2_000)
    step_until(lambda: "c" in world.values(), relay)
    check(world)


def test_nor_when_the_group_has_forgotten_its_offsets_too(world: World) -> None:
    """Kafka forgets them after a week without a member; what is settled says it too."""
    relay = world.started(group="before")
    fill(world)
    step_quietly(relay)
    world.crash(relay)
    relay = world.started(folder=world.folder / "empty", group="after")
    world.advance_ms(2_000)
    step_until(lambda: "c" in world.values(), relay)
    check(world)
