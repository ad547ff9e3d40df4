"""Preloaded where processes of the attack are forked off: all is imported, and what the first use loads is there.

Rule 1: only there, where attack.py has set FORKS: a universe changes the process that it runs in, for good.
"""

from __future__ import annotations

import os

from tests.simulation import planting

FORKS = "SIMULATION_FORKS"
ROOMS = ("capture", "rules", "relay")


def use() -> None:
    """A pair, and all rooms on one broker."""
    planting.begin()
    from tests.simulation import plan, universe
    from waterclock.simulation import install

    for one in (plan.draw(0, pair=True, seconds=0.5), plan.draw(0, seconds=0.5, workloads=ROOMS)):
        universe.run(one)
    install.settle()


if FORKS in os.environ:
    use()
