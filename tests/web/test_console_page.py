"""The console in a browser: what it shows is what the statistics say, it moves, and it lives with what goes and comes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from tests.browser import chromium, window
from waterclock import ManualClock, Timer
from waterclock.broker import Broker
from waterclock.broker.statistics import GroupLag
from waterclock.cdc.statistics import CaptureStatistics
from waterclock.errors import UsageError
from waterclock.letters import LetterStatistics
from waterclock.relay.statistics import (
    DueMessage,
    DueStatistics,
    MessageStatistics,
    PartitionStatistics,
    RelayStatistics,
    SpanStatistics,
    WaitStatistics,
)
from waterclock.streaming.statistics import HeldStatistics, PipelineStatistics, prometheus
from waterclock.web.console.console import Console
from waterclock.web.console.sources import Door, OwnProcess, Source
from waterclock.web.dial import dial_of
from waterclock.web.option import open_server
from waterclock.web.server import PageServer

pytestmark = pytest.mark.browser
HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as chrome:
        yield chrome


@dataclass
class Shown:
    """A relay's statistics and a timer by hand, as a console shows them."""

    statistics: RelayStatistics = field(default_factory=RelayStatistics)
    timer: Timer = field(default_factory=lambda: Timer(clock=ManualClock()))

    @property
    def source(self) -> OwnProcess:
        below = {"/due/": lambda _: DueStatistics(())}
        return OwnProcess("relay", lambda: self.statistics, lambda: {"delays-0": dial_of(self.timer)}, below)


def served(stack: ExitStack, *sources: Source) -> str:
    """The console of these sources; its address."""
    console = Console(sources)
    stack.callback(console.close)
    return f"{stack.enter_context(PageServer({}, 0, console.below, console.streams, deeds=console.deeds)).url}/console/"


def panel(page: Any, name: str) -> Any:
    return page.locator(f"[data-panel={name}]")


def rows(table: Any) -> list[list[str]]:
    """The texts of a table's cells, without the head."""
    texts = "rows => rows.slice(1).map(row => [...row.cells].map(cell => cell.textContent))"
    found: list[list[str]] = table.locator("tr").evaluate_all(texts)
    return found


def levels_of(page: Any) -> Any:
    """What the dial has drawn."""
    return json.loads(page.locator("#dial").get_attribute("data-levels"))


RELAY = RelayStatistics(
    "g", "delays", requests=1_234_567, delivered=1_000, lateness_ms={"1": 0, "5": 600, "20": 395, "500": 5, "more": 0},
    lateness_worst_ms=433, partitions={0: PartitionStatistics(70_001, 42, 1_796_000_000_000, 9, 10, True)},
    partitions_of_topic=1,
)  # fmt: skip


@pytest.mark.always
def test_the_values_on_the_page_are_those_of_the_statistics(browser: Any) -> None:
    shown = Shown(RELAY)
    for delay_s in (0.005, 0.005, 0.3, 100):
        shown.timer.call_later(delay_s, print)
    with ExitStack() as stack, Broker() as broker:
        url = served(stack, shown.source, OwnProcess("broker", broker.statistics, broker.dials))
        broker.create_topic("orders", partitions=3)
        page, wrong = window(browser, 1280)
        page.goto(url)
        panel(page, "lateness").wait_for()
        assert panel(page, "lateness").locator(".big").all_inner_texts() == ["≤ 5 ms", "≤ 20 ms", "433 ms"]
        assert "1,000 delivered, 1,234,567 requests" in panel(page, "lateness").inner_text()
        assert rows(panel(page, "partitions").locator("table"))[0][:3] == ["delays-0", "70,001", "42"]
        page.select_option("#which", "0 delays-0")
        assert levels_of(page) == [{"5": 2}, {"1": 1}, {"1": 1}]
        assert [row[:5] for row in rows(page.locator("#levels table"))] == [
            ["1", "1 ms", "256 ms", "1 of 256", "2"],
            ["2", "256 ms", "1.1 min", "1 of 256", "1"],
            ["3", "1.1 min", "4.7 h", "1 of 256", "1"],
        ]
        assert page.locator("#dial").get_attribute("aria-label") == (
            "The wheel 0 delays-0: level 1: 2 in 1 of 256 buckets; level 2: 1 in 1 of 256 buckets; "
            "level 3: 1 in 1 of 256 buckets."
        )
        page.get_by_text("in 1 topics with 3 partitions").wait_for()
        purgatories = [row[0] for row in rows(panel(page, "purgatories").locator("table"))]
        assert purgatories == [*broker.statistics().purgatories]
        assert wrong == []
        page.close()


