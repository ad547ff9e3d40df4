"""What tests of handlers share: what makes them, has them handle and fail, and kills them at a step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from tests.relay.test_kills import Death
from tests.relay.world import World, step_quietly, step_until
from waterclock.clock import SystemClock
from waterclock.kafka.settings import base_settings
from waterclock.relay import Delivery
from waterclock.relay.handlers.handler import Handler, HandlerOptions

Function = Callable[..., Any]


@contextmanager
def making(world: World, **options: Any) -> Iterator[Callable[..., Handler]]:
    """Handlers with these options are made, and closed in the end."""
    made: list[Handler] = []

    def one(function: Function, **more: Any) -> Handler:
        named = {"topic": world.target, "group": f"{world.topic}.group", "function": function, **options, **more}
        settings = base_settings(world.broker.bootstrap, {})
        made.append(Handler(settings, world.topic, HandlerOptions(**named), SystemClock()))
        return made[-1]

    yield one
    for handler in made:
        with suppress(RuntimeError):  # closed by the test
            handler.close()


def handle(handler: Handler, count: int = 1) -> None:
    """Until so many messages were handled."""
    for _ in range(count):
        step_until(lambda: handler.step(0.05))


def deliver(world: World, relay: Any, after_ms: int) -> None:
    step_quietly(relay)
    world.advance_ms(after_ms)
    for owner in relay.owners.values():
        owner.keep_up()
    step_quietly(relay)


def requests(world: World) -> int:
    """How many requests there are to try again."""
    return sum(dict(seen.headers).get("retry-attempts") is not None for seen in world.seen(world.topic))


@contextmanager
def death(patch: pytest.MonkeyPatch, where: type, step: str, when: str) -> Iterator[None]:
    """The process dies before or after a step, which is a method of that class."""
    real = getattr(where, step)

    def dying(*arguments: Any, **named: Any) -> None:
        if when == "after":
            real(*arguments, **named)
        raise Death

    with patch.context() as patched:
        patched.setattr(where, step, dying)
        with pytest.raises(Death):
            yield


class Failing:
    """A handler that raises what it is told to, and remembers what it was called with."""

    def __init__(self, *errors: Exception | None) -> None:
        self.errors, self.seen = list(errors), list[Delivery]()

    def __call__(self, delivery: Delivery) -> None:
        self.seen.append(delivery)
        error = self.errors.pop(0) if self.errors else None
        if error is not None:
            raise error
