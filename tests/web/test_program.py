"""`web.serve`: a program's own timers and purgatories on a live page, in one line."""

from __future__ import annotations

import asyncio
import json
import re
import threading
import time

import pytest

from tests.browser import chromium, window
from tests.web.reading import get
from waterclock import AsyncTimer, DelayedOperation, ManualClock, Purgatory, Timer, TimingWheel, web


def never() -> DelayedOperation:
    """Waits for two seconds, whatever comes."""
    return DelayedOperation(lambda op: False, print, 2)


def test_timers_and_purgatories_are_shown_by_their_names_or_their_kinds(capsys: pytest.CaptureFixture[str]) -> None:
    timer, other = Timer(clock=ManualClock()), Timer(clock=ManualClock())
    purgatory = Purgatory("waits", timer)
    timer.call_later(0.003, print)
    for key in ("a", "b", "b"):
        purgatory.try_complete_else_watch(never(), [key])
    with web.serve(timer, other, acks=purgatory) as server:
        assert f"console at {server.url}/console/\n" == capsys.readouterr().err
        _, statistics, _ = get(f"{server.url}/statistics.json")
        _, dials, _ = get(f"{server.url}/dials.json")
    found = json.loads(statistics)
    assert found["command"] == "program"
    acks = {"delayed": 3, "completed": 0, "expired": 0, "cancelled": 0, "fullest": {"b": 2, "a": 1}}
    assert found["statistics"]["purgatories"] == {"acks": acks}
    assert {name: each["pending"] for name, each in found["statistics"]["timers"].items()} == {"timer": 4, "timer 2": 0}
    assert json.loads(dials)["statistics"]["timer"]["levels"] == [{"3": 1}, {"7": 3}]


def test_a_timer_of_a_loop_is_asked_in_its_loop_and_a_busy_loop_keeps_nobody_waiting() -> None:
    async def main() -> None:
        async with AsyncTimer() as timer:
            timer.call_later(100, print)
            with web.serve(timer) as server:
                url = f"{server.url}/statistics.json"
                _, page, _ = await asyncio.to_thread(get, url)
                assert json.loads(page)["statistics"]["timers"]["asynctimer"]["pending"] == 1
                timer.call_later(100, print)
                assert json.loads(page)["statistics"]["age_s"] == 0
                time.sleep(1)
                _, page, _ = get(url)  # in the loop's own thread, which can answer nothing meanwhile
                assert json.loads(page)["statistics"]["timers"]["asynctimer"]["pending"] == 1
                assert 1 <= json.loads(page)["statistics"]["age_s"] < 20
                _, page, _ = await asyncio.to_thread(get, url)
                assert json.loads(page)["statistics"]["age_s"] == 0

    asyncio.run(main())


def test_what_cannot_be_shown_is_refused() -> None:
    with pytest.raises(TypeError, match="timingwheel must be a Timer, an AsyncTimer or a Purgatory"):
        web.serve(TimingWheel())
    with pytest.raises(TypeError, match="mine belongs to an asyncio loop: call serve in a coroutine"):
        web.serve(mine=AsyncTimer(clock=ManualClock()))


@pytest.mark.browser
def test_a_programs_wheel_is_on_the_page() -> None:
    timer = Timer(clock=ManualClock())
    purgatory = Purgatory("waits", timer)
    purgatory.try_complete_else_watch(never(), ["orders"])
    with chromium() as browser, web.serve(timer, acks=purgatory) as server:
        page, wrong = window(browser, 1280)
        page.goto(f"{server.url}/console/")
        page.wait_for_selector("#dial[data-levels='[{},{\"7\":1}]']", state="attached")
        assert "orders: 1" in page.locator("[data-panel=purgatories]").inner_text()
        assert page.locator("[data-panel=timers] td").first.inner_text() == "timer"
        assert wrong == []
        page.close()


@pytest.mark.browser
def test_how_old_the_figures_of_a_busy_loop_are_is_on_the_page() -> None:
    asked, found = threading.Event(), threading.Event()

    async def main() -> None:
        async with AsyncTimer() as timer:
            with web.serve(timer) as server:
                looking = asyncio.get_running_loop().run_in_executor(None, look, server.url)
                while not asked.is_set():
                    await asyncio.sleep(0.05)
                assert found.wait(40)  # the loop is busy
                await looking

    def look(url: str) -> None:
        with chromium() as browser:
            assert json.loads(get(f"{url}/statistics.json")[1])["statistics"]["age_s"] == 0
            asked.set()
            page, wrong = window(browser, 1280)
            page.goto(f"{url}/console/")
            told = re.compile(r"its loop is busy: this is of \d+ s ago")
            page.locator("[data-panel=timers] h2").get_by_text(told).wait_for()
            found.set()
            page.locator("[data-panel=timers] .chip.bad").wait_for(state="detached")
            assert wrong == []

    asyncio.run(main())
    assert found.is_set()