def test_a_bucket_that_cascades_moves_down_a_level_and_leaves(browser: Any) -> None:
    shown, ran = Shown(), list[int]()
    shown.timer.call_later(0.3, ran.append, 1)
    with ExitStack() as stack:
        page, _ = window(browser, 1280)
        page.goto(served(stack, shown.source))
        page.wait_for_selector("#dial[data-levels='[{},{\"1\":1}]']", state="attached")
        before = page.locator("#dial").screenshot()
        shown.timer.advance(0.26)
        page.wait_for_selector("#dial[data-levels='[{\"44\":1}]']", state="attached")
        page.wait_for_timeout(600)
        assert page.locator("#dial").screenshot() != before
        shown.timer.advance(0.04)
        assert ran == [1]
        page.wait_for_selector("#dial[data-levels='[]']", state="attached")
        page.close()


def test_a_process_that_dies_is_shown_as_away_and_comes_back(browser: Any) -> None:
    def relay(port: int, delivered: int) -> Any:
        statistics = RelayStatistics("g", "delays", delivered=delivered)
        return open_server(port, "relay", lambda: statistics, lambda _: "", {"/due/": lambda _: DueStatistics(())})

    with ExitStack() as stack, relay(0, 1) as first:
        address = first.url.removeprefix("http://")
        page, wrong = window(browser, 1280)
        page.goto(served(stack, Door(address), Shown().source))
        lateness = page.locator("[data-panel=lateness][data-at='0']")
        lateness.wait_for()
        assert "1 delivered" in lateness.inner_text()
        first.close()
        page.locator("nav .away[data-key='0']").wait_for()
        assert "relay delays is away" in page.locator("nav").inner_text()
        assert re.search("away: .*(refused|reset)", lateness.locator("h2").inner_text())
        assert "1 delivered" in lateness.inner_text()
        with relay(int(address.rpartition(":")[2]), 2):
            lateness.get_by_text("2 delivered").wait_for()
            assert "away" not in page.locator("nav").inner_text()
        assert wrong == []
        page.close()


def test_a_console_that_dies_says_so_and_the_page_goes_on_when_it_is_back(browser: Any) -> None:
    console = Console([Shown(RELAY).source])
    with PageServer({}, 0, console.below, console.streams) as first:
        page, _ = window(browser, 1280)
        page.goto(f"{first.url}/console/")
        panel(page, "lateness").wait_for()
        port = int(first.url.rpartition(":")[2])
    page.locator("#away").wait_for()
    assert "The console itself does not answer" in page.locator("#away").inner_text()
    with PageServer({}, port, console.below, console.streams):
        page.locator("#away").wait_for(state="hidden")
    page.close()


def test_a_strip_has_a_cell_for_each_hour_and_topic_with_what_is_due_in_it(browser: Any) -> None:
    with ExitStack() as stack:
        page, _ = window(browser, 1280)
        now = page.evaluate("Date.now()")
        hour = now - now % HOUR_MS
        spans = (
            SpanStatistics(hour + 2 * HOUR_MS, hour + 3 * HOUR_MS, "mails", 30),
            SpanStatistics(hour + 2 * HOUR_MS, hour + 3 * HOUR_MS, "<b>x</b>", 4),
            SpanStatistics(hour + 4_000 * HOUR_MS, hour + 4_024 * HOUR_MS, "mails", 5),
        )
        page.goto(served(stack, Shown(RelayStatistics("g", "delays", spans=spans)).source))
        strip = panel(page, "strip")
        strip.wait_for()
        cells = strip.locator("b").evaluate_all("cells => cells.map(cell => Number(cell.dataset.pending))")
        wide = len(cells) // 2
        assert {n: value for n, value in enumerate(cells) if value} == {2: 4, wide + 2: 30}
        assert strip.locator("span[title]").all_inner_texts() == ["<b>x</b>", "mails"]
        assert re.match(
            r"39 are pending; 5 lie further ahead, the last before \d{4}-", strip.locator(".tip").inner_text()
        )
        page.close()


