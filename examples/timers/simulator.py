"""A queue, one clerk, impatient customers, simulated from event to event: `python -m examples.timers.simulator [SEED]`.

Time goes from one deadline of the wheel to the next; hours without customers cost nothing. Each customer brings a patience,
which is cancelled for nearly all of them when their turn comes: the load that a wheel is made for.

Rule 1: time is whole microseconds. The seed is printed, and the same seed is the same day.
Rule 2: what is measured is checked by Little's law, exactly: customers in the shop summed over time are their times summed.
"""

from __future__ import annotations

import random
import sys
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from waterclock import TimingWheel
from waterclock.wheel import TimerHandle

SECOND = 1_000_000
DAY = 86_400 * SECOND


@dataclass(slots=True)
class Customer:
    """When one came, and the timer of the patience that is left."""

    came: int
    patience: TimerHandle | None = None


@dataclass(frozen=True, slots=True)
class Day:
    """What came of a day; times in microseconds."""

    served: int
    left: int  # out of patience
    inside_summed: int  # customers in the shop, summed over time
    times_summed: int  # of each customer from the door to the door
    longest_queue: int


class Shop:
    """One clerk; customers come, wait, are served or leave."""

    def __init__(self, seed: int, every_s: float, served_in_s: float, patience_s: float) -> None:
        self.wheel = TimingWheel()
        self._random = random.Random(seed)
        self._every_s = every_s
        self._served_in_s = served_in_s
        self._patience_s = patience_s
        self._queue: deque[Customer] = deque()
        self._clerk_is_free = True
        self._served = self._left = self._longest = 0
        self._inside = self._inside_summed = self._times_summed = self._changed_at = 0

    def day(self, length: int = DAY) -> Day:
        """Open the door for so long, then serve who is inside."""
        self._next(self._every_s, self._comes, length)
        while (due := self.wheel.next_deadline()) is not None:
            self.wheel.advance(due)
        return Day(self._served, self._left, self._inside_summed, self._times_summed, self._longest)

    def _next(self, mean_s: float, do: Callable[..., None], argument: object) -> TimerHandle:
        return self.wheel.add(1 + round(self._random.expovariate(1 / mean_s) * SECOND), do, argument)

    def _comes(self, length: int) -> None:
        if self.wheel.now >= length:
            return
        self._count(+1)
        customer = Customer(self.wheel.now)
        customer.patience = self._next(self._patience_s, self._leaves, customer)
        self._queue.append(customer)
        self._longest = max(self._longest, len(self._queue))
        self._serve()
        self._next(self._every_s, self._comes, length)

    def _serve(self) -> None:
        if self._clerk_is_free and self._queue:
            self._clerk_is_free = False
            customer = self._queue.popleft()
            assert customer.patience is not None
            customer.patience.cancel()
            self._next(self._served_in_s, self._is_served, customer)

    def _is_served(self, customer: Customer) -> None:
        self._served += 1
        self._goes(customer)
        self._clerk_is_free = True
        self._serve()

    def _leaves(self, customer: Customer) -> None:
        self._queue.remove(customer)
        self._left += 1
        self._goes(customer)

    def _goes(self, customer: Customer) -> None:
        self._count(-1)
        self._times_summed += self.wheel.now - customer.came

    def _count(self, change: int) -> None:
        self._inside_summed += self._inside * (self.wheel.now - self._changed_at)
        self._changed_at = self.wheel.now
        self._inside += change


def main(arguments: list[str]) -> None:
    seed = int(arguments[0]) if arguments else 7
    day = Shop(seed, every_s=60, served_in_s=50, patience_s=600).day()
    everybody = day.served + day.left
    print(f"seed {seed}: {everybody} customers, {day.served} served, {day.left} lost their patience")
    print(
        f"in the shop for {day.times_summed / everybody / SECOND:.0f} s in the middle, {day.longest_queue} waiting at most"
    )
    print(f"Little's law: {day.inside_summed} = {day.times_summed}")


if __name__ == "__main__":
    main(sys.argv[1:])
