"""`waterclock console`: one page of several processes, until Ctrl-C or SIGTERM."""

from __future__ import annotations

import argparse
import re

from waterclock.arguments import describe, port


def add_to(parser: argparse.ArgumentParser) -> None:
    """The options."""
    describe(parser, run, "waterclock console http://127.0.0.1:9400 http://127.0.0.1:9401")
    where = "a process to show: the address that its --metrics or --console prints"
    parser.add_argument("url", nargs="+", type=door, metavar="URL", help=where)
    own = "the port of the page, on 127.0.0.1; 0 for any free one (default: %(default)s)"
    parser.add_argument("--port", type=port, default=9500, help=own)
    allowed = "let the page cancel and move messages of relays that were started with --console --allow-changes"
    parser.add_argument("--allow-changes", action="store_true", help=allowed)


def door(text: str) -> str:
    """HOST:PORT of an address as it is printed, or as a browser has it."""
    host, rest = r"([^/@\s:]+|\[[0-9a-fA-F:.]+\])", r"(/|/metrics|/console/|/statistics\.json)?"
    found = re.fullmatch(rf"(?:http://)?{host}:([0-9]{{1,5}}){rest}", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no address of a process: write it as http://127.0.0.1:9400")
    return f"{found[1]}:{found[2]}"


def run(arguments: argparse.Namespace) -> int:
    """`waterclock console`: a live page of running processes, until Ctrl-C or SIGTERM."""
    import signal

    from waterclock.signals import heard
    from waterclock.web.console.console import Console
    from waterclock.web.console.sources import Door
    from waterclock.web.server import GUARDED, PageServer

    console = Console([Door(address, arguments.allow_changes) for address in dict.fromkeys(arguments.url)])
    pages = console.below, console.streams, "--port 0", console.deeds
    try:
        with PageServer({}, arguments.port, *pages) as server, heard():
            print(f"console at {server.url}{GUARDED}", flush=True)
            signal.pause()
    except KeyboardInterrupt:
        pass
    finally:
        console.close()
    return 0
