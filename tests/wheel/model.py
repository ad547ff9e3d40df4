"""The dumb wheel: a list, sorted when asked. What the real ones must agree with."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class ModelTimer:
    name: int
    deadline: int
    tick: int
    sequence: int


class ModelWheel:
    """Timers in a plain list; the tick of one is its deadline rounded, or the present one when it passed."""

    def __init__(self, tick: int, start: int, rounding: str) -> None:
        self.tick = tick
        self.now = start
        self.late = rounding == "late"
        self.waiting: list[ModelTimer] = []
        self.sequence = 0

    def put(self, name: int, delay: int) -> None:
        deadline = self.now + delay
        up = -(-deadline // self.tick) if self.late else deadline // self.tick
        tick = self.now // self.tick if delay <= 0 else up
        self.waiting.append(ModelTimer(name, deadline, tick, self.sequence))
        self.sequence += 1

    def remove(self, name: int) -> bool:
        before = len(self.waiting)
        self.waiting = [timer for timer in self.waiting if timer.name != name]
        return len(self.waiting) < before

    def advance(self, now: int, limit: int | None = None) -> list[int]:
        if now < self.now:
            return []
        self.now = now
        due = sorted((t.tick, t.sequence, t.name) for t in self.waiting if t.tick <= now // self.tick)[:limit]
        for _, _, name in due:
            self.remove(name)
        return [name for _, _, name in due]

    def next_deadline(self) -> int | None:
        return max(self.now, min(t.tick for t in self.waiting) * self.tick) if self.waiting else None
