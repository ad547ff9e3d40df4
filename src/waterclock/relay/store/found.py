"""What is found under an id."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from waterclock.relay.store.ids import Ids
from waterclock.relay.store.origins import Origins, State
from waterclock.relay.store.rows import Array
from waterclock.relay.store.runs import TARGET_BITS

_STATES: Final = {int(state): state for state in State}


class Found(NamedTuple):
    """A message that bears an id."""

    origin: int
    due: int  # ms since the epoch
    target: str
    state: State


def messages_of(wanted: Array, ids: Ids, origins: Origins, targets: Sequence[str], now_ms: int) -> list[list[Found]]:
    """The messages that bear each of the wanted ids (`hashes`), by origin."""
    found: list[list[Found]] = [[] for _ in range(len(wanted))]
    for which, entries in ids.find(wanted, now_ms):
        values = np.minimum(origins.values(entries["origin"]), State.PENDING)
        dues, numbers = entries["due_target"] >> TARGET_BITS, entries["due_target"] % (1 << TARGET_BITS)
        columns = (column.tolist() for column in (which, entries["origin"], dues, numbers, values))
        for n, origin, due, number, value in zip(*columns, strict=True):
            if value:  # one whose append failed half way is not known
                found[n].append(Found(origin, due, targets[number], _STATES[value]))
    return found