def test_what_is_due_next_is_listed_and_an_id_is_found(browser: Any) -> None:
    soon = DueMessage("delays-0-7", 1_000, "mails", "cart-17", "<b>ann</b>", "its topic has refused messages")
    later = DueMessage("delays-0-9", 4_000_000_000_000, "mails", recurs=True)
    gone = MessageStatistics("delays-0-7", 1_000, "mails", "delivered")
    below = {
        "/due/": lambda most: DueStatistics((soon, later)[: int(most)]),
        "/ids/": lambda id: (gone,) if id == "a/b?c" else (),
    }
    with ExitStack() as stack:
        page, wrong = window(browser, 1280)
        page.goto(served(stack, OwnProcess("relay", lambda: RELAY, dict, below)))
        table = panel(page, "due").locator("table")
        table.locator("td").first.wait_for()
        first, second = rows(table)
        assert first[2:] == ["mails", "cart-17", "<b>ann</b>", "delays-0-7", "its topic has refused messages"]
        assert first[1].endswith(" late")
        assert second[2:] == ["mails", "", "", "delays-0-9", "its time; recurs"]
        page.get_by_label("Search by id").fill("a/b?c")
        page.keyboard.press("Enter")
        table.get_by_text("delivered").wait_for()
        assert rows(table)[0][1:] == ["mails", "a/b?c", "delays-0-7", "delivered", ""]
        page.get_by_label("Search by id").fill("other")
        page.keyboard.press("Enter")
        page.get_by_text("No message of the id other is known").wait_for()
        assert wrong == []
        page.close()


def test_whose_messages_wait_and_the_last_letters_are_shown_where_there_are_any(browser: Any) -> None:
    waits = (WaitStatistics("mails", 3, "mails does not take it: not authorized", {"ann": 2, "bob": 1}),)
    letters = (LetterStatistics("delays-0-7", 1_000, "no due time", "<b>x</b>"),)
    shown = Shown(replace(RELAY, fullest={"ann": 4, "bob": 2}, waits=waits, letters=letters))
    held = HeldStatistics("<b>ann</b>", 4, 7, 6_500_000), HeldStatistics("bob", 3, 8, None)
    pipeline = PipelineStatistics(
        "orders", watermark_us=4_000_000, watermarks={"t/2": None, "t/0": 4_000_000}, now_us=9_000_000, held_keys=held,
        letters=(LetterStatistics("a.jsonl 7", 1_000, "it is no JSON", "{"),),
    )  # fmt: skip
    capture = CaptureStatistics(letters=(LetterStatistics("shop.t 0-1-7 2", 1_000, "unknown bytes", "\\x8f"),))
    with ExitStack() as stack, Broker() as broker:
        lagging = replace(broker.statistics(), lags={"mailer": GroupLag("Stable", 2, 3, 1_200)})
        others = [OwnProcess("broker", lambda: lagging, dict), OwnProcess("run", lambda: pipeline, dict)]
        others += [OwnProcess("cdc", lambda: capture, dict)]
        page, wrong = window(browser, 1280)
        page.goto(served(stack, shown.source, *others))
        panel(page, "lags").wait_for()
        panel(page, "watermarks").wait_for()
        assert rows(panel(page, "lags").locator("table")) == [["mailer", "Stable", "2", "3", "1,200"]]
        assert rows(panel(page, "watermarks").locator("table")) == [["t/2", "nothing read yet"], ["t/0", "5 s"]]
        first, second = rows(panel(page, "held").locator("table"))
        assert (first[:3], first[4]) == (["<b>ann</b>", "4", "number 7"], "2.5 s")
        assert second == ["bob", "3", "number 8", "–", "–"]
        assert rows(panel(page, "fullest").locator("table")) == [["ann", "4", ""], ["bob", "2", ""]]
        assert rows(panel(page, "waits").locator("table")) == [["mails", "3", waits[0].why, "ann: 2, bob: 1"]]
        for at, letter in ((0, letters[0]), (2, pipeline.letters[0]), (3, capture.letters[0])):
            shown_of = rows(page.locator(f"[data-panel=letters][data-at='{at}'] table"))
            assert [row[1:] for row in shown_of] == [[letter.place, letter.reason, letter.value]]
        shown.statistics = RELAY
        for name in ("fullest", "waits", "letters"):
            page.locator(f"[data-panel={name}][data-at='0']").wait_for(state="hidden")
        assert wrong == []
        page.close()


def test_a_page_of_hidden_values_has_nobodys_key_and_nobodys_value(browser: Any) -> None:
    letter = LetterStatistics("a.jsonl 7", 1_000, "it is no JSON: 'ann'", "ann")
    pipeline = PipelineStatistics("orders", letters=(letter,), held_keys=(HeldStatistics("ann", 4, 7, None),))
    door = None, "run", lambda: pipeline, prometheus
    with open_server(*door, console=True, hide_values=True) as server:
        page, wrong = window(browser, 1280)
        page.goto(f"{server.url}/console/")  # type: ignore[attr-defined]
        panel(page, "held").wait_for()
        assert rows(panel(page, "held").locator("table")) == [["hidden 1", "4", "number 7", "–", "–"]]
        assert rows(panel(page, "letters").locator("table"))[0][1:] == ["a.jsonl 7", "it is no JSON: …", "hidden"]
        assert "ann" not in page.content()
        assert wrong == []
        page.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_narrow_page_has_nothing_that_sticks_out(browser: Any, scheme: str) -> None:
    with ExitStack() as stack, Broker() as broker:
        pipeline = OwnProcess("run", lambda: PipelineStatistics("orders", totals={"events": 12}), dict)
        url = served(stack, Shown(RELAY).source, OwnProcess("broker", broker.statistics, broker.dials), pipeline)
        page, wrong = window(browser, 360, color_scheme=scheme)
        page.goto(url)
        panel(page, "broker").wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") == 360
        widths = page.locator("main > section:visible").evaluate_all("all => all.map(one => one.offsetWidth)")
        assert set(widths) == {340}
        assert panel(page, "counts").locator("td:visible").all_inner_texts() == ["events", "12"]
        dark = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(14, 20, 19)"
        assert (dark, wrong) == (scheme == "dark", [])
        page.close()


