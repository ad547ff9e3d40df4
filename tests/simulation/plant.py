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


def one(module: str, old: str, new: str = "", *kinds: str, workloads: tuple[str, ...] = ()) -> Plant:
    """A bug of one place in the broker."""
    return Plant((Edit(BROKER + module, old, new),), kinds or ("one",), workloads)


def shown_by(plants: dict[str, Plant], workloads: dict[str, tuple[str, ...]]) -> dict[str, Plant]:
    """The plants, each with what may show it where that is said."""
    return {name: plant._replace(workloads=workloads.get(name, plant.workloads)) for name, plant in plants.items()}
