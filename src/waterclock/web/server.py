"""A small server: each route is a function that makes its page when somebody asks for it.

    GET /            links to the routes
    GET /ROUTE       200 with the page; 500 with a sentence where it cannot be made; 503 once the server closes
    GET /BELOW/TEXT  likewise, the page of what TEXT says
    GET another      404 with a sentence that names the routes
    HEAD             as GET, without the page
    anything else    405

Rule 1: it listens on this machine only. Who wants it elsewhere puts a server with users and TLS before it.
Rule 2: pages are made by one thread at a time, whoever asks. Who waits for longer than PATIENCE_S gets a 503.
Rule 3: a page that cannot be made stops nothing else.
Rule 4: a client is served once, by a thread of its own. It has PATIENCE_S to send its request, and PATIENCE_S to take the
        answer. There are at most MOST of them. One more, and the one is dropped that has been sending its request for the
        longest, the newcomer last. So nobody is kept out by clients that say nothing.
Rule 5: `close` waits for a page that is being made, and none is made afterwards: what it asks may be closed then, too.
        A page that hangs is not waited for longer than PATIENCE_S, and a client that is to take its answer than GRACE_S.
"""

from __future__ import annotations

import socket
import socketserver
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from html import escape
from http.server import BaseHTTPRequestHandler
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

from waterclock.clock import SystemClock
from waterclock.errors import UsageError

HOST: Final = "127.0.0.1"
PATIENCE_S: Final = 10.0
GRACE_S: Final = 1.0
LOOK_S: Final = 0.1  # how often it looks for who is too slow, and whether it is to end
MOST: Final = 32  # clients at once
SENTENCE: Final = "text/plain; charset=utf-8"

Page = tuple[str, str]  # content type, text
Routes = Mapping[str, Callable[[], Page]]  # path -> what makes its page
Below = Mapping[
    str, Callable[[str], Page]
]  # path that ends with / -> what makes a page of what stands behind it, decoded


class Answer(NamedTuple):
    """A status, and the page that goes with it."""

    status: int
    content_type: str
    body: bytes


class Server:
    """Answers at `http://127.0.0.1:port` with the pages of `routes`, from threads of its own, until `close`.

    `port` 0 is any free one. UsageError where the port is taken, or none that one may listen on.

    >>> with Server({"/hello": lambda: ("text/plain", "hello")}, 0) as server:
    ...     server.url.startswith("http://127.0.0.1:")
    True
    """

    def __init__(self, routes: Routes, port: int, below: Below | None = None) -> None:
        self._routes, self._below, self._alone, self._closed = routes, below or {}, threading.Lock(), False
        try:
            self._listener = _Listener(port, self._answer)
        except (OSError, OverflowError) as error:
            why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            raise UsageError(f"metrics cannot be served on port {port} of {HOST}: {why}. Name another port") from error
        self._thread = threading.Thread(target=self._listener.serve_forever, args=(LOOK_S,), name="web", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """Where the index is, without a slash at the end."""
        return f"http://{HOST}:{self._listener.server_address[1]}"

    def close(self) -> None:
        """Listen no more, and wait for a page that is being made; a second time does nothing."""
        self._listener.shutdown()
        self._listener.server_close()
        self._thread.join()
        done = self._alone.acquire(timeout=PATIENCE_S)
        self._closed = True
        if done:
            self._alone.release()
        self._listener.leave()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _answer(self, path: str) -> Answer:
        path = path.partition("?")[0]
        if path == "/":
            return Answer(200, "text/html; charset=utf-8", _index(self._routes).encode())
        make = self._maker(path)
        if make is None:
            return _sentence(404, f"there is no such page: ask for {' or '.join(self._routes)}")
        if not self._alone.acquire(timeout=PATIENCE_S):
            return _sentence(503, f"the page before this one takes longer than {PATIENCE_S:g} s: ask again later")
        try:
            return _sentence(503, "the command is ending") if self._closed else _made(path, make)
        finally:
            self._alone.release()

    def _maker(self, path: str) -> Callable[[], Page] | None:
        if path in self._routes:
            return self._routes[path]
        return next(
            (partial(make, unquote(path[len(at) :])) for at, make in self._below.items() if path.startswith(at)), None
        )


def _made(path: str, make: Callable[[], Page]) -> Answer:
    try:
        content_type, text = make()
        return Answer(200, content_type, text.encode("utf-8", "replace"))
    except Exception as error:  # whatever it is: the client gets it as its answer
        return _sentence(500, f"{path} could not be made: {error}")


def _sentence(status: int, text: str) -> Answer:
    return Answer(status, SENTENCE, f"{text}\n".encode("utf-8", "replace"))


def _index(routes: Routes) -> str:
    links = "".join(f'<li><a href="{escape(path)}">{escape(path)}</a></li>\n' for path in routes)
    return f'<!doctype html>\n<html lang="en">\n<title>waterclock</title>\n<ul>\n{links}</ul>\n</html>\n'


class _Client:
    """A connection, since when it has been there, and whether its request is still on its way."""

    def __init__(self, connection: socket.socket, since_s: float) -> None:
        self.connection, self.since_s, self.sending = connection, since_s, True

    def drop(self) -> None:
        """Wake its thread, wherever it reads or writes: it then ends, and closes the connection."""
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)


