"""What the console has a relay do: by its own commands, answered as they are."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.relay.test_series import HOUR_MS, hourly
from tests.relay.world import World, step_quietly
from waterclock.errors import UsageError
from waterclock.relay.changing import Changes
from waterclock.relay.client.sending import Answer
from waterclock.relay.relay import Relay
from waterclock.relay.watching.due_next import due_next


def stepping(relay: Relay, deed: Callable[[], Any]) -> Any:
    """What a deed returns that waits for the relay, which goes on meanwhile."""
    answers: list[Any] = []
    thread = threading.Thread(target=lambda: answers.append(deed()))
    thread.start()
    while thread.is_alive():
        relay.step(0.05)
    return answers[0]


def changes(world: World, relay: Relay) -> Changes:
    return Changes(relay, world.broker.bootstrap, {})


def next_of(world: World, relay: Relay) -> Any:
    """The message that is due first, as the console knows it."""
    return due_next(1, relay.owners, relay.lock, relay.topics.input, world.now_ms).messages[0]


def test_a_message_is_cancelled_once(world: World) -> None:
    relay = world.started()
    world.send("x", in_ms=HOUR_MS, id="cart")
    step_quietly(relay)
    asked = {"verb": "cancel", "origin": next_of(world, relay).origin, "id": "cart"}
    own = changes(world, relay)
    assert stepping(relay, lambda: own.change(asked)) == Answer("cart", "cancelled", 1)
    assert stepping(relay, lambda: own.change(asked)).count == 0


def test_a_message_that_is_moved_is_the_same_but_for_its_time(world: World) -> None:
    relay = world.started()
    world.send("hello", in_ms=HOUR_MS, id="cart", key=b"ann", own="header")
    step_quietly(relay)
    one, at_ms = next_of(world, relay), world.now_ms + 2 * HOUR_MS
    asked = {"verb": "move", "origin": one.origin, "id": "cart", "due_ms": one.due_ms, "at_ms": at_ms}
    assert stepping(relay, lambda: changes(world, relay).change(asked)) == Answer("cart", "replaced", 1)
    moved = next_of(world, relay)
    assert (moved.id, moved.key, moved.target, moved.due_ms) == ("cart", "ann", world.target, at_ms)
    with pytest.raises(UsageError, match="is not pending any more"):
        changes(world, relay).change(asked)


def test_a_series_is_not_moved(world: World) -> None:
    relay = world.started()
    hourly(world, id="series")
    step_quietly(relay)
    one = next_of(world, relay)
    asked = {"verb": "move", "origin": one.origin, "id": "series", "due_ms": one.due_ms, "at_ms": one.due_ms}
    with pytest.raises(UsageError, match="an occurrence of a series"):
        changes(world, relay).change(asked)


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ([], "named by its origin"),
        ({"verb": "cancel", "origin": "other-0-1", "id": "x"}, "named by its origin"),
        ({"verb": "cancel", "origin": "TOPIC-0-1", "id": ""}, "one without an id stays"),
        ({"verb": "drop", "origin": "TOPIC-0-1", "id": "x"}, "cancelled or moved, not 'drop'"),
        ({"verb": "move", "origin": "TOPIC-0-1", "id": "x", "at_ms": -1}, "at_ms must be whole milliseconds"),
    ],
)
def test_what_cannot_be_done_is_refused_with_a_sentence(world: World, asked: Any, why: str) -> None:
    if asked:
        asked["origin"] = asked["origin"].replace("TOPIC", world.topic)
    with pytest.raises(UsageError, match=why):
        changes(world, world.started()).change(asked)
