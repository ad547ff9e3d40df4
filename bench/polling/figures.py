"""What is made of the moments at which tasks were had: lateness, throughput, and whether each was had once.

Rule 1: a task that was lost, had twice or early, or that nobody asked for, ends the run with `WrongAnswer`.
Rule 2: a task is late by what lies between its due moment and the moment at which somebody had it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import NamedTuple

from waterclock.errors import WrongAnswer

Given = Sequence[tuple[int, int]]  # a task, and the microsecond at which it was had


def check(who: str, dues: Mapping[int, int], given: Given) -> None:
    """Each task once, none early, and no other.

    >>> check("somebody", {1: 500, 2: 600}, [(2, 600), (1, 650)])
    """
    had = [number for number, _ in given]
    if len(set(had)) < len(had):
        raise WrongAnswer(f"{who}: {len(had) - len(set(had))} tasks were had twice, of {len(dues)}")
    if missing := dues.keys() - set(had):
        raise WrongAnswer(f"{who}: {len(missing)} tasks were lost, of {len(dues)}")
    if strange := set(had) - dues.keys():
        raise WrongAnswer(f"{who}: {len(strange)} tasks were had that are not due for long")
    if early := [number for number, at_us in given if at_us < dues[number]]:
        raise WrongAnswer(f"{who}: {len(early)} tasks were had before they were due, of {len(dues)}")


def percentile(values: Sequence[float], share: float) -> float:
    """The value that `share` of all do not exceed.

    >>> percentile([3.0, 1.0, 2.0], 0.5)
    2.0
    """
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def lateness(dues: Mapping[int, int], given: Given) -> dict[str, float]:
    """Milliseconds after they were due: half of all, 99 of 100, the latest.

    >>> lateness({1: 0, 2: 0, 3: 0}, [(1, 1000), (2, 3000), (3, 2000), (9, 5)])
    {'tasks': 3, 'p50_ms': 2.0, 'p99_ms': 3.0, 'max_ms': 3.0}
    """
    ms = [(at_us - dues[number]) / 1e3 for number, at_us in given if number in dues]
    return {"tasks": len(ms), "p50_ms": percentile(ms, 0.5), "p99_ms": percentile(ms, 0.99), "max_ms": max(ms)}


class Burst(NamedTuple):
    """Tasks with their due moments, and the moment from which all could be had."""

    dues: Mapping[int, int]
    from_us: int


def throughput(rounds: Sequence[Burst], given: Given) -> dict[str, float]:
    """Tasks a second from the moment at which all of a round could be had to the last one that was; a median of rounds.

    >>> rounds = [Burst({1: 0, 2: 0}, 0), Burst({3: 0, 4: 0}, 250_000)]
    >>> throughput(rounds, [(1, 500_000), (2, 1_000_000), (3, 300_000), (4, 750_000)])
    {'tasks': 2, 'a_second': 3.0, 'all_ms': 750.0}
    """
    at_us = dict(given)
    took_s = [(max(at_us[number] for number in one.dues) - one.from_us) / 1e6 for one in rounds]
    tasks = len(rounds[0].dues)
    return {
        "tasks": tasks,
        "a_second": median(tasks / one_s for one_s in took_s),
        "all_ms": median(one_s * 1e3 for one_s in took_s),
    }


def idle(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    """What looking costs while nothing is due: questions a second, microseconds of one, shares of a core.

    >>> some = {"at_s": 1.0, "queries": 0, "cpu_ns": 0, "server_cpu_s": 1.0, "empty_us": 999.0}
    >>> idle(some, {"at_s": 3.0, "queries": 20, "cpu_ns": 0, "server_cpu_s": 1.5, "empty_us": 80.0})
    {'queries_a_second': 10.0, 'empty_us': 80.0, 'server_cpu': 0.25, 'workers_cpu': 0.0}
    """
    took_s = after["at_s"] - before["at_s"]
    return {
        "queries_a_second": (after["queries"] - before["queries"]) / took_s,
        "empty_us": after["empty_us"],
        "server_cpu": (after["server_cpu_s"] - before["server_cpu_s"]) / took_s,
        "workers_cpu": (after["cpu_ns"] - before["cpu_ns"]) / 1e9 / took_s,
    }
