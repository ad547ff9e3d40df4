"""The console of some sources: the files of its page, and the stream that feeds it. Where they are served is server.py's.

    /console/           the page; /console/NAME its other files
    /console/ask/AT/PATH/TEXT   what the process of that number has at `/PATH/TEXT`, of the pages ASKED; what is due as a
                                panel too
    POST /console/change/AT     has the process of that number do what the body says, if it may
    /console/events     the stream, for as long as the page is open:

    event: source       a process, at most once a second: {"at": 0, "name": "127.0.0.1:9400", "panels": [...], ...}
    event: dials        its wheels, whenever one is not as it was: {"at": 0, "dials": {"delays-0": {...}}}

Rule 1: who connects, or connects again, is told all; after that what has changed, and nothing if nothing has.
Rule 2: a comment is sent when nothing was for a while, so that a client that has gone is noticed.
Rule 3: what a source raises is shown as the reason why it is away: the stream goes on.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib.resources import files
from typing import Any, Final

from waterclock.clock import SystemClock
from waterclock.errors import unstopped
from waterclock.web.console.sources import CHANGES, Seen, Source
from waterclock.web.panel import for_page
from waterclock.web.panels import History, due_of
from waterclock.web.server import GUARDED, HTML, JSON, NoSuchPage, Page

SILENCES: Final = 25  # pieces without news before a comment
STREAM: Final = f"{GUARDED}events"
ASKED: Final = ("due", "ids")
_KINDS: Final = {"html": HTML, "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
_FILES: Final = (
    "index.html", "console.css", "changes.js", "console.js", "dial.js", "panels.js", "parts.js", "icon.svg",
)  # fmt: skip


class Console:
    """What a `PageServer` needs to show these sources."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self._sources, self._clock = sources, SystemClock()
        self._histories = [History() for _ in sources]

    @property
    def below(self) -> dict[str, Callable[[str], Page]]:
        """The page and its files."""
        return {GUARDED: self._page}

    @property
    def streams(self) -> dict[str, Callable[[], Iterator[str]]]:
        """The stream."""
        return {STREAM: self._pieces}

    @property
    def deeds(self) -> dict[str, Callable[[bytes], Page]]:
        """What the processes do that may be asked for changes."""
        may = [(at, source) for at, source in enumerate(self._sources) if source.may_change]
        return {f"{CHANGES}{at}": partial(_changed, source) for at, source in may}

    def close(self) -> None:
        """Ask the sources no more."""
        for source in self._sources:
            source.close()

    def _page(self, text: str) -> Page:
        if asked := re.fullmatch(r"ask/(\d{1,4})/(\w+)/(.*)", text, re.S):
            return self._ask(int(asked[1]), asked[2], asked[3])
        name = text or "index.html"
        if name not in _FILES:
            raise NoSuchPage(f"the console has no file {name}: open {GUARDED}")
        return page_file(name)

    def _ask(self, at: int, path: str, text: str) -> Page:
        if path not in ASKED or at >= len(self._sources):
            raise NoSuchPage(f"the console asks no process number {at} for /{path}/")
        found: Any = self._sources[at].ask(path, text)
        if path == "due":
            found = {**found, "panel": for_page(due_of(found, self._clock.wall_ms()))}
        return JSON, json.dumps(found)

    def _pieces(self) -> Iterator[str]:
        """Rules 1 and 2."""
        sent: dict[tuple[str, int], str] = {}
        silent = 0
        piece = "retry: 1000\n\n"
        while True:
            for at, source in enumerate(self._sources):
                for event, told in self._told(at, source):
                    if sent.get((event, at)) != told:
                        sent[event, at] = told
                        piece += f"event: {event}\ndata: {told}\n\n"
            silent = 0 if piece else silent + 1
            if silent >= SILENCES:
                piece, silent = ": nothing new\n\n", 0
            yield piece
            piece = ""

    def _told(self, at: int, source: Source) -> list[tuple[str, str]]:
        """The events about a source, as it is now."""
        try:
            seen = source.seen()
        except Exception as error:  # rule 3
            seen = Seen(why=unstopped(error))
        self._histories[at].hear(seen, self._clock.monotonic_s())
        own: dict[str, Any] = {"at": at, "name": source.name, "changes": source.may_change, **seen._asdict()}
        del own["dials"]
        own["panels"] = [for_page(each) for each in self._histories[at].panels()]
        return [("source", json.dumps(own)), ("dials", json.dumps({"at": at, "dials": seen.dials or {}}))]


def page_file(name: str) -> Page:
    """A file of page/, with its type."""
    kind = _KINDS[name.rpartition(".")[2]]
    return kind, files("waterclock.web.console").joinpath("page", name).read_text("utf-8")


def _changed(source: Source, body: bytes) -> Page:
    return JSON, json.dumps(source.change(json.loads(body)))
