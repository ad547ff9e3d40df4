"""What the tests of laps have in common: a relay whose logs are kept within kilobytes, and what fills them."""

from __future__ import annotations

from itertools import count

from tests.relay.world import World, step_quietly, step_until
from waterclock.relay.owner.owner import Owner
from waterclock.relay.relay import Relay

LAP_BYTES = 8_000
YEAR_MS = 366 * 86_400_000
_numbers = count()


def lapping(world: World, place: str = "one", **options: object) -> Relay:
    """A relay that owns everything; 8 kB are a lap to it."""
    return world.started(place, **{"lap_bytes": LAP_BYTES, **options})


def owner_of(relay: Relay) -> Owner:
    (owner,) = relay.owners.values()
    return owner


def fill(world: World, relay: Relay, many: int = 100) -> None:
    """So many messages come and are delivered: about 130 bytes of the input each."""
    before = relay._counts.delivered
    world.send(*(f"short {next(_numbers)}" for _ in range(many)), in_ms=0)
    step_until(lambda: relay._counts.delivered >= before + many, relay)


def lap(world: World, relay: Relay) -> None:
    """Fill the input, and have the lap go on until it is over and the log cut off behind it."""
    owner, laps = owner_of(relay), relay._counts.laps
    fill(world, relay)
    step_until(lambda: relay._counts.laps > laps, relay)
    trimmed(world, relay, owner.log_span.moves.swept)


def trimmed(world: World, relay: Relay, until: int) -> None:
    """Steps until the input is cut off there, or nearly; a checkpoint comes with each second."""
    owner = owner_of(relay)
    step_until(lambda: world.advance_ms(1_000) or until - owner.log_span.low < 20, relay)


def saved(world: World, relay: Relay, many: int = 1) -> None:
    """Have so many snapshots taken."""
    wanted = relay._counts.snapshots + many
    while relay._counts.snapshots < wanted:
        fill(world, relay, 20)
        step_quietly(relay)
        step_until(lambda: relay._upkeep.wait_s(owner_of(relay)) > 1, relay)


def cut_off(world: World, relay: Relay) -> None:
    """Have both logs begin somewhere behind their first records."""
    lap(world, relay)
    saved(world, relay, 2)
    owner = owner_of(relay)
    step_until(lambda: world.advance_ms(1_000) or (owner.log_span.low and owner.log_span.settled_low), relay)


def long_ones(world: World) -> list[str]:
    """What was delivered, but for what `fill` sent."""
    return [value for value in world.values() if not value.startswith("short")]


def all_once(world: World) -> bool:
    """Whether nothing was delivered twice."""
    values = world.values()
    return len(values) == len(set(values))


def until_delivered(world: World, relay: Relay, *values: str) -> None:
    """Steps until these were delivered, in this order, and nothing twice."""
    step_until(lambda: len(long_ones(world)) >= len(values), relay)
    step_until(lambda: relay._wait_of(owner_of(relay)) > 0, relay)
    assert long_ones(world) == list(values)
    assert all_once(world)
