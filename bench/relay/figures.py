"""What is made of the moments at which messages were had.

Rule 1: a message that was lost, had twice or early, or that nobody put in, ends the measurement with `WrongAnswer`.
Rule 2: a message is late by what lies between its due moment and the moment at which the taker had it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from waterclock.bench.polling.figures import percentile
from waterclock.bench.relay.putting import Load
from waterclock.errors import WrongAnswer

Figures = dict[str, Any]


def check(who: str, load: Load, had: Any) -> None:
    """Each once, none early, and no other.

    >>> check("somebody", Load(5, 2, 100), np.array([[6, 100_000, 0], [5, 100_500, 0]]))
    """
    numbers, times = np.unique(had[:, 0], return_counts=True)
    wanted = np.arange(load.first, load.first + load.count)
    counts = {
        "had twice": int((times - 1).sum()),
        "lost": len(np.setdiff1d(wanted, numbers)),
        "had that nobody put in": len(np.setdiff1d(numbers, wanted)),
    }
    counts["had early"] = 0 if any(counts.values()) else int((late_us(load, had) < 0).sum())
    if wrong := [f"{count} messages were {what}" for what, count in counts.items() if count]:
        raise WrongAnswer(f"{who}: {', '.join(wrong)}, of {load.count}")


def late_us(load: Load, had: Any) -> Any:
    """Microseconds after they were due."""
    dues_us = np.array(load.dues_ms(), "i8") * 1000
    return had[:, 1] - dues_us[had[:, 0] - load.first]


def lateness(load: Load, had: Any) -> Figures:
    """Milliseconds: half of all, 99 of 100, the latest.

    >>> lateness(Load(0, 2, 100), np.array([[0, 101_000, 0], [1, 103_000, 0]]))
    {'messages': 2, 'p50_ms': 3.0, 'p99_ms': 3.0, 'max_ms': 3.0}
    """
    ms = late_us(load, had) / 1000
    p50, p99 = (percentile(ms.tolist(), share) for share in (0.5, 0.99))
    return {"messages": len(ms), "p50_ms": p50, "p99_ms": p99, "max_ms": float(ms.max())}


def burst(load: Load, had: Any, ready_us: int) -> Figures:
    """From the moment that all are due at, and are in, to the last one in somebody's hands.

    >>> burst(Load(0, 2, 100), np.array([[0, 101_000, 0], [1, 600_000, 0]]), 0)
    {'messages': 2, 'all_ms': 500.0, 'per_s': 4.0}
    """
    ms = (int(had[:, 1].max()) - max(load.due_ms * 1000, ready_us)) / 1000
    return {"messages": load.count, "all_ms": ms, "per_s": load.count * 1000 / ms}


def gap_ms(load: Load, had: Any, killed_us: int) -> float:
    """From a kill to the first message due after it, in the partition that was the last to have one.

    >>> gap_ms(Load(0, 3, 100, 30), np.array([[0, 100_000, 0], [1, 900_000, 0], [2, 400_000, 1]]), 105_000)
    795.0
    """
    after = had[(had[:, 1] - late_us(load, had)) > killed_us]
    firsts = [int(after[after[:, 2] == number, 1].min()) for number in np.unique(after[:, 2])]
    return (max(firsts) - killed_us) / 1000
