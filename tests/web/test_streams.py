"""The server's streams, what it guards, and the deeds that it does for its own page alone. Real sockets throughout."""

from __future__ import annotations

import http.client
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from itertools import count

import pytest

from tests.web.reading import get
from tests.web.test_server import answer, connected, port_of
from waterclock.errors import UsageError
from waterclock.web import server as module
from waterclock.web.server import NoSuchPage, Page, PageServer


class Numbers:
    """A stream of numbers; how often it was begun."""

    def __init__(self) -> None:
        self.begun = 0

    def __call__(self) -> Iterator[str]:
        self.begun += 1
        return (f"data: {number}\n\n" if number % 2 else "" for number in count())


def test_a_stream_goes_on_until_the_client_leaves_and_others_are_served_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "EVERY_S", 0.01)
    with (
        PageServer({"/metrics": lambda: ("text/x", "well\n")}, 0, streams={"/events": Numbers()}) as server,
        urllib.request.urlopen(f"{server.url}/events", timeout=10) as stream,
    ):
        assert stream.headers["Content-Type"] == "text/event-stream; charset=utf-8"
        assert [stream.readline() for _ in range(4)] == [b"data: 1\n", b"\n", b"data: 3\n", b"\n"]
        assert get(f"{server.url}/metrics")[:2] == (200, "well\n")


def test_a_stream_ends_with_the_server_and_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "EVERY_S", 0.01)
    server = PageServer({}, 0, streams={"/events": Numbers()})
    with urllib.request.urlopen(f"{server.url}/events", timeout=10) as stream:
        assert stream.readline() == b"data: 1\n"
        server.close()
        assert stream.read().endswith(b"\n")


def test_head_of_a_stream_begins_none() -> None:
    numbers = Numbers()
    with PageServer({}, 0, streams={"/events": numbers}) as server, connected(server) as client:
        client.sendall(b"HEAD /events HTTP/1.0\r\n\r\n")
        assert b"text/event-stream" in answer(client)
    assert numbers.begun == 1


@pytest.mark.parametrize(
    ("host", "status"),
    [("evil.example", 403), ("127.0.0.1.evil.example:80", 403), ("localhost:8000", 200), ("[::1]:1", 200), ("", 200)],
)
def test_what_is_guarded_is_answered_under_a_name_of_this_machine_only(host: str, status: int) -> None:
    """A page of evil.example, whose name leads to 127.0.0.1 by now, would read the console as its own."""
    below = {"/console/": lambda text: ("text/x", text), "/ids/": lambda text: ("text/x", text)}
    with PageServer({}, 0, below) as server:
        for path, expected in (("/console/x", status), ("/ids/x", 200)):
            with connected(server) as client:
                named = f"Host: {host}\r\n" if host else ""
                client.sendall(f"GET {path} HTTP/1.0\r\n{named}\r\n".encode())
                assert answer(client).startswith(f"HTTP/1.0 {expected} ".encode())


def test_a_page_takes_nothing_of_another_site() -> None:
    with PageServer({"/metrics": lambda: ("text/x", "")}, 0) as server:
        policy = get(f"{server.url}/metrics")[2]["Content-Security-Policy"]
    assert "default-src 'self';" in policy
    assert "frame-ancestors 'none'" in policy


def test_a_page_below_that_is_not_there_is_a_404() -> None:
    def none(text: str) -> Page:
        raise NoSuchPage(f"there is no {text}")

    with PageServer({}, 0, {"/console/": none}) as server:
        assert get(f"{server.url}/console/x")[:2] == (404, "there is no x\n")


# Deeds


def asked(server: PageServer, path: str, body: bytes, **headers: str) -> tuple[int, bytes]:
    """What becomes of a POST; an underscore in a header's name stands for a hyphen."""
    with closing(http.client.HTTPConnection("127.0.0.1", port_of(server), timeout=10)) as client:
        client.request("POST", path, body, {name.replace("_", "-"): value for name, value in headers.items()})
        answer = client.getresponse()
        return answer.status, answer.read()


def test_a_deed_is_done_for_a_page_of_this_server_alone() -> None:
    """A page of another site can have a browser send a form here, or its own name lead here."""
    done = []

    def deed(body: bytes) -> Page:
        done.append(body)
        if body == b"no":
            raise UsageError("it cannot be.")
        return "text/x", "done"

    with PageServer({}, 0, deeds={"/console/change/0": deed}) as server:
        own = {"Origin": server.url, "Content_Type": "application/json"}
        path, evil = "/console/change/0", "http://evil.example"
        assert asked(server, path, b"{}", **own) == (200, b"done")
        assert asked(server, path, b"no", **own) == (400, b"it cannot be.\n")
        assert done == [b"{}", b"no"]
        for wrong in (
            {**own, "Origin": evil},
            {"Content_Type": "application/json"},
            {**own, "Content_Type": "text/plain"},
            {**own, "Origin": evil, "Host": "evil.example"},
        ):
            assert asked(server, path, b"{}", **wrong)[0] == 403
        assert asked(server, path, b"x" * 70_000, **own)[0] == 400
        assert asked(server, "/console/change/1", b"{}", **own)[0] == 405
        assert done == [b"{}", b"no"]


def test_a_deed_that_takes_long_keeps_no_page_waiting() -> None:
    begun, goes_on = threading.Event(), threading.Event()

    def deed(body: bytes) -> Page:
        begun.set()
        assert goes_on.wait(10)
        return "text/x", "done"

    with PageServer({"/metrics": lambda: ("text/x", "well\n")}, 0, deeds={"/do": deed}) as server:
        own = {"Origin": server.url, "Content_Type": "application/json"}
        thread = threading.Thread(target=asked, args=(server, "/do", b"{}"), kwargs=own)
        thread.start()
        assert begun.wait(10)
        assert get(f"{server.url}/metrics")[:2] == (200, "well\n")
        goes_on.set()
        thread.join()
