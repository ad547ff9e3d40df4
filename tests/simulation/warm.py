"""Preloaded where processes of the attack are forked off: all is imported, and what the first use loads is there."""

from __future__ import annotations

from tests.simulation import planting

ROOMS = ("capture", "rules", "relay")


def use() -> None:
    """A pair, and all rooms on one broker."""
    planting.begin()
    from tests.simulation import plan, universe
    from waterclock.simulation import install

    for one in (plan.draw(0, pair=True, seconds=0.5), plan.draw(0, seconds=0.5, workloads=ROOMS)):
        universe.run(one)
    install.settle()


use()
