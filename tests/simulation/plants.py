"""Bugs planted in the product's source as it is imported: what the simulation has to find. `--plant NAME`, `ledger`.

They stand in plants.toml; a test sees that each still applies to the source of today.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, NamedTuple

from tests.simulation.planting import Edit

KINDS = {"usual": "one", "mended": "one", "capture": "capture", "relay": "relay", "rules": "rules", "local": "local"}
"""Of universes, by the group that a plant is in."""


class Plant(NamedTuple):
    """`kinds`: of universes (kinds.py), by turns. `workloads`: what may show it; none: whatever a seed draws."""

    edits: tuple[Edit, ...]
    kinds: tuple[str, ...]
    workloads: tuple[str, ...] = ()


def _plant(given: dict[str, Any], kind: str) -> Plant:
    edits = tuple(Edit(f"waterclock.{module}", old, new) for module, old, new in given["edits"])
    return Plant(edits, tuple(given.get("kinds", (kind,))), tuple(given.get("workloads", ())))


_GROUPS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())
MENDED = _GROUPS["mended"].keys()
PLANTS = {name: _plant(one, KINDS[group]) for group, some in _GROUPS.items() for name, one in some.items()}
