"""The server: routes, refusals, and clients that mean no good. Real sockets throughout."""

from __future__ import annotations

import http.client
import json
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from itertools import chain, repeat
from typing import Any

import pytest

from tests.web.reading import get
from waterclock.errors import UsageError
from waterclock.ports import holder
from waterclock.web import server as module
from waterclock.web.server import SENTENCE, Page, PageServer


@pytest.fixture
def server() -> Iterator[PageServer]:
    pages = chain(["first\n", "second\n"], repeat("another\n"))
    with PageServer({"/metrics": lambda: ("text/x", next(pages)), "/a&b": lambda: ("text/x", "")}, 0) as made:
        yield made


def port_of(server: PageServer) -> int:
    return int(server.url.rpartition(":")[2])


def connected(server: PageServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port_of(server)), timeout=10)


def answer(connection: socket.socket) -> bytes:
    """What comes until the server closes the connection, in whatever way."""
    got = b""
    while True:
        try:
            part = connection.recv(65536)
        except ConnectionResetError:
            return got
        if not part:
            return got
        got += part


# Routes


def test_each_request_gets_a_page_of_its_own_moment(server: PageServer) -> None:
    status, page, headers = get(f"{server.url}/metrics")
    assert (status, page, headers["Content-Type"], headers["Content-Length"]) == (200, "first\n", "text/x", "6")
    assert get(f"{server.url}/metrics?debug=1")[:2] == (200, "second\n")


def test_the_index_links_to_every_route(server: PageServer) -> None:
    status, page, headers = get(server.url)
    assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert '<a href="/metrics">/metrics</a>' in page
    assert '<a href="/a&amp;b">/a&amp;b</a>' in page


@pytest.mark.parametrize("path", ["/metric", "/metrics/", "/metrics/../x", "/statistics.json"])
def test_another_path_is_not_found_and_says_which_pages_there_are(server: PageServer, path: str) -> None:
    status, page, headers = get(server.url + path)
    assert (status, page) == (404, "there is no such page: ask for /metrics or /a&b\n")
    assert headers["Content-Type"] == SENTENCE


@pytest.mark.parametrize("path", ["/metrics", "/", "/other"])
def test_head_has_the_headers_of_get_and_no_page(server: PageServer, path: str) -> None:
    with closing(http.client.HTTPConnection("127.0.0.1", port_of(server), timeout=10)) as client:
        client.request("HEAD", path)
        head = client.getresponse()
        assert head.read() == b""
    with connected(server) as bare:
        bare.sendall(f"HEAD {path} HTTP/1.0\r\n\r\n".encode())
        assert answer(bare).endswith(b"\r\n\r\n")
    again = get(server.url + path)
    assert (head.status, head.headers["Content-Type"]) == (again[0], again[2]["Content-Type"])


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "WALTZ"])
def test_another_method_is_refused_with_those_that_are_not(server: PageServer, method: str) -> None:
    with connected(server) as client:
        client.sendall(f"{method} /metrics HTTP/1.1\r\n\r\n".encode())
        head, _, page = answer(client).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.0 405 ")
    assert b"Allow: GET, HEAD" in head
    assert page == b"only GET and HEAD are answered\n"


def test_a_page_that_cannot_be_made_is_a_500_and_the_next_one_is_served() -> None:
    answers: Iterator[Any] = iter([RuntimeError("the sink is away"), "well\n"])

    def page() -> Page:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return "text/x", str(answer)

    with PageServer({"/metrics": page}, 0) as server:
        assert get(f"{server.url}/metrics")[:2] == (500, "/metrics could not be made: the sink is away\n")
        assert get(f"{server.url}/metrics")[:2] == (200, "well\n")


def test_a_name_that_is_no_text_is_served_all_the_same() -> None:
    with PageServer({"/metrics": lambda: ("text/x", "b\udcff.toml")}, 0) as server:
        assert get(f"{server.url}/metrics")[:2] == (200, "b?.toml")


# Where it listens


def test_it_listens_on_this_machine_only(server: PageServer) -> None:
    assert server.url.startswith("http://127.0.0.1:")


def test_a_port_that_is_taken_is_refused_in_a_sentence() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as other:
        port = other.getsockname()[1]
        who = rf": {re.escape(there)} has it" if (there := holder("127.0.0.1", port)) else ""
        told = rf"port {port} of 127\.0\.0\.1: .*in use{who}\. Name another port: --metrics 0"
        with pytest.raises(UsageError, match=told):
            PageServer({}, port)


def test_after_close_nobody_listens_and_the_port_is_free(server: PageServer) -> None:
    port = port_of(server)
    server.close()
    server.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=5)
    with PageServer({"/metrics": lambda: ("text/x", "again\n")}, port) as again:
        assert get(f"{again.url}/metrics")[1] == "again\n"


# Clients that mean no good


@pytest.mark.parametrize(
    "nonsense",
    [
        b"\r\n",
        b"GET\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\xff",
        b"GET /" + b"x" * 70_000,
        b"A: b\r\n" * 200,
        b"\0" * 100,
    ],
    ids=["empty", "half", "TLS", "long line", "headers alone", "zeros"],
)
def test_nonsense_is_refused_and_the_next_one_is_served(server: PageServer, nonsense: bytes) -> None:
    with connected(server) as client:
        client.sendall(nonsense)
        client.shutdown(socket.SHUT_WR)
        assert not answer(client).startswith(b"HTTP/1.0 200")
    assert get(f"{server.url}/metrics")[0] == 200


