"""`--metrics PORT`: the one option of every command that runs for long, and the server that it opens.

/metrics            the command's statistics as Prometheus's text
/statistics.json    the same record as JSON
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Final, TypeVar

from waterclock.arguments import port

PROMETHEUS: Final = "text/plain; version=0.0.4; charset=utf-8"
JSON: Final = "application/json"
T = TypeVar("T")


def add_to(parser: argparse.ArgumentParser) -> None:
    """The option."""
    what = "serve /metrics for Prometheus and /statistics.json at http://127.0.0.1:PORT; 0 for any free port"
    parser.add_argument("--metrics", type=port, metavar="PORT", help=what)


def open_server(
    port: int | None,
    command: str,
    statistics: Callable[[], T],
    prometheus: Callable[[T], str],
    below: Mapping[str, Callable[[str], object]] | None = None,
) -> AbstractContextManager[object]:
    """Serves the statistics of `command` while it is open, and says where on stderr; without a port it does nothing.

    `below`: path that ends with / -> what makes a record of the text behind it, served as JSON too.

    UsageError if the port is taken, or none that one may listen on.
    """
    if port is None:
        return nullcontext()
    from waterclock.web.record import to_json
    from waterclock.web.server import PageServer

    routes = {
        "/metrics": lambda: (PROMETHEUS, prometheus(statistics())),
        "/statistics.json": lambda: (JSON, to_json(command, statistics())),
    }

    def page_of(make: Callable[[str], object], text: str) -> tuple[str, str]:
        return JSON, to_json(command, make(text))

    server = PageServer(routes, port, {path: partial(page_of, make) for path, make in (below or {}).items()})
    print(f"metrics at {server.url}/metrics", file=sys.stderr, flush=True)
    return server
