"""What a plant is: a bug that is put into the source as it is imported, and the kinds of universes that may show it."""

from __future__ import annotations

from typing import NamedTuple

from tests.simulation.planting import Edit

BROKER = "waterclock.broker."


class Plant(NamedTuple):
    """`kinds`: of universes (kinds.py), by turns. `workloads`: what may show it; none: whatever a seed draws."""

    edits: tuple[Edit, ...]
    kinds: tuple[str, ...] = ("one",)
    workloads: tuple[str, ...] = ()


def one(module: str, old: str, new: str = "", *kinds: str) -> Plant:
    """A bug of one place in the broker."""
    return Plant((Edit(BROKER + module, old, new),), kinds or ("one",))