def test_headers_without_end_are_refused(server: PageServer) -> None:
    with connected(server) as client:
        client.sendall(b"GET /metrics HTTP/1.1\r\n" + b"A: b\r\n" * 101 + b"\r\n")
        assert answer(client).startswith(b"HTTP/1.0 431 ")


def test_clients_that_say_nothing_keep_nobody_waiting(server: PageServer) -> None:
    with ExitStack() as opened:
        silent = [opened.enter_context(connected(server)) for _ in range(100)]
        silent[-1].sendall(b"GET /met")
        assert get(f"{server.url}/metrics")[0] == 200
        silent[-1].sendall(b"rics HTTP/1.0\r\n\r\n")
        assert answer(silent[-1]).startswith(b"HTTP/1.0 200")


def test_a_client_that_says_nothing_for_too_long_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    assert module._Handler.timeout == 10  # seconds, as docs/operations.md says
    monkeypatch.setattr(module._Handler, "timeout", 0.2)
    with PageServer({}, 0) as server, connected(server) as silent:
        silent.sendall(b"GET /met")
        assert answer(silent) == b""


def test_who_does_not_take_his_answer_keeps_nobody_waiting_and_not_the_end_either() -> None:
    routes = {"/large": lambda: ("text/x", "x" * 50_000_000), "/small": lambda: ("text/x", "small")}
    with ExitStack() as opened:
        server = PageServer(routes, 0)
        for _ in range(3):
            lazy = opened.enter_context(connected(server))
            lazy.sendall(b"GET /large HTTP/1.0\r\n\r\n")
        assert get(f"{server.url}/small")[1] == "small"
        began = time.monotonic()
        server.close()
        assert time.monotonic() - began < module.PATIENCE_S / 2


def test_close_waits_for_no_client_that_says_nothing(server: PageServer) -> None:
    with ExitStack() as opened:
        for _ in range(5):
            opened.enter_context(connected(server))
        assert get(server.url)[0] == 200  # they are all accepted
        began = time.monotonic()
        server.close()
        assert time.monotonic() - began < module.PATIENCE_S / 2


# Pages are made by one thread at a time


def test_a_page_is_made_by_one_thread_at_a_time() -> None:
    inside, most, gate = 0, 0, threading.Barrier(2, timeout=10)

    def page() -> Page:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        threading.Event().wait(0.05)
        inside -= 1
        return "text/x", ""

    def ask(path: str) -> None:
        gate.wait()
        get(server.url + path)

    with PageServer({"/a": page, "/b": page}, 0) as server:
        askers = [threading.Thread(target=ask, args=(path,)) for path in ("/a", "/b")]
        for asker in askers:
            asker.start()
        for asker in askers:
            asker.join()
    assert most == 1


def test_who_waits_for_a_page_that_hangs_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE_S", 0.5)
    inside, go_on = threading.Event(), threading.Event()

    def page() -> Page:
        inside.set()
        go_on.wait(10)
        return "text/x", ""

    with PageServer({"/a": page, "/b": lambda: ("text/x", "")}, 0) as server, connected(server) as first:
        first.sendall(b"GET /a HTTP/1.0\r\n\r\n")
        assert inside.wait(10)
        assert get(f"{server.url}/b")[:2] == (
            503,
            "the page before this one takes longer than 0.5 s: ask again later\n",
        )
        go_on.set()


def test_close_waits_for_a_page_that_is_being_made_and_no_other_follows() -> None:
    inside, go_on, made = threading.Event(), threading.Event(), []

    def page() -> Page:
        inside.set()
        go_on.wait(10)
        made.append("page")
        return "text/x", ""

    server = PageServer({"/metrics": page}, 0)
    asker = threading.Thread(target=get, args=(f"{server.url}/metrics",))
    asker.start()
    assert inside.wait(10)
    closer = threading.Thread(target=lambda: (server.close(), made.append("closed")))
    closer.start()
    closer.join(1)
    assert made == []
    go_on.set()
    closer.join(10)
    asker.join(10)
    assert made == ["page", "closed"]
    assert server._answer("/metrics")[0] == 503
    assert made == ["page", "closed"]


def test_many_ask_at_once_and_each_gets_a_whole_page() -> None:
    whole, found = json.dumps(list(range(5000))), list[str]()
    with PageServer({"/a": lambda: ("application/json", whole)}, 0) as server:
        askers = [threading.Thread(target=lambda: found.append(get(f"{server.url}/a")[1])) for _ in range(20)]
        for asker in askers:
            asker.start()
        for asker in askers:
            asker.join()
    assert found == [whole] * 20


def test_a_page_below_a_path_is_made_of_the_text_behind_it() -> None:
    with PageServer(
        {"/a": lambda: ("text/plain", "a")}, 0, {"/ids/": lambda text: ("text/plain", f"<{text}>")}
    ) as server:
        assert get(f"{server.url}/ids/cart%2F17%20%C3%BC?x=1")[:2] == (200, "<cart/17 ü>")
        assert get(f"{server.url}/ids/")[:2] == (200, "<>")
        assert get(f"{server.url}/ids")[0] == 404
