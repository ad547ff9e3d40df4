"""Cancel and replace: what is answered is true, and was committed with its effect."""

from __future__ import annotations

import json

import pytest

from tests.relay.world import World, step_quietly
from waterclock.relay.relay import Relay
from waterclock.relay.wire.letters import Reply


def cancel(world: World, id: str) -> None:
    world.put(None, delay_id=id, delay_action="cancel")


def pass_s(world: World, relay: Relay, seconds: int) -> None:
    step_quietly(relay)
    world.advance_ms(1000 * seconds)
    step_quietly(relay)


REPLACE = {"delay_action": "replace"}
SCENES: dict[str, tuple[list[tuple[object, ...]], list[str], list[tuple[str, str, int]]]] = {
    # what is done: a message (value, id, in how many ms), one that replaces, a cancel of an id, or seconds that pass
    # -> what is delivered, and what is answered
    "what is cancelled is not delivered and the others are": (
        [("a", "one", 5_000), ("b", "two", 5_000), ("one",), (5,)],
        ["b"],
        [("one", "cancelled", 1)],
    ),
    "all messages of an id are cancelled": (
        [(each, "x", 86_400_000) for each in "abc"] + [("x",), (90_000,)],
        [],
        [("x", "cancelled", 3)],
    ),
    "what was delivered is said to be": (
        [("a", "x", 1_000), (1,), ("x",), (0,)],
        ["a"],
        [("x", "already delivered", 0)],
    ),
    "an id that was never sent is unknown": ([("x",), (0,)], [], [("x", "unknown", 0)]),
    "a second cancel hears that it is cancelled and that nothing was left to do": (
        [("a", "x", 1_000), ("x",), ("x",), (0,), ("x",), (1,)],
        [],
        [("x", "cancelled", 1), ("x", "cancelled", 0), ("x", "cancelled", 0)],
    ),
    "a replace delivers the new one and not the old one": (
        [("old", "x", 1_000), ("new", "x", 2_000, REPLACE), (2,)],
        ["new"],
        [("x", "replaced", 1)],
    ),
    "a replace of what was delivered or never sent is scheduled and answered so": (
        [("old", "x", 1_000), (1,), ("new", "x", 1_000, REPLACE), ("first", "y", 1_000, REPLACE), (1,)],
        ["old", "new", "first"],
        [("x", "already delivered", 0), ("y", "unknown", 0)],
    ),
    "what replaced something can be cancelled and replaced itself": (
        [(each, "x", 1_000, REPLACE) for each in "abc"] + [("x",), (1,)],
        [],
        [("x", "unknown", 0), ("x", "replaced", 1), ("x", "replaced", 1), ("x", "cancelled", 1)],
    ),
}


@pytest.mark.parametrize("scene", SCENES)
def test_what_is_answered_is_what_is_done(scene: str, world: World) -> None:
    deeds, delivered, replies = SCENES[scene]
    relay = world.started()
    for deed in deeds:
        match deed:
            case (int(seconds),):
                pass_s(world, relay, seconds)
            case (str(id),):
                cancel(world, id)
            case (value, id, in_ms, *more):
                world.send(value, in_ms=in_ms, id=id, **(more[0] if more else {}))
    assert (world.values(), world.replies()) == (delivered, replies)


def test_a_cancel_takes_only_what_stands_before_it_in_the_input(world: World) -> None:
    """All of it is read at once here: what comes behind must not be taken for what stood before."""
    cancel(world, "x")
    world.send("a", in_ms=1_000, id="x")
    cancel(world, "x")
    world.send("b", in_ms=1_000, id="x")
    relay = world.started()
    pass_s(world, relay, 1)
    assert (world.values(), world.replies()) == (["b"], [("x", "unknown", 0), ("x", "cancelled", 1)])


def test_a_message_that_is_due_in_the_same_turn_is_cancelled_before_it_is_delivered(world: World) -> None:
    relay = world.started()
    world.send("a", in_ms=1_000, id="x")
    step_quietly(relay)
    world.advance_ms(1_000)
    owner = relay.owners[0]
    cancel(world, "x")
    while not owner.waiting:
        with relay.lock:
            relay._ingest(relay._read(0.1))
    step_quietly(relay)
    assert (world.values(), world.replies()) == ([], [("x", "cancelled", 1)])


def test_a_reply_names_the_request_and_has_the_id_as_its_key(world: World) -> None:
    relay = world.started()
    cancel(world, "größe")
    step_quietly(relay)
    (seen,) = world.seen(f"{world.topic}.replies")
    told = {"id": "größe", "action": "cancel", "outcome": "unknown", "count": 0, "request": f"{world.topic}-0-0"}
    assert (seen.key, json.loads(seen.value or b"")) == ("größe".encode(), told)


def test_what_is_cancelled_after_a_restart_is_found_in_the_files(world: World) -> None:
    relay = world.started()
    world.send("a", in_ms=86_400_000 * 40, id="x")
    step_quietly(relay)
    world.close(relay)
    relay = world.started()
    cancel(world, "x")
    step_quietly(relay)
    assert world.replies() == [("x", "cancelled", 1)]
    assert relay.owners[0].store.pending == 0


@pytest.mark.parametrize("count", [300])
@pytest.mark.long(seconds=3)
def test_many_cancels_at_once_are_each_answered_in_their_order(count: int, world: World) -> None:
    relay = world.started()
    for number in range(count):
        world.send(str(number), in_ms=1_000, id=f"n{number}")
        if number % 2:
            cancel(world, f"n{number}")
    pass_s(world, relay, 1)
    assert world.values() == [str(number) for number in range(0, count, 2)]
    assert world.replies() == [(f"n{number}", "cancelled", 1) for number in range(1, count, 2)]


@pytest.mark.parametrize("id", ['a "b"', "back\\slash", "\x00\n\x7f", "größe \u2028 \U0001f570", "%s {0}"])
def test_a_reply_is_json_whatever_its_id_is(id: str) -> None:
    told = {"id": id, "action": "cancel", "outcome": "cancelled", "count": 2, "request": "delays-0-17"}
    assert json.loads(Reply(*told.values()).as_json()) == told  # type: ignore[arg-type]
    assert Reply(*told.values()).as_json() == json.dumps(told, ensure_ascii=False).encode()  # type: ignore[arg-type]
