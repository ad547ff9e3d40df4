"""What a relay is told at its start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from waterclock.relay.upkeep.upkeep import LAP_BYTES


class StandsBy(StrEnum):
    """For which of the partitions that others own a relay keeps files.

    None between the two: Kafka's assignors give the partitions of a dead member to any other one, not to the one that has
    the files.
    """

    ALL = "all"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class RelayOptions:
    """`name`: a static member's, whose partitions wait for it while it restarts. `make_targets`: a target that is not there
    is made, as Kafka makes topics by default. `hides_values`: the statistics show nobody's values and keys."""

    servers: str
    topic: str
    folder: Path
    group: str
    partitions: int = 3
    name: str | None = None
    settings: Mapping[str, Any] | None = None
    lap_bytes: int = LAP_BYTES
    standby: StandsBy = StandsBy.ALL
    make_targets: bool = False
    hides_values: bool = False
