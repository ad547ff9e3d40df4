"""Each kind of universe is what its name says, and a plant names kinds that there are."""

from __future__ import annotations

import pytest

from tests.simulation import kinds, plan
from tests.simulation.clients import WORKLOADS
from tests.simulation.kinds import KINDS
from tests.simulation.plants import PLANTS


def test_a_seed_and_its_kind_repeat_a_universe() -> None:
    turns = [kinds.of(seed, ("one", "pair")) for seed in range(4)]
    assert turns == ["one", "pair", "one", "pair"]
    assert kinds.draw(5, "pair") == kinds.draw(5, "pair")


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_is_drawn_as_its_name_says(kind: str) -> None:
    drawn = [kinds.draw(seed, kind) for seed in range(20)]
    assert {one.pair for one in drawn} == {kind == "pair"}
    assert {one.damaged for one in drawn} == {"damaged" in KINDS[kind]}
    assert (kind == "relay") == ({one.workloads for one in drawn} == {("relay",)})


def test_a_workload_that_comes_by_its_name_alone_is_drawn_by_no_seed() -> None:
    """Where a seed drew none it had all: two pipelines wrote to one topic, and one of them was refused, as it should be."""
    seeds = (2_769_000_046, *range(200))
    assert {"local" in plan.draw(seed, pair=False, seconds=8).workloads for seed in seeds} == {False}


def test_a_plant_names_kinds_and_workloads_that_there_are() -> None:
    names = {one.name for one in WORKLOADS}
    for name, plant in PLANTS.items():
        assert plant.kinds, name
        assert {*plant.kinds} <= KINDS.keys(), name
        assert {*plant.workloads} <= names, name
