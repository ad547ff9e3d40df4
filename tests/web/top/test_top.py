"""`waterclock top`: by Textual's own pilot, in a terminal, and where there is none."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.web.test_console_page import RELAY, Shown
from waterclock import ManualClock, Purgatory, Timer, web
from waterclock.broker import Broker
from waterclock.broker.statistics import GroupLag
from waterclock.cdc.statistics import CaptureStatistics
from waterclock.clock import SystemClock
from waterclock.errors import pip_install
from waterclock.letters import LetterStatistics
from waterclock.relay.statistics import DueMessage, DueStatistics, WaitStatistics
from waterclock.streaming.statistics import HeldStatistics, Phase, PipelineStatistics
from waterclock.web.console.sources import Door, OwnProcess, Source
from waterclock.web.dial import dial_of
from waterclock.web.option import open_server
from waterclock.web.top.drawing import drawn
from waterclock.web.top.process import Process

pytest.importorskip("textual", reason="textual is not installed")
COMMAND = [sys.executable, "-W", "error", "-m", "waterclock.cli", "top"]
SOON = DueMessage("delays-0-7", 1_000, "mails", "cart-17", "ann", "its topic has refused messages")
LATER = DueMessage("delays-0-9", 4_000_000_000_000, "mails", recurs=True)


@contextmanager
def relay(port: int, shown: Shown) -> Iterator[str]:
    """A relay's web door; its address."""
    below = {"/due/": lambda _: DueStatistics((SOON, LATER))}
    dials = {"delays-0": shown.timer}
    with open_server(
        port, "relay", lambda: shown.statistics, lambda _: "", below,
        lambda: {name: dial_of(timer) for name, timer in dials.items()},
    ) as server:  # fmt: skip
        yield server.url.removeprefix("http://")  # type: ignore[attr-defined]


def text_of(watched: Process, width: int = 100) -> str:
    """What is shown of a process."""
    return "\n\n".join("\n".join(lines) for panel in watched.panels() if (lines := drawn(panel, width)))


def looked_at(source: Source) -> str:
    watched = Process(source, SystemClock())
    watched.look()
    return text_of(watched)


# What is shown


def test_a_relays_panels_have_the_values_of_its_statistics() -> None:
    shown = Shown(RELAY)
    for delay_s in (0.005, 0.005, 0.3):
        shown.timer.call_later(delay_s, print)
    below = {"/due/": lambda _: DueStatistics((SOON, LATER))}
    dials = {"delays-0": shown.timer, "delays-1": Timer(clock=ManualClock())}
    source = OwnProcess("relay", lambda: RELAY, lambda: {name: dial_of(each) for name, each in dials.items()}, below)
    text = looked_at(source)
    assert "Levels of delays-0\nlevel  tick    sees     buckets in use  timers\n" in text
    assert "\n1      1 ms    256 ms         1 of 256       2  █░" in text
    assert "\n2      256 ms  1.1 min        1 of 256       1  █░" in text
    assert "delays-1" not in text
    assert re.search(r"\ndelays-0 +70,001 +42 +2026-.* delivers\n", text)
    assert re.search(
        r"\n1970-01-01 \S+ +\S+ d late  mails  cart-17  ann  delays-0-7  its topic has refused messages", text
    )
    assert re.search(r"\n2096-\S+ \S+ +\S+ d  mails +delays-0-9  its time; recurs", text)
    bars = [
        "   5 ms       600  ████████████████████",
        "  20 ms       395  █████████████░░░░░░░",
        " 500 ms         5  █",
    ]
    assert all(f"\n{bar}" in text for bar in bars)
    assert "1,000 delivered, 1,234,567 requests, 0 dead letters, 0 missed" in text
    assert re.search(r"\nhalf +≤ 5 ms\n99 of 100 +≤ 20 ms\nthe latest +433 ms\n", text)