def test_the_keyboard_alone_chooses_a_process_and_a_wheel(browser: Any) -> None:
    one, two = Shown(RelayStatistics("g", "one")), Shown(RelayStatistics("g", "two"))
    with ExitStack() as stack:
        page, _ = window(browser, 1280)
        page.goto(served(stack, one.source, two.source))
        panel(page, "lateness").nth(1).wait_for()
        for _ in range(3):  # all, one, two
            page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        panel(page, "lateness").first.wait_for(state="hidden")
        assert page.locator("nav [aria-pressed=true]").inner_text() == "relay two"
        assert page.evaluate("document.activeElement.dataset.key") == "1"
        assert page.url.endswith("#1")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.id") == "which"
        page.close()


def test_who_wants_less_motion_sees_the_same_without_it(browser: Any) -> None:
    """A hand jumps: two pictures in a row are the same as soon as the dial has heard of a change."""
    shown = Shown()
    shown.timer.call_later(0.3, print)
    with ExitStack() as stack:
        page, _ = window(browser, 1280, reduced_motion="reduce")
        page.goto(served(stack, shown.source))
        page.wait_for_selector("#dial[data-levels='[{},{\"1\":1}]']", state="attached")
        frames = """() => { let n = 0; const own = requestAnimationFrame;
            window.requestAnimationFrame = call => { n++; return own(call); }; window.asked = () => n; }"""
        page.evaluate(frames)
        shown.timer.advance(0.26)
        page.wait_for_selector("#dial[data-levels='[{\"44\":1}]']", state="attached")
        assert page.evaluate("window.asked()") == 0
        page.close()


def test_a_message_is_changed_once_it_is_confirmed_and_the_answer_is_the_relays(browser: Any) -> None:
    message, asked = DueMessage("delays-0-7", 4_000_000_000_000, "mails", "cart-17"), list[Any]()

    def change(what: Any) -> Any:
        asked.append(what)
        if what["verb"] == "cancel":
            return {"outcome": "cancelled", "count": 2}
        raise UsageError("delays-0-7 is not pending any more")

    below = {"/due/": lambda _: DueStatistics((message,))}
    with ExitStack() as stack:
        page, _ = window(browser, 1280)
        page.goto(served(stack, OwnProcess("relay", lambda: RELAY, dict, below, change)))
        for name, answer in (
            ("cancel", "cancelled, 2 messages"),
            ("deliver now", "delays-0-7 is not pending any more."),
        ):
            page.get_by_label(f"{name} cart-17").click()
            page.keyboard.press("Escape")
            page.locator("dialog").wait_for(state="detached")
            page.get_by_label(f"{name} cart-17").click()
            page.locator("dialog button[type=submit]").click()
            page.locator("dialog").get_by_text(answer).wait_for()
            page.get_by_text("close", exact=True).click()
        named = {"origin": "delays-0-7", "id": "cart-17", "due_ms": 4_000_000_000_000}
        assert [each | {"at_ms": 0} for each in asked] == [
            {"verb": "cancel", **named, "at_ms": 0}, {"verb": "move", **named, "at_ms": 0},
        ]  # fmt: skip
        page.close()


def test_nothing_can_be_changed_unless_it_was_said_at_the_start(browser: Any) -> None:
    message = DueMessage("delays-0-7", 4_000_000_000_000, "mails", "cart-17")
    with ExitStack() as stack:
        page, _ = window(browser, 1280)
        url = served(stack, OwnProcess("relay", lambda: RELAY, dict, {"/due/": lambda _: DueStatistics((message,))}))
        page.goto(url)
        panel(page, "due").get_by_text("cart-17").wait_for()
        assert panel(page, "due").locator("table button").count() == 0
        status = "fetch('change/0', {method: 'POST', headers: {'Content-Type': 'application/json'}, body: '{}'})"
        assert page.evaluate(f"{status}.then(answer => answer.status)") == 405
        page.close()
