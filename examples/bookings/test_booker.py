"""The suite of booker.py: each order is booked, whoever is killed. `python -m pytest examples/bookings`.

Rule 1: nothing in it takes real time, and no seed comes out differently the next time.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

import pytest

from examples.bookings.booker import commit_first, write_first
from waterclock.testing import universe

if TYPE_CHECKING:
    from waterclock.simulation.universe import Universe

ORDERS = [b"order %d" % number for number in range(100)]
FAULTS = ("kill", "power_cut", "reset")


def book(world: Universe, booker: Callable[[str, Any], Coroutine[Any, Any, None]]) -> None:
    """Ten virtual seconds with faults, then peace until all is booked."""
    table = world.table()
    world.topic("orders", partitions=2)
    world.send("orders", ORDERS)
    world.process("booker", booker, world.bootstrap, table)
    world.run(seconds=10)
    world.settle(lambda: sorted(table) == sorted(ORDERS))


@pytest.mark.kafka_universe(seeds=range(100), faults=FAULTS)
def test_each_order_is_booked(kafka_universe: Universe) -> None:
    book(kafka_universe, write_first)


def test_who_commits_first_loses_orders_and_a_seed_shows_it() -> None:
    found = []
    for seed in range(10):
        with universe(seed, faults=FAULTS) as world:
            try:
                book(world, commit_first)
            except AssertionError:
                found.append(seed)
    assert found
    with pytest.raises(AssertionError) as told, universe(found[0], faults=FAULTS) as world:
        book(world, commit_first)
    assert "booker was killed at booker.py" in "".join(told.value.__notes__)
