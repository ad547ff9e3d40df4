"""A service that keeps what its visitors do, with a time for each of them: `python -m examples.timers.sessions`.

    a visitor's pages     ExpiringMap     forgotten half an hour after the last one
    saving them           Debounce        once a visitor has been quiet for two seconds, after ten at the latest
    telling the audience  Throttle        at most once a minute for each page
    the visitors' line    IdleTimeout     hung up when nothing was read for five minutes
    renewing the licence  every, jitter   each hour, put off by up to a minute, as all services of the house do it

The story is a day of the service. It is over in no time: the whole asyncio loop is turned by hand.

Rule 1: the service reads no clock and sleeps for nothing of its own; all of its times are its timer's.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter

from waterclock import AsyncTimer, Debounce, ExpiringMap, IdleTimeout, Throttle, manual_loop

MINUTE_S, HOUR_S = 60.0, 3_600.0


class Service:
    """`done` counts what happened; `saved` is what the disk would have."""

    def __init__(self, timer: AsyncTimer, seed: int) -> None:
        self.done: Counter[str] = Counter()
        self.saved: dict[str, int] = {}
        self.lines: dict[str, IdleTimeout] = {}
        self.timer = timer
        self.pages: ExpiringMap[str, int] = ExpiringMap(timer, HOUR_S / 2, on_evict=self.forgotten)
        self.save = Debounce(timer, 2, self.write, most_s=10)
        self.tell = Throttle(timer, MINUTE_S, self.audience)
        chance = random.Random(seed)
        timer.every(HOUR_S, self.renew, jitter=lambda: chance.uniform(0, MINUTE_S))

    def visit(self, who: str, page: str) -> None:
        """Somebody reads a page."""
        self.done["visits"] += 1
        self.pages[who] = self.pages.get(who, 0) + 1
        self.save(who)
        self.tell(page)
        line = self.lines.get(who)
        if line is None:
            self.lines[who] = IdleTimeout(self.timer, 5 * MINUTE_S, self.hang_up, who)
        else:
            line.touch()

    def write(self, who: str) -> None:
        self.done["saved"] += 1
        self.saved[who] = self.pages.get(who, 0)

    def audience(self, page: str) -> None:
        self.done["told"] += 1

    def renew(self) -> None:
        self.done["renewed"] += 1

    def hang_up(self, who: str) -> None:
        self.done["hung up"] += 1
        del self.lines[who]

    def forgotten(self, who: str, pages: int, why: str) -> None:
        self.done["forgotten"] += 1


async def day(seed: int) -> Service:
    """Ann reads a page each second for a minute, at noon and in the evening; Bob reads one page."""
    with AsyncTimer() as timer:
        service = Service(timer, seed)
        for wait_s in (12 * HOUR_S, 8 * HOUR_S):
            await asyncio.sleep(wait_s - MINUTE_S)
            for _ in range(60):
                await asyncio.sleep(1)
                service.visit("Ann", "news")
        service.visit("Bob", "news")
        await asyncio.sleep(4 * HOUR_S)
        return service


def main() -> None:
    with manual_loop() as loop:
        service = loop.run_until_complete(day(seed=1))
        print(f"{loop.time() / HOUR_S:.0f} hours:", ", ".join(f"{n} {what}" for what, n in service.done.items()))
        print("on the disk:", service.saved)


if __name__ == "__main__":
    main()
