"""What a broker's own process sets of Python's interpreter, so that nobody waits long for it: its threads and its garbage.

Threads: while the loop works through what clients sent in bulk, or upkeep compacts, the end of a flush waits for the
interpreter several times. At Python's 5 ms each that is more than all else that a request takes. Always switching so soon
costs a fifth of the throughput of a hundred producers; so it is done while there is such work.

Garbage: a full collection looks at every object there is, and all threads wait for it: a tenth of a second with ten
thousand topics or fifty thousand groups, at each growth by a quarter. What a broker keeps, it keeps for long.

Rule 1: nothing is changed before `own_process` and `pause_little`: whoever has a `Broker` in a process of his own has his
    own settings too.
Rule 2: what has survived a full collection is not looked at again: it is freed when nothing refers to it, as nearly
    everything is. Only a circle of objects that dies after that stays; the broker makes none of what comes and goes
    (`test_connections_and_requests_leave_no_circles`).
Rule 3: so a full collection is short, and is made after two of the middle generation instead of ten: ten thousand topics
    that are made at once are then looked at in parts.
"""

from __future__ import annotations

import gc
import sys
from typing import Any, Final

QUICK_S: Final = 0.0001
FULL_AFTER: Final = 2  # collections of the middle generation
_usual_s: float | None = None
_busy: set[str] = set()


def own_process() -> None:
    """From now on threads may switch sooner in this process."""
    global _usual_s
    _usual_s = sys.getswitchinterval()


def pause_little() -> None:
    """From now on collections of garbage are short in this process."""
    gc.freeze()
    young, middle, _ = gc.get_threshold()
    gc.set_threshold(young, middle, FULL_AFTER)
    if _keep_survivors not in gc.callbacks:
        gc.callbacks.append(_keep_survivors)


def _keep_survivors(phase: str, collection: dict[str, Any]) -> None:
    if phase == "stop" and collection["generation"] == 2:
        gc.freeze()


def begins(who: str) -> None:
    """Work in bulk begins."""
    _busy.add(who)
    if _usual_s is not None:
        sys.setswitchinterval(QUICK_S)


def ends(who: str) -> None:
    """It is over; if nobody else is at it, threads switch as usual."""
    _busy.discard(who)
    if _usual_s is not None and not _busy:
        sys.setswitchinterval(_usual_s)