def test_every_kind_of_process_is_shown() -> None:
    timer = Timer(clock=ManualClock())
    purgatory = Purgatory("waits", timer)
    with Broker() as broker, web.serve(timer, acks=purgatory) as server:
        broker.create_topic("orders", partitions=3)
        text = looked_at(OwnProcess("broker", broker.statistics, broker.dials))
        assert "0 records in 1 topics with 3 partitions; 0 connections; leads; 0 damaged places" in text
        assert re.search(r"\nfetch +0 +0", text)
        with closing(Door(server.url.removeprefix("http://"))) as door:
            watched = Process(door, SystemClock())
            until(lambda: (watched.look(), watched.panels())[1])
            assert re.search(r"\ntimer +0 +0 +0 +0", text_of(watched))
    totals, phases = {"events": 12, "dead_letters": 3}, {"take": Phase(0.5, 1.0, 2), "sink": Phase(0.25, 1.0, 2)}
    pipeline = PipelineStatistics(
        "orders", 2, 1, totals, 4.0, 4.0, 1_000_000, 9_000_000, 11_000_000, "files", {"": 5}, phases=phases
    )
    text = looked_at(OwnProcess("run", lambda: pipeline, dict))
    assert "newest event behind now   2 s\nwatermark behind now     10 s\n" in text
    assert "files not taken yet         5\n" in text
    assert "take   500 ms  ████████████████████\nsink   250 ms  ██████████░░░░░░░░░░" in text
    assert "dead letters   3" in text
    text = looked_at(OwnProcess("cdc", lambda: CaptureStatistics(changes=1_200, place="0/15"), dict))
    assert re.search(r"\nchanges in Kafka +1,200\n", text)
    assert text.endswith("up to 0/15")


def test_whose_messages_wait_and_what_is_behind_is_shown() -> None:
    letters = (LetterStatistics("delays-0-7", 1_000, "no due time", "x\x1b[2J"),)
    waits = (WaitStatistics("mails", 3, "mails does not take it", {"ann": 2, "bob": 1}),)
    relay = replace(RELAY, fullest={"ann": 4, "bob": 2}, letters=letters, waits=waits)
    text = looked_at(OwnProcess("relay", lambda: relay, dict))
    assert "Fullest keys\nkey  messages\nann         4  ████████████████████\nbob         2  ██████████░" in text
    assert re.search(r"\nmails +3  mails does not take it  ann: 2, bob: 1\n", text)
    assert re.search(r"  delays-0-7  no due time  x·\[2J$", text)
    with Broker() as broker:
        lagging = replace(broker.statistics(), lags={"mailer": GroupLag("Stable", 2, 3, 1_200)})
    assert re.search(r"\nmailer +Stable +2 +3 +1,200(\n|$)", looked_at(OwnProcess("broker", lambda: lagging, dict)))
    pipeline = PipelineStatistics("orders", watermarks={"t/2": None, "t/0": 4_000_000}, now_us=9_000_000)
    for command, record in (("run", pipeline), ("cdc", CaptureStatistics())):
        text = looked_at(OwnProcess(command, lambda record=record: replace(record, letters=letters), dict))  # type: ignore[misc]
        assert re.search(r"\n1970-01-01 \S+ +delays-0-7  no due time  x·\[2J$", text)
    held = HeldStatistics("ann\x1b[2J", 4, 7, 6_500_000), HeldStatistics("bob", 3, None, 3_000_000)
    text = looked_at(OwnProcess("run", lambda: replace(pipeline, watermark_us=4_000_000, held_keys=held), dict))
    assert re.search(r"\nann·\[2J +4  number 7 +1970-01-01 \S+ +2\.5 s\nbob +3  the watermark .* 0 ms(\n|$)", text)
    assert re.search(r"\nt/2 +nothing read yet\nt/0 +5 s$", looked_at(OwnProcess("run", lambda: pipeline, dict)))


def test_a_process_of_another_version_says_so_and_the_others_are_shown() -> None:
    assert "They are those of another version" in looked_at(OwnProcess("relay", lambda: {"topic": "delays"}, dict))


