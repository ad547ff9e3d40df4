"""The terminal's screen of `waterclock top`: lines that can be scrolled, drawn anew with the width.

Rule 1: Ctrl-C, q and SIGTERM end it, and the terminal is as it was.
Rule 2: the processes are asked by a thread: one that does not answer keeps no key waiting.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from typing import Any, ClassVar, Final

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.widgets import Static
from textual.worker import get_current_worker

from waterclock.clock import SystemClock
from waterclock.web.top.drawing import cut, drawn
from waterclock.web.top.process import Process

EVERY_S: Final = 0.5
LOOK_S: Final = 0.2
KEYS: Final = "q ends, arrows scroll, 1 to 9 choose a process, 0 all"


class Screen(App[None]):
    """The processes, live."""

    ENABLE_COMMAND_PALETTE = False
    CSS: ClassVar[str] = "Screen { background: ansi_default; } VerticalScroll { scrollbar-size: 1 1; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q,ctrl+c", "quit", priority=True),
        *(Binding(str(number), f"choose({number})") for number in range(10)),
    ]

    def __init__(self, processes: Sequence[Process]) -> None:
        super().__init__(ansi_color=True)
        self._processes, self._chosen = processes, 0

    def compose(self) -> ComposeResult:
        yield Static(id="head")
        with VerticalScroll() as scroll:
            scroll.can_focus = True
            yield Static(id="body")

    def on_mount(self) -> None:
        self.query_one(VerticalScroll).focus()
        if (loop := self._loop) is not None:
            loop.add_signal_handler(signal.SIGTERM, self.exit)
        self.run_worker(self._watch, thread=True)
        self.set_interval(EVERY_S, self._show)
        self._show()

    def on_resize(self) -> None:
        self._show()

    def action_choose(self, number: int) -> None:
        if number <= len(self._processes):
            self._chosen = number
            self._show()

    def _watch(self) -> None:
        worker, clock = get_current_worker(), SystemClock()
        while not worker.is_cancelled:
            for each in self._processes:
                each.look()
            clock.sleep_s(LOOK_S)

    def _show(self) -> None:
        chosen = [self._processes[self._chosen - 1]] if self._chosen else self._processes
        self.query_one("#head", Static).update(_head(self._processes, self._chosen, self.size.width))
        self.query_one("#body", Static).update(_body(chosen, self.size.width - 1))


def _head(processes: Sequence[Process], chosen: int, width: int) -> Text:
    head = Text(cut(KEYS, width), "dim")
    for number, each in enumerate(processes, 1):
        line = cut(f"{number} {each.name} {each.state}".rstrip(), width)
        head.append(f"\n{line}", "bold red" if each.state else "bold" if number == chosen else "")
    return head


def _body(processes: Sequence[Process], width: int) -> Text:
    body = Text(no_wrap=True)
    for each in processes:
        for panel in each.panels():
            for number, line in enumerate(drawn(panel, width)):
                body.append(f"{line}\n" if number else f"\n{line}\n", "" if number else "bold")
    body.highlight_regex("█+", "cyan")
    return body


def show(processes: Sequence[Process]) -> int:
    """Live in the terminal until it is ended; the value is the process's exit code."""
    screen: Any = Screen(processes)
    screen.run()
    return int(screen.return_code or 0)
