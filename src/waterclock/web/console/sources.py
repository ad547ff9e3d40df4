"""Whose statistics and dials the console shows: this process's own, or those of processes at their web doors.

Rule 1: a process that is away is shown as away, with the reason; it is asked again, and comes back by itself. None keeps
        another waiting: each door has a thread of its own.
Rule 2: nothing is changed but by a process that was started so that it may be asked for changes. What became of one is its
        answer, never ours.
Rule 3: a door is asked only while somebody looks, and for `LINGER` rounds more.
"""

from __future__ import annotations

import json
import threading
import urllib.request
from collections.abc import Callable, Mapping
from http.client import HTTPException
from typing import Any, Final, NamedTuple, Protocol
from urllib.error import HTTPError
from urllib.parse import quote

from waterclock.errors import UsageError, unstopped
from waterclock.web.record import plain, to_json
from waterclock.web.server import EVERY_S, GUARDED, JSON, NoSuchPage

ROUNDS: Final = 5  # of dials to one of statistics
LINGER: Final = 50
PATIENCE_S: Final = 2.0
CHANGE_S: Final = 60.0  # the relay answers once its turn is committed
CHANGES: Final = f"{GUARDED}change/"
MOST: Final = 32 << 20  # bytes of an answer


class Seen(NamedTuple):
    """What is known of a process: `record` is its `/statistics.json`, the `heard`th one; `dials` are by name. Both are the
    last ones if it is away, and None before it was ever heard. `why` says why it is away, else it is empty."""

    record: Mapping[str, Any] | None = None
    dials: Mapping[str, Any] | None = None
    why: str = ""
    heard: int = 0


class Source(Protocol):
    """A process that is shown."""

    name: str
    may_change: bool

    def seen(self) -> Seen:
        """What is known of it now, at once."""

    def ask(self, path: str, text: str) -> object:
        """The record of its page `/PATH/TEXT`. `NoSuchPage` if it has none; OSError or ValueError if it cannot be had."""

    def change(self, asked: object) -> object:
        """Have it do what is asked, a record of JSON; what became of it. WaterclockError or ValueError says why not."""

    def close(self) -> None:
        """Ask it no more."""


class OwnProcess:
    """This process: its statistics and its dials, made when they are asked for; called by one thread at a time."""

    def __init__(
        self,
        command: str,
        statistics: Callable[[], object],
        dials: Callable[[], Mapping[str, object]],
        below: Mapping[str, Callable[[str], object]] | None = None,
        change: Callable[[object], object] | None = None,
    ) -> None:
        self.name, self.may_change = command, change is not None
        self._change = change
        self._statistics, self._dials, self._below = statistics, dials, below or {}
        self._rounds, self._last = 0, Seen()

    def seen(self) -> Seen:
        last = self._last
        if self._rounds % ROUNDS == 0:
            record = json.loads(to_json(self.name, self._statistics()))
            last = Seen(record, heard=last.heard + 1)
        self._last = last._replace(dials=plain(self._dials()))
        self._rounds += 1
        return self._last

    def ask(self, path: str, text: str) -> object:
        if (make := self._below.get(f"/{path}/")) is None:
            raise NoSuchPage(f"{self.name} has no page /{path}/")
        return plain(make(text))

    def change(self, asked: object) -> object:
        if self._change is None:
            raise UsageError(f"this {self.name} changes nothing: start it with --console --allow-changes")
        return plain(self._change(asked))

    def close(self) -> None:
        """Nothing is to be done."""


class Door:
    """A process with `--metrics` or `--console`, asked over HTTP by a thread."""

    def __init__(self, address: str, may_change: bool = False) -> None:
        self.name, self.may_change = address, may_change
        self._seen = Seen(why="it was not asked yet")
        self._left = 0  # rounds until nobody looks any more
        self._begins, self._ends = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._ask, name=f"console {address}", daemon=True)
        self._thread.start()

    def seen(self) -> Seen:
        self._left = LINGER
        self._begins.set()
        return self._seen

    def ask(self, path: str, text: str) -> object:
        found: object = fetched(self.name, f"{path}/{quote(text, safe='')}")["statistics"]
        return found

    def change(self, asked: object) -> object:
        own = f"http://{self.name}"
        headers = {"Origin": own, "Content-Type": JSON}
        request = urllib.request.Request(f"{own}{CHANGES}0", json.dumps(asked).encode(), headers)
        try:
            with urllib.request.urlopen(request, timeout=CHANGE_S) as answer:
                found: object = json.loads(answer.read(MOST))
                return found
        except HTTPError as error:
            with error:
                said = error.read(1_000).decode("utf-8", "replace")
            if error.code == 405:
                said = f"the process at {self.name} changes nothing: start it with --console --allow-changes"
            raise UsageError(unstopped(said)) from None

    def close(self) -> None:
        self._ends.set()
        self._begins.set()
        self._thread.join(PATIENCE_S)

    def _ask(self) -> None:
        rounds = 0
        while not self._ends.wait(EVERY_S):
            self._begins.wait()
            self._left -= 1
            if self._left < 0:
                self._begins.clear()
                rounds = 0
                continue
            self._seen = self._looked(rounds % ROUNDS == 0)
            rounds = 0 if self._seen.why else rounds + 1

    def _looked(self, whole: bool) -> Seen:
        last = self._seen
        try:
            record, heard = last.record, last.heard
            if whole or record is None:
                record, heard = fetched(self.name, "statistics.json"), heard + 1
            if not {"command", "statistics"} <= record.keys():
                raise ValueError("what answers there is no process of waterclock")
            return Seen(record, self._dials(), heard=heard)
        except (OSError, HTTPException, ValueError, AttributeError, RecursionError, NoSuchPage) as error:
            return last._replace(why=unstopped(getattr(error, "reason", error)))

    def _dials(self) -> Any:
        try:
            return fetched(self.name, "dials.json")["statistics"]
        except NoSuchPage:
            return {}  # it has no wheel


def fetched(address: str, path: str) -> Any:
    """The record of that page. `NoSuchPage` if the process has none; OSError or ValueError if it cannot be had."""
    try:
        with urllib.request.urlopen(f"http://{address}/{path}", timeout=PATIENCE_S) as answer:
            return json.loads(answer.read(MOST))
    except HTTPError as error:
        with error:
            if error.code == 404:
                raise NoSuchPage(f"{address} has no page /{path}") from None
            raise OSError(error.read(1_000).decode("utf-8", "replace").strip() or error.reason) from None
