"""The memory of a burst goes back though everybody sleeps (src/waterclock/timer/memory.py)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.wheel.test_packing import in_its_own_process
from waterclock import wheel

CANCELLED = """
import asyncio, gc, sys, time
from pathlib import Path
from waterclock import AsyncTimer, Timer
def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
async def burst():
    timer = {"asyncio": AsyncTimer, "thread": Timer, "closed": Timer}[sys.argv[1]]()
    kept = timer.call_later(3600, int)  # until which the driver sleeps
    before = resident()
    handles = [timer.call_later(1000 + n % 1000, int) for n in range(300_000)]
    grown = resident() - before
    for handle in handles:
        handle.cancel()
    del handle, handles
    gc.collect()
    if sys.argv[1] == "closed":
        timer.close()
    woken = timer.statistics().wakeups
    deadline = time.monotonic() + 60
    while resident() - before > grown / 2 and time.monotonic() < deadline:
        time.sleep(0.05)  # the loop has no turn either
    assert grown > 20_000_000, grown
    assert resident() - before <= grown / 2, (grown, resident() - before)
    assert timer.statistics().wakeups == woken  # no driver was woken for it
asyncio.run(burst())
"""


@pytest.mark.memory
@pytest.mark.skipif(not wheel.COMPILED, reason="the reserve is the compiled wheel's")
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads the resident memory from /proc")
@pytest.mark.parametrize("driver", ["asyncio", "thread", "closed"])
def test_the_memory_of_a_burst_that_was_cancelled_goes_back_and_nobody_is_woken(driver: str) -> None:
    assert in_its_own_process(CANCELLED, driver) == (0, "")