def test_a_rate_is_of_the_last_two_records_and_a_restart_has_none() -> None:
    counts, clock = [1_000, 1_400, 5], ManualClock()
    source = OwnProcess("cdc", lambda: CaptureStatistics(changes=counts.pop(0)), dict)
    watched, seen = Process(source, clock), []
    for _ in range(15):
        watched.look()
        seen.append(re.findall(r"changes / s +(\S+)", text_of(watched))[0])
        clock.advance_s(0.2)
    assert [seen[0], seen[5], seen[10]] == ["–", "400", "–"]


# The screen


def until(holds: Callable[[], object]) -> None:
    for _ in range(200):
        if holds():
            return
        time.sleep(0.05)
    raise AssertionError("it never was so")


async def piloted(screen: Any, size: tuple[int, int], script: Callable[[Any, Callable[..., Any]], Any]) -> None:
    async with screen.run_test(size=size) as pilot:

        async def shows(word: str, of: str = "#body") -> str:
            for _ in range(200):
                if word in (text := str(screen.query_one(of).render())):
                    return text
                await pilot.pause(0.05)
            raise AssertionError(f"{word!r} is not in\n{text}")

        await script(pilot, shows)


def test_a_process_is_chosen_by_its_number_and_one_that_dies_comes_back() -> None:
    from waterclock.web.top.screen import Screen

    async def script(pilot: Any, shows: Callable[..., Any]) -> None:
        assert "two-0" in await shows("delays-0 ")
        await pilot.press("2")
        await pilot.pause(0.6)
        assert "delays-0 " not in await shows("two-0")
        await pilot.press("0")
        await shows("delays-0 ")
        port = int(address.rpartition(":")[2])
        first.close()
        assert "refused" in await asyncio.wait_for(shows("1 relay delays is away for", "#head"), 20)
        await shows("70,001")  # the last that it said
        with relay(port, Shown(replace(RELAY, delivered=2_000))):
            await shows("2,000 delivered")
            assert "away" not in await shows("1 relay delays", "#head")
        await pilot.press("q")
        assert pilot.app.return_code == 0

    other = OwnProcess("relay", lambda: replace(RELAY, topic="two"), dict)
    with ExitStack() as stack:
        first = stack.enter_context(ExitStack())
        address = first.enter_context(relay(0, Shown(RELAY)))
        door = stack.enter_context(closing(Door(address)))
        screen = Screen([Process(each, SystemClock()) for each in (door, other)])
        asyncio.run(piloted(screen, (100, 40), script))


def test_a_bucket_that_cascades_is_seen_and_nothing_sticks_out_of_40_columns() -> None:
    from waterclock.web.top.screen import Screen

    shown = Shown(RELAY)
    shown.timer.call_later(0.3, print)

    async def script(pilot: Any, shows: Callable[..., Any]) -> None:
        text = await shows("2            1 of 256       1")
        assert max(map(len, text.splitlines())) <= 39
        shown.timer.advance(0.26)
        await shows("1            1 of 256       1")
        await pilot.resize_terminal(90, 20)
        await shows("level  tick")
        scroll = pilot.app.query_one("VerticalScroll")
        await pilot.press("end")
        await pilot.pause(0.5)
        assert scroll.scroll_y > 0

    asyncio.run(piloted(Screen([Process(shown.source, SystemClock())]), (40, 20), script))


# The command


ALONE = {name: text for name, text in os.environ.items() if name not in ("COLUMNS", "LINES")}  # as a shell has it


