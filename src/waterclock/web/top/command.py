"""`waterclock top`: what the console shows, in a terminal."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

from waterclock.arguments import describe
from waterclock.web.console.command import door

if TYPE_CHECKING:
    from waterclock.clock import Clock
    from waterclock.web.top.process import Process

LOOK_S: Final = 0.1
PATIENCE_S: Final = 5.0


def add_to(parser: argparse.ArgumentParser) -> None:
    """The options."""
    describe(parser, run, "waterclock top http://127.0.0.1:9400 http://127.0.0.1:9401")
    where = "a process to show: the address that its --metrics or --console prints"
    parser.add_argument("url", nargs="+", type=door, metavar="URL", help=where)
    once = "print it once as text, with the rates of one second; so it is where the output is no terminal or a dumb one"
    parser.add_argument("--once", action="store_true", help=once)
    parser.add_argument("--json", action="store_true", help="print once what the processes say, as JSON")


def run(arguments: argparse.Namespace) -> int:
    """`waterclock top`: running processes live in this terminal, until q or Ctrl-C. 1 where none of them answers."""
    from waterclock.clock import SystemClock
    from waterclock.web.console.sources import Door
    from waterclock.web.top.process import Process

    is_screen = sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"
    clock = SystemClock()
    with ExitStack() as stack:
        if is_screen and not (arguments.once or arguments.json):
            from waterclock.web.top.screen import show  # before a thread begins: Textual may be missing
        sources = [Door(address) for address in dict.fromkeys(arguments.url)]
        for source in sources:
            stack.callback(source.close)
        processes = [Process(source, clock) for source in sources]
        if is_screen and not (arguments.once or arguments.json):
            return show(processes)
        _look(processes, clock)
        print(_as_json(processes) if arguments.json else _as_text(processes))
        for each in processes:
            if each.state:
                print(f"waterclock: {each.name} {each.state}.", file=sys.stderr)
        return 0 if any(not each.state for each in processes) else 1


def _look(processes: Sequence[Process], clock: Clock) -> None:
    """Until each has said something twice, so that there are rates, or is away."""
    until_s = clock.monotonic_s() + PATIENCE_S
    while clock.monotonic_s() < until_s:
        for each in processes:
            each.look()
        if all(each.seen.heard >= 2 or each.seen.why not in ("", "it was not asked yet") for each in processes):
            return
        clock.sleep_s(LOOK_S)


def _as_text(processes: Sequence[Process]) -> str:
    from waterclock.web.top.drawing import drawn

    width = shutil.get_terminal_size((120, 24)).columns
    blocks = []
    for each in processes:
        tables = ["\n".join(lines) for panel in each.panels() if (lines := drawn(panel, width))]
        blocks.append("\n\n".join([f"{each.name} {each.state}".rstrip(), *tables]))
    text = "\n\n".join(blocks)
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        text = text.translate({ord("█"): "#", ord("░"): ".", ord("–"): "-", ord("…"): "~"})
        text = text.encode("ascii", "backslashreplace").decode()
    return text


def _as_json(processes: Sequence[Process]) -> str:
    told = [{"name": each.name, **each.seen._asdict(), "due": each.due} for each in processes]
    return json.dumps({"processes": told})
