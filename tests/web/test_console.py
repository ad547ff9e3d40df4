"""The console's server side: the page's files, the stream of what changes, and processes that go and come back."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import count
from typing import Any
from unittest.mock import ANY

import pytest

from tests.web.reading import get
from tests.web.test_commands import process
from waterclock import cli
from waterclock.cdc.statistics import CaptureStatistics
from waterclock.relay.statistics import DueMessage, DueStatistics
from waterclock.web.console import sources as module
from waterclock.web.console.console import SILENCES, Console
from waterclock.web.console.sources import Door, OwnProcess, Seen
from waterclock.web.dial import Dial
from waterclock.web.option import open_server
from waterclock.web.record import plain
from waterclock.web.server import NoSuchPage, PageServer


class Fixed:
    """A source that says what a test has it say."""

    name, may_change = "127.0.0.1:1", False

    def __init__(self) -> None:
        self.is_closed, self.says = False, Seen(why="it was not asked yet")

    def seen(self) -> Seen:
        return self.says

    def change(self, asked: object) -> object:
        return asked

    def ask(self, path: str, text: str) -> object:
        return [path, text]

    def close(self) -> None:
        self.is_closed = True


def events(piece: str) -> list[tuple[str, Any]]:
    """(kind, data) of each event of a piece."""
    found = []
    for event in piece.split("\n\n"):
        named = dict(line.split(": ", 1) for line in event.splitlines())
        if "event" in named:
            found.append((named["event"], json.loads(named["data"])))
    return found


def until(holds: Callable[[], bool]) -> None:
    for _ in range(1_000):
        if holds():
            return
        time.sleep(0.02)
    raise AssertionError("it did not come to hold within 20 s")


# The stream


def pieces(*sources: Any) -> Iterator[str]:
    (make,) = Console(sources).streams.values()
    return make()


def test_who_connects_is_told_all_and_then_what_has_changed() -> None:
    source = Fixed()
    record = {"command": "cdc", "statistics": plain(CaptureStatistics(changes=1_200))}
    source.says = Seen(record, {"timers": {"levels": [{"3": 2}]}}, heard=1)
    stream = pieces(source)
    whole = {"at": 0, "name": "127.0.0.1:1", "changes": False, "record": record, "why": "", "heard": 1, "panels": ANY}
    dials = {"at": 0, "dials": {"timers": {"levels": [{"3": 2}]}}}
    first = next(stream)
    assert first.startswith("retry: 1000\n\n")
    assert events(first) == [("source", whole), ("dials", dials)]
    assert events(first)[0][1]["panels"][0]["figures"][1] == ["1,200", "changes in Kafka"]
    assert next(stream) == ""
    source.says = source.says._replace(dials={})
    assert events(next(stream)) == [("dials", {"at": 0, "dials": {}})]
    source.says = source.says._replace(why="refused")
    assert events(next(stream)) == [("source", {**whole, "why": "refused"})]
    assert events(next(pieces(source))) == [("source", {**whole, "why": "refused"}), ("dials", {"at": 0, "dials": {}})]


def test_a_stream_that_has_nothing_to_say_says_so_now_and_then() -> None:
    stream = pieces(Fixed())
    assert [next(stream) for _ in range(SILENCES + 1)][1:] == [""] * (SILENCES - 1) + [": nothing new\n\n"]


def test_what_a_source_raises_is_why_it_is_away_and_the_others_are_told_of() -> None:
    def fails() -> object:
        raise RuntimeError("the loop is closed.")

    other = Fixed()
    told = events(next(pieces(OwnProcess("broker", fails, dict), other)))
    assert [one["why"] for kind, one in told if kind == "source"] == ["the loop is closed", "it was not asked yet"]


def test_this_process_is_asked_for_its_record_once_in_so_many_rounds_and_for_its_dials_each_time() -> None:
    numbers, dials = count(), count()
    source = OwnProcess("run", lambda: {"n": next(numbers)}, lambda: {"w": Dial(1.0, ({next(dials): 1},))})
    seen = [source.seen() for _ in range(2 * module.ROUNDS)]
    assert [one.heard for one in seen] == [1] * module.ROUNDS + [2] * module.ROUNDS
    assert seen[-1].record is not None
    assert seen[-1].record["statistics"] == {"n": 1}
    assert seen[-1].dials == {"w": {"tick_ms": 1.0, "levels": [{"9": 1}], "size": 256}}


# The files of the page


def test_each_file_of_the_page_is_served_with_its_kind_and_nothing_else_is() -> None:
    console = Console([])
    with PageServer({}, 0, console.below) as server:
        page = get(f"{server.url}/console/")
        assert (page[0], page[2]["Content-Type"]) == (200, "text/html; charset=utf-8")
        kinds = {"console.css": "text/css", "dial.js": "text/javascript", "icon.svg": "image/svg+xml"}
        assert {name: get(f"{server.url}/console/{name}")[2]["Content-Type"] for name in kinds} == kinds
        for name in ("../command.py", "%2e%2e/sources.py", "page/index.html", "other.js"):
            assert get(f"{server.url}/console/{name}")[0] == 404


@pytest.mark.parametrize(
    ("path", "answer"),
    [("0/ids/a%2Fb%20%C3%A9", (200, '["ids", "a/b \\u00e9"]')),
     ("1/due/20", (404, "the console asks no process number 1 for /due/\n")),
     ("0/series/", (404, "the console asks no process number 0 for /series/\n"))],
)  # fmt: skip
def test_a_process_is_asked_for_the_pages_that_the_console_shows_alone(path: str, answer: tuple[int, str]) -> None:
    with PageServer({}, 0, Console([Fixed()]).below) as server:
        assert get(f"{server.url}/console/ask/{path}")[:2] == answer


def test_what_is_due_next_comes_as_a_panel_too() -> None:
    due = DueStatistics((DueMessage("delays-0-7", 1_000, "mails", "cart-17", "ann", "it is paused"),), 5_000)
    source = OwnProcess("relay", dict, dict, {"/due/": lambda most: due if most == "20" else None})
    with PageServer({}, 0, Console([source]).below) as server:
        found = json.loads(get(f"{server.url}/console/ask/0/due/20")[1])
    assert {name: found[name] for name in ("messages", "known_to_ms")} == plain(due)
    (row,) = found["panel"]["rows"]
    assert row[0] == {"moment": [1_000]}
    assert row[2:] == ["mails", "cart-17", "ann", "delays-0-7", {"chip": ["it is paused", "bad"]}]


def test_this_process_and_another_one_are_asked_alike() -> None:
    below = {"/due/": lambda text: {"messages": [text]}}
    with open_server(0, "relay", dict, lambda _: "", below) as server:  # type: ignore[attr-defined]
        own = OwnProcess("relay", dict, dict, below)
        with closing(Door(server.url.removeprefix("http://"))) as other:  # type: ignore[attr-defined]
            assert own.ask("due", "a/b é") == other.ask("due", "a/b é") == {"messages": ["a/b é"]}
            for source in (own, other):
                with pytest.raises(NoSuchPage):
                    source.ask("ids", "x")


# Doors of other processes


def test_a_process_that_goes_is_shown_as_away_with_the_last_that_it_said_and_comes_back() -> None:
    def served(port: int, number: int) -> Any:
        return open_server(
            port, "run", lambda: {"n": number}, lambda _: "", dials=lambda: {"w": Dial(1.0, ({3: number},))}
        )

    with served(0, 1) as first, closing(Door(first.url.removeprefix("http://"))) as source:
        assert source.seen() == Seen(why="it was not asked yet")
        until(lambda: source.seen().why == "")
        assert source.seen().record["statistics"] == {"n": 1}  # type: ignore[index]
        port = int(source.name.rpartition(":")[2])
        first.close()
        until(lambda: source.seen().why != "")
        gone = source.seen()
        assert "refused" in gone.why
        assert (gone.record["statistics"], gone.dials["w"]["levels"]) == ({"n": 1}, [{"3": 1}])  # type: ignore[index]
        with served(port, 2):
            until(lambda: source.seen().why == "")
            assert source.seen().record["statistics"] == {"n": 2}  # type: ignore[index]


@pytest.mark.parametrize("page", ["[]", "{}", "no JSON", '{"command": "run"}'])
def test_what_is_no_process_of_ours_is_away_and_says_why(page: str) -> None:
    with (
        PageServer({"/statistics.json": lambda: ("application/json", page)}, 0) as server,
        closing(Door(server.url.removeprefix("http://"))) as source,
    ):
        source.seen()
        until(lambda: source.seen().why not in ("", "it was not asked yet"))
        assert source.seen().record is None


def test_a_door_is_not_asked_when_nobody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LINGER", 3)
    asked = count()
    with (
        PageServer({"/statistics.json": lambda: ("application/json", str(next(asked)))}, 0) as server,
        closing(Door(server.url.removeprefix("http://"))) as source,
    ):
        time.sleep(0.5)
        assert next(asked) == 0
        source.seen()
        until(lambda: source._left < 0)
        seen = next(asked)
        time.sleep(0.5)
        assert 1 <= seen <= 4
        assert next(asked) == seen + 1


# The command


def test_a_command_with_console_serves_its_page_beside_its_metrics() -> None:
    with process("broker", "--port", "0", "--console") as (broker, url):
        assert broker.stderr is not None
        assert broker.stderr.readline() == f"console at {url}/console/\n"
        assert "<title>waterclock</title>" in get(f"{url}/console/")[1]
        dials = json.loads(get(f"{url}/dials.json")[1])["statistics"]
        assert dials["timers"]["size"] == 256
        assert sum(sum(level.values()) for level in dials["timers"]["levels"]) > 0


def test_a_command_without_it_has_no_console() -> None:
    with process("broker", "--port", "0") as (_, url):
        assert get(f"{url}/console/")[0] == 404


@pytest.mark.parametrize("url", ["https://127.0.0.1:1", "127.0.0.1", "http://h:1/other", "h:1:2", "a b:1"])
def test_what_is_no_address_is_wrong_usage(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        cli.main(["console", url])
    assert "is no address of a process: write it as http://127.0.0.1:9400" in capsys.readouterr().err


def test_a_port_that_is_taken_is_refused_with_the_option_to_name_another_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with PageServer({}, 0) as server:
        port = server.url.rpartition(":")[2]
        assert cli.main(["console", "127.0.0.1:1", "--port", port]) == 2
    assert "--port 0 takes any free one" in capsys.readouterr().err
