"""The console's page under load: its frames a second with 100,000 pending, and whether it grows while it stands open.

    python bench/console_page.py [--minutes 60] [--faster 4]      needs playwright and chromium

A timer has 100,000 pending within four hours of its clock, which turns ten times as quick as ours: buckets cascade all the
time. A relay's statistics beside it have 30 topics, 48 hours of each, and figures that change each second. Frames are those
that the browser gives (requestAnimationFrame) for 10 seconds, which hang on the machine; beside them stands what the page's
thread computes, which does not. `--faster`: news come so many times as often as the console sends them. The heap is
measured behind a forced collection.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import threading
import time
from typing import Any, Final

from playwright.sync_api import sync_playwright

from waterclock import ManualClock, Timer
from waterclock.relay.statistics import (
    DueMessage,
    DueStatistics,
    LetterStatistics,
    PartitionStatistics,
    RelayStatistics,
    SpanStatistics,
)
from waterclock.web import server as web_server
from waterclock.web.console.console import Console
from waterclock.web.console.sources import OwnProcess
from waterclock.web.dial import dial_of

PENDING: Final = 100_000
HOUR_MS: Final = 3_600_000
FRAMES: Final = """() => new Promise(done => {
    const began = performance.now(); let frames = 0, last = began, longest = 0;
    const step = now => { frames++; longest = Math.max(longest, now - last); last = now;
        now - began < 10000 ? requestAnimationFrame(step) : done([frames * 1000 / (now - began), longest]); };
    requestAnimationFrame(step); })"""


class Load:
    """A timer that is always full, and a relay's statistics that change."""

    def __init__(self) -> None:
        self.timer = Timer(clock=ManualClock())
        self._luck, self._count = random.Random(7), 0
        self._lock = threading.Lock()
        self._fill()

    def _fill(self) -> None:
        for _ in range(PENDING - self.timer.statistics().pending):
            self.timer.call_later(self._luck.random() * 4 * 3_600, int)

    def turn(self) -> None:
        """For ever, a tenth of a second as one."""
        while True:
            time.sleep(0.1)
            with self._lock:
                self.timer.advance(1)
                self._fill()

    def dials(self) -> dict[str, Any]:
        with self._lock:
            return {"delays-0": dial_of(self.timer)}

    def statistics(self) -> RelayStatistics:
        self._count += 1
        now_ms = time.time_ns() // 1_000_000
        hour = now_ms - now_ms % HOUR_MS
        spans = tuple(
            SpanStatistics(
                hour + n * HOUR_MS, hour + (n + 1) * HOUR_MS, f"topic-{topic:02}",
                n * topic % 40 if n else self._luck.randrange(40),
            )
            for n in range(48) for topic in range(30)
        )  # fmt: skip
        letters = tuple(LetterStatistics(f"delays-0-{self._count + n}", now_ms, "no due time", "x") for n in range(20))
        parts = {0: PartitionStatistics(PENDING, PENDING, now_ms, self._count, 10, True)}
        return RelayStatistics(
            "g", "delays", self._count, self._count, partitions=parts, partitions_of_topic=1, spans=spans, letters=letters,
            lateness_ms={"1": self._count, "5": 7, "more": 0}, fullest={f"key-{self._count}": 3},
        )  # fmt: skip

    def due(self, most: str) -> DueStatistics:
        now_ms = time.time_ns() // 1_000_000
        return DueStatistics(
            tuple(
                DueMessage(f"delays-0-{n}", now_ms + n, "topic-00", f"cart-{self._count + n}") for n in range(int(most))
            )
        )


def busy_s(session: Any) -> float:
    """What the page's thread has computed so far, by its own clock: how busy the machine is does not count."""
    found = {one["name"]: one["value"] for one in session.send("Performance.getMetrics")["metrics"]}
    return float(found["TaskDuration"])


def weight(session: Any) -> str:
    """What the page holds, behind a collection."""
    for _ in range(3):
        session.send("HeapProfiler.collectGarbage")
    used, counts = session.send("Runtime.getHeapUsage")["usedSize"], session.send("Memory.getDOMCounters")
    return f"{used / 1e6:8.2f} MB{counts['nodes']:8} nodes{counts['jsEventListeners']:6} listeners"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--faster", type=float, default=4)
    given = parser.parse_args()
    load = Load()
    threading.Thread(target=load.turn, daemon=True).start()
    console = Console([OwnProcess("relay", load.statistics, load.dials, {"/due/": load.due})])
    with web_server.PageServer({}, 0, console.below, console.streams) as server, sync_playwright() as running:
        chrome = running.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = chrome.new_page(viewport={"width": 1280, "height": 900})
        page.goto(f"{server.url}/console/")
        page.wait_for_selector("[data-panel=letters] td")
        page.wait_for_timeout(3_000)
        session = page.context.new_cdp_session(page)
        session.send("Performance.enable", {"timeDomain": "threadTicks"})
        before = busy_s(session)
        page.wait_for_timeout(10_000)
        spent_ms = 100 * (busy_s(session) - before)
        print(f"{spent_ms:5.0f} ms of CPU a second by the page's thread", flush=True)
        for _ in range(3):
            loaded = os.getloadavg()[0]
            rate, longest = page.evaluate(FRAMES)
            print(f"{rate:5.1f} frames/s, the longest gap {longest:4.0f} ms; load {loaded:.1f}", flush=True)
        web_server.EVERY_S = web_server.EVERY_S / given.faster  # type: ignore[misc]
        began = time.monotonic()
        while True:
            minutes = (time.monotonic() - began) / 60
            print(f"{minutes:5.1f} min  {weight(session)}", flush=True)
            if minutes >= given.minutes:
                break
            page.wait_for_timeout(min(300, 60 * (given.minutes - minutes) + 1) * 1_000)
        chrome.close()


if __name__ == "__main__":
    main()
