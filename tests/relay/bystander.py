"""One that stands by beside a relay, in no group: it steps when a test says so, and joins nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tests.relay.lapping import owner_of
from tests.relay.world import World, step_quietly, step_until
from waterclock.relay.relay import Relay
from waterclock.relay.standby.follower import StandbyFollower
from waterclock.relay.standby.standby import Standby


class Bystander:
    """Of the partitions of `relay`, with files in `place`. `is_beside`: its owners are this one's too, as if both were one
    process."""

    def __init__(self, world: World, relay: Relay, place: str = "two", is_beside: bool = False) -> None:
        context = replace(relay._context, folder=world.folder / place)
        self.standby = Standby(context, range(world.partitions), relay.owners if is_beside else {})
        self.standby.is_ready = True

    def step(self, wait_s: float) -> int:
        return self.standby.step(())

    @property
    def follower(self) -> StandbyFollower:
        return self.standby.followers[0]

    @property
    def is_there(self) -> bool:
        return 0 in self.standby.followers

    def has(self, position: int) -> Callable[[], bool]:
        """Whether it has filed so much."""
        return lambda: self.is_there and self.follower.position == position

    def close(self) -> None:
        self.standby.close(checkpoint=True)


Beside = Callable[..., Bystander]


class Time:
    """Goes by with the steps of the others."""

    def __init__(self, world: World, ms: int = 1_000) -> None:
        self.world, self.ms = world, ms

    def step(self, wait_s: float) -> None:
        self.world.advance_ms(self.ms)


def until(condition: Callable[[], object], *ones: Relay | Bystander | Time) -> None:
    """Steps of each, until it is so."""
    step_until(condition, *ones)  # type: ignore[arg-type]


def followed(one: Relay, two: Bystander, *others: Time) -> None:
    """Steps until the second has in its files what the first one has."""
    step_quietly(one)
    owner = owner_of(one)
    until(
        lambda: two.has(owner.position)() and two.follower.settled_position == owner.settled_position, one, two, *others
    )


def handed_over(world: World, one: Relay, two: Bystander, **options: object) -> Relay:
    """The first one ends, and a relay with the second one's files has its partition."""
    two.close()
    world.close(one)
    return world.started("two", name="one", **options)