class _Listener(socketserver.ThreadingTCPServer):
    allow_reuse_address = True  # at once after an earlier process, whose connections are not forgotten yet
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, port: int, answer: Callable[[str], Answer]) -> None:
        self.answer = answer
        self._clock, self._clients, self._changed = SystemClock(), dict[Any, _Client](), threading.Condition()
        super().__init__((HOST, port), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Give it a thread, and drop one where there are too many; in the thread that listens."""
        with self._changed:
            self._clients[request] = newcomer = _Client(request, self._clock.monotonic_s())
            dropped = self._one_too_many()
            if dropped is not None:
                del self._clients[dropped.connection]
        if dropped is newcomer:
            self.shutdown_request(request)
            return
        if dropped is not None:
            dropped.drop()
        super().process_request(request, client_address)

    def _one_too_many(self) -> _Client | None:
        """Who has been sending for the longest, the newcomer last; None while there are no more than MOST."""
        sending = (client for client in self._clients.values() if client.sending)
        return next(sending) if len(self._clients) > MOST else None

    def service_actions(self) -> None:
        """Drop who has been there for too long; a few times a second, in the thread that listens."""
        since_s = self._clock.monotonic_s() - PATIENCE_S
        with self._changed:
            late = [client for client in self._clients.values() if client.sending and client.since_s < since_s]
        for client in late:
            client.drop()

    def heard(self, request: Any) -> None:
        """Its request is here; from now on it waits for us."""
        with self._changed:
            if request in self._clients:
                self._clients[request].sending = False

    def leave(self) -> None:
        """Drop all clients; those that are about to take their answer, after GRACE_S."""
        with self._changed:
            for client in [client for client in self._clients.values() if client.sending]:
                client.drop()
            self._changed.wait_for(lambda: not self._clients, GRACE_S)
            for client in self._clients.values():
                client.drop()

    def shutdown_request(self, request: Any) -> None:
        """A client is done, or was dropped."""
        with self._changed:
            self._clients.pop(request, None)
            self._changed.notify_all()
        super().shutdown_request(request)

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: a client that goes away in the middle is no error of ours."""


class _Handler(BaseHTTPRequestHandler):
    timeout = PATIENCE_S  # of one read; and of writing the whole answer
    server: _Listener

    def do_GET(self) -> None:
        self.server.heard(self.request)
        self._send(self.server.answer(self.path))

    do_HEAD = do_GET

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What http.server refuses by itself: another method (501 there), a line or a header that is too long."""
        wrong = code == 501
        self._send(_sentence(405, "only GET and HEAD are answered") if wrong else _sentence(code, message or "refused"))

    def _send(self, answer: Answer) -> None:
        self.send_response(answer.status)
        for name, value in (
            ("Content-Type", answer.content_type),
            ("Content-Length", str(len(answer.body))),
            ("Cache-Control", "no-store"),
            ("X-Content-Type-Options", "nosniff"),
            *([("Allow", "GET, HEAD")] if answer.status == 405 else []),
        ):
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    def version_string(self) -> str:
        return "waterclock"

    def log_message(self, format: str, *args: object) -> None:
        """Requests are not logged."""
