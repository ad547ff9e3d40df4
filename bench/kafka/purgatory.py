"""Kafka's DelayedOperationPurgatory beside ours: the same loads in real time, and the verbs; a process each.

Rule 1: latencies, arrivals and keys are the numbers that our own load takes, and a rate is held by the same rule.
Rule 2: CPU is the whole process's: sender, answerer, its two threads, the collector, the compiler. Of the last little is
        left, as the JVM has carried `WARMING_RATE` for `WARMING_MS` before.
Rule 3: every request is over once and no timer is left, or `WrongAnswer`. Watch lists are not looked at: Kafka leaves
        completed operations in them and purges later.
"""

from __future__ import annotations

import random
from typing import Any, Final

from waterclock.bench.kafka.harness import Harness, NotMeasured
from waterclock.bench.purgatory.load import (
    BEHIND_MS,
    DRAWN_MS,
    KEYS,
    KEYS_A_REQUEST,
    TIMEOUT_MS,
    Held,
    draw_arrivals,
    draw_latencies,
)
from waterclock.errors import WrongAnswer

NAME: Final = "Kafka"
WARMING_RATE, WARMING_MS = 100_000, 8_000
LISTS: Final = 9_973
VERBS: Final = ("watch", "force-complete", "check")


class KafkaPurgatory:
    """Its loads and its verbs; what cannot be measured is None, and a note says why."""

    name = NAME

    def __init__(self, found: Harness | NotMeasured) -> None:
        self.notes: dict[str, str] = {}
        self._harness: Harness | None = None
        if isinstance(found, NotMeasured):
            self.notes[NAME] = f"not measured: {found}"
        else:
            self._harness = found

    def run(self, keys: str, p50_ms: int, p75_ms: int, rate: int, seconds: float) -> Held | None:
        """One rate of one load."""
        if (harness := self._harness) is None:
            return None
        latencies, duration_ms = draw_latencies(p50_ms, p75_ms), int(seconds * 1000)
        files = (
            harness.file("latencies", latencies),
            harness.file("keys", _keys(LISTS, seed=1)),
            harness.file("warming", draw_arrivals(WARMING_RATE, WARMING_MS)),
            harness.file("arrivals", draw_arrivals(rate, min(DRAWN_MS, duration_ms))),
        )
        reported = self._reported(lambda: harness.run("PurgatoryLoad", keys, *files, duration_ms))
        return reported and held(reported, (keys, p50_ms, p75_ms, rate, seconds), latencies)

    def verbs(self, size: int) -> dict[str, float] | None:
        """ns an operation by verb, one round."""
        if (harness := self._harness) is None:
            return None
        keys = harness.file("keys", _keys(size, seed=size))
        reported = self._reported(lambda: harness.turned("PurgatoryVerbs", keys, size))
        if reported is not None and reported["over"] != 2 * size:
            raise WrongAnswer(f"{NAME}: {2 * size} operations should be over, {reported['over']} are")
        return reported and {verb: reported[verb] for verb in VERBS}

    def _reported(self, ask: Any) -> Any:
        """What a program reported; None once one failed."""
        try:
            reported = ask()
        except NotMeasured as why:
            self._harness = None
            self.notes["Kafka, from there on"] = f"not measured: {why}"
            return None
        self.notes.setdefault(
            NAME, f"Kafka {reported['kafka']}, Java {reported['java']}, G1 as Kafka starts it; see the doubts"
        )
        return reported


def held(reported: Any, load: tuple[str, int, int, int, float], latencies: list[int]) -> Held:
    """The record of what a program reported; `WrongAnswer` where a request is not over once, or a timer is left."""
    if reported["sent"] != reported["over"] or reported["delayed"]:
        raise WrongAnswer(
            f"{NAME}: {reported['sent']} requests, {reported['over']} over, {reported['delayed']} timers left at the end"
        )
    sent = max(1, reported["sent"])
    return Held(
        NAME,
        *load,
        requests=reported["sent"],
        cpu_us=round(reported["cpu_ns"] / 1000 / sent, 2),
        held=reported["behind_ms"] < BEHIND_MS,
        behind_ms=round(reported["behind_ms"], 1),
        expired=round(reported["expired"] / sent, 4),
        expected=round(sum(latency > TIMEOUT_MS for latency in latencies) / len(latencies), 4),
        pending_most=reported["pending_most"],
        resident_mb=None,
        grown_mb=None,
    )


def _keys(lists: int, seed: int) -> list[int]:
    """So many times 3 of 100, one after the other."""
    choose = random.Random(seed)
    return [key for _ in range(lists) for key in choose.sample(range(KEYS), KEYS_A_REQUEST)]
