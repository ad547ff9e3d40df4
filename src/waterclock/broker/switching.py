"""How soon a thread that computes lets another one have the interpreter, in a broker's own process.

While the loop works through what clients sent in bulk, or upkeep compacts, the end of a flush waits for the interpreter
several times: at Python's 5 ms each that is more than all else that a request takes. Always switching so soon costs a fifth
of the throughput of a hundred producers; so it is done while there is such work.

Rule 1: nothing is changed before `own_process`: whoever has a `Broker` in a process of his own has his own setting too.
"""

from __future__ import annotations

import sys
from typing import Final

QUICK_S: Final = 0.0001
_usual_s: float | None = None
_busy: set[str] = set()


def own_process() -> None:
    """From now on, in this process."""
    global _usual_s
    _usual_s = sys.getswitchinterval()


def begins(who: str) -> None:
    """Work in bulk begins."""
    _busy.add(who)
    if _usual_s is not None:
        sys.setswitchinterval(QUICK_S)


def ends(who: str) -> None:
    """It is over; where nobody else is at it, threads switch as usual."""
    _busy.discard(who)
    if _usual_s is not None and not _busy:
        sys.setswitchinterval(_usual_s)
