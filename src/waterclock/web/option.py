"""`--metrics PORT` and `--console`: the options of every command that runs for long, and the server that they open.

/metrics            the command's statistics as Prometheus's text
/statistics.json    the same record as JSON
/dials.json         its wheels, if it has any: dial.py
/console/           the console of this process, with --console: console/
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from waterclock.arguments import port

if TYPE_CHECKING:
    from waterclock.web.console.sources import OwnProcess
    from waterclock.web.dial import Dial
    from waterclock.web.server import Below, Page, Routes

PROMETHEUS: Final = "text/plain; version=0.0.4; charset=utf-8"
T = TypeVar("T")


def add_to(parser: argparse.ArgumentParser) -> None:
    """The option."""
    what = "serve /metrics for Prometheus and /statistics.json at http://127.0.0.1:PORT; 0 for any free port"
    parser.add_argument("--metrics", type=port, metavar="PORT", help=what)
    live = "serve a live page of it for a browser on this machine, on the port of --metrics (default: any free one)"
    parser.add_argument("--console", action="store_true", help=live)


def add_hidden(parser: argparse.ArgumentParser) -> None:
    """The option of those whose record has `hidden`."""
    hidden = "show nobody's keys and values in the statistics and on their page"
    parser.add_argument("--hide-values", action="store_true", help=hidden)


def open_server(
    port: int | None,
    command: str,
    statistics: Callable[[], T],
    prometheus: Callable[[T], str],
    below: Mapping[str, Callable[[str], object]] | None = None,
    dials: Callable[[], Mapping[str, Dial]] | None = None,
    console: bool = False,
    also: Sequence[OwnProcess] = (),
    change: Callable[[object], object] | None = None,
    hide_values: bool = False,
) -> AbstractContextManager[object]:
    """Serves the statistics of `command` while it is open, and says where on stderr; without a port and without the console
    it does nothing.

    `below`: path that ends with / -> what makes a record of the text behind it, served as JSON too. `dials`: its wheels.
    `also`: what else the console shows of this process. `change`: does what the console asks for (sources.py).
    `hide_values`: what is shown of a record is its `hidden()`.

    UsageError if the port is taken, or none that one may listen on.
    """
    if port is None and not console:
        return nullcontext()
    from waterclock.web.server import PageServer

    if hide_values:
        statistics = partial(_hidden, statistics)
    routes, pages = _pages(command, statistics, prometheus, below or {}, dials)
    if not console:
        server = PageServer(routes, port or 0, pages)
    else:
        from waterclock.web.console.console import Console
        from waterclock.web.console.sources import OwnProcess

        shown = Console([OwnProcess(command, statistics, dials or dict, below, change), *also])
        server = PageServer(routes, port or 0, {**pages, **shown.below}, shown.streams, deeds=shown.deeds)
    print(f"metrics at {server.url}/metrics", file=sys.stderr, flush=True)
    if console:
        print(f"console at {server.url}/console/", file=sys.stderr, flush=True)
    return server


def _hidden(statistics: Callable[[], Any]) -> Any:
    return statistics().hidden()


def _pages(
    command: str,
    statistics: Callable[[], T],
    prometheus: Callable[[T], str],
    below: Mapping[str, Callable[[str], object]],
    dials: Callable[[], object] | None,
) -> tuple[Routes, Below]:
    from waterclock.web.record import to_json
    from waterclock.web.server import JSON

    def page_of(make: Callable[[str], object], text: str) -> Page:
        return JSON, to_json(command, make(text))

    routes: dict[str, Callable[[], Page]] = {
        "/metrics": lambda: (PROMETHEUS, prometheus(statistics())),
        "/statistics.json": lambda: (JSON, to_json(command, statistics())),
    }
    if dials is not None:
        routes["/dials.json"] = lambda: (JSON, to_json(command, dials()))
    return routes, {path: partial(page_of, make) for path, make in below.items()}
