"""waterclock's array wheel behind the verbs of keepers.py. Needs NumPy, as what it is for does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from waterclock.bench.timers.keepers import HOUR_MS, Callback, Keeper
from waterclock.errors import WrongAnswer
from waterclock.wheel import ArrayWheel

BLOCK = 1_000  # timers in one array call of a churn


class ArrayKeeper(Keeper):
    """waterclock's `ArrayWheel`: no callbacks, one call for many ids. A churn goes in blocks of `BLOCK`."""

    by_array = True

    def __init__(self, callback: Callback) -> None:
        super().__init__(callback)
        self.wheel: Any = ArrayWheel()
        self.expired: tuple[Any, Any] = ((), ())

    def prepare(self, delays_ms: Sequence[int]) -> Sequence[Any]:
        return np.array(delays_ms, dtype=np.int64)  # type: ignore[return-value]

    def add_all(self, delays: Any) -> Any:
        return self.wheel.schedule(delays + self.wheel.now)

    def cancel_all(self, handles: Any) -> None:
        self.wheel.cancel(handles)

    def churn(self, handles: Any, delays: Any) -> None:
        for start in range(0, len(delays), BLOCK):
            end = start + BLOCK
            self.wheel.cancel(handles[start:end])
            handles[start:end] = self.wheel.schedule(delays[start:end] + self.wheel.now)

    def expire(self) -> None:
        self.expired = self.wheel.advance(self.wheel.now + 2 * HOUR_MS)

    def ran(self) -> int:
        (ids, deadlines), self.expired = self.expired, ((), ())
        if len(ids) != len(deadlines) or (deadlines[1:] < deadlines[:-1]).any():
            raise WrongAnswer("ArrayWheel: what expired is not in the order of deadlines")
        return len(ids)

    def close(self) -> None:
        assert len(self.wheel) == 0

    def shuffle(self, handles: Any, seed: int) -> None:
        np.random.default_rng(seed).shuffle(handles)

    def order(self, delays_ms: Sequence[int], cancelled: Sequence[int]) -> list[int]:
        ids = self.add_all(self.prepare(delays_ms))
        number_of = {timer: number for number, timer in enumerate(ids.tolist())}
        self.wheel.cancel(ids[np.array(cancelled)])
        self.expire()
        return [number_of[timer] for timer in self.expired[0].tolist()]
