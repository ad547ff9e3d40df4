"""The garbage collector in a broker's own process: short pauses, however much there is in memory.

A full collection looks at every object there is, and all threads wait for it: a tenth of a second with ten thousand topics
or fifty thousand groups, at each growth by a quarter. What a broker keeps, it keeps for long.

Rule 1: what has survived a full collection is not looked at again: it is freed when nothing refers to it, as nearly
    everything is. Only a circle of objects that dies after that stays; the broker makes none of what comes and goes
    (`test_connections_and_requests_leave_no_circles`).
Rule 2: so a full collection is short, and is made after two of the middle generation instead of ten: ten thousand topics
    that are made at once are then looked at in parts.
Rule 3: for a process that does nothing else: whoever has a `Broker` in a process of his own has a collector of his own too.
"""

from __future__ import annotations

import gc
from typing import Any, Final

FULL_AFTER: Final = 2  # collections of the middle generation


def pause_little() -> None:
    """From now on, in this process."""
    gc.freeze()
    young, middle, _ = gc.get_threshold()
    gc.set_threshold(young, middle, FULL_AFTER)
    if _keep_survivors not in gc.callbacks:
        gc.callbacks.append(_keep_survivors)


def _keep_survivors(phase: str, collection: dict[str, Any]) -> None:
    if phase == "stop" and collection["generation"] == 2:
        gc.freeze()