class Terminal:
    """The command in a terminal of 40 columns."""

    def __init__(self, address: str, **environment: str) -> None:
        self._process, self._fd = self._begun(address, {**ALONE, "TERM": "xterm-256color", **environment})
        self.text = ""

    def _begun(self, address: str, environment: Mapping[str, str]) -> tuple[subprocess.Popen[bytes], int]:
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 40, 0, 0))
        self.before = termios.tcgetattr(theirs)
        self.theirs = theirs
        std = {"stdin": theirs, "stdout": theirs, "stderr": theirs}
        own = subprocess.Popen([*COMMAND, address], env=environment, start_new_session=True, **std)  # type: ignore[call-overload]
        return own, ours

    def shows(self, word: str) -> None:
        until_s = time.monotonic() + 30
        while word not in self.text:
            assert time.monotonic() < until_s, self.text
            if select.select([self._fd], [], [], 0.1)[0]:
                self.text += os.read(self._fd, 65_536).decode(errors="replace")

    def ends(self, how: bytes | signal.Signals) -> int:
        if isinstance(how, bytes):
            os.write(self._fd, how)
        else:
            self._process.send_signal(how)
        until_s = time.monotonic() + 20
        while self._process.poll() is None and time.monotonic() < until_s:
            if select.select([self._fd], [], [], 0.1)[0]:
                self.text += os.read(self._fd, 65_536).decode(errors="replace")
        while select.select([self._fd], [], [], 0.1)[0]:
            self.text += os.read(self._fd, 65_536).decode(errors="replace")
        return self._process.wait(1)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._fd)
        os.close(self.theirs)


@pytest.mark.parametrize("how", [b"q", b"\x03", signal.SIGTERM])
def test_in_a_terminal_it_is_live_and_leaves_the_terminal_as_it_was(how: bytes | signal.Signals) -> None:
    with relay(0, Shown(RELAY)) as address, closing(Terminal(address)) as terminal:
        terminal.shows("delays-0")
        assert "\x1b[?1049h" in terminal.text  # a screen of its own
        assert terminal.ends(how) == 0
        assert "\x1b[?1049l" in terminal.text
        assert "\x1b[?25h" in terminal.text  # the cursor
        assert termios.tcgetattr(terminal.theirs) == terminal.before


def test_with_no_color_there_is_none() -> None:
    with relay(0, Shown(RELAY)) as address, closing(Terminal(address, NO_COLOR="1")) as terminal:
        terminal.shows("delays-0")
        terminal.ends(b"q")
    colours = {code for codes in re.findall(r"\x1b\[([0-9;]*)m", terminal.text) for code in codes.split(";")}
    assert colours <= {"", "0", "1", "2", "39", "49"}


def test_a_dumb_terminal_gets_text_once() -> None:
    with relay(0, Shown(RELAY)) as address, closing(Terminal(address, TERM="dumb")) as terminal:
        terminal.shows("70,001")
        assert terminal.ends(b"") == 0
    assert "\x1b" not in terminal.text
    assert max(map(len, terminal.text.splitlines())) <= 40


def printed(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments], capture_output=True, text=True, timeout=60, env={**os.environ, **environment},
        encoding=environment.get("PYTHONIOENCODING", "utf-8"),
    )  # fmt: skip


def test_without_a_terminal_it_is_printed_once() -> None:
    with relay(0, Shown(RELAY)) as address:
        done = printed(f"http://{address}/console/")
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith("relay delays\n\nPartitions\n") or "Nothing waits in a wheel." in done.stdout
        assert printed(address, PYTHONIOENCODING="ascii").stdout.count("#" * 20) == 1
        told = json.loads(printed("--json", address, "127.0.0.1:1").stdout)["processes"]
    assert told[0]["record"]["statistics"]["delivered"] == 1_000
    assert [one["id"] for one in told[0]["due"]["messages"]] == ["cart-17", ""]
    assert (told[1]["record"], "refused" in told[1]["why"]) == (None, True)


def test_where_nobody_answers_it_fails_and_says_why() -> None:
    done = printed("127.0.0.1:1")
    assert done.returncode == 1
    assert re.fullmatch(r"waterclock: 127\.0\.0\.1:1 is away: .*refused\.\n", done.stderr)


def test_without_textual_it_says_how_to_get_it(tmp_path: Path) -> None:
    (tmp_path / "textual").mkdir()
    (tmp_path / "textual" / "__init__.py").write_text("raise ModuleNotFoundError('gone', name='textual')")
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    with relay(0, Shown(RELAY)) as address, closing(Terminal(address, PYTHONPATH=path)) as terminal:
        terminal.shows("\n")
        assert terminal.ends(b"") == 1
    assert " ".join(terminal.text.split()) == f"waterclock: textual is missing: {pip_install('top')}"
