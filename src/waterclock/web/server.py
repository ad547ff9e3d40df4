"""A small server: each route is a function that makes its page when somebody asks for it.

    GET /            links to the routes
    GET /ROUTE       200 with the page; 500 with a sentence if it cannot be made; 503 once the server closes
    GET /BELOW/TEXT  likewise, the page of what TEXT says; 404 if there is none (`NoSuchPage`)
    GET /STREAM      200 with server-sent events, until the client or the server ends
    GET another      404 with a sentence that names the routes
    HEAD             as GET, without the page
    POST /DEED       200 with what became of it; 400 with a sentence if it was refused; 403 for who may not ask
    anything else    405

Rule 1: It listens on this machine only. Who wants it elsewhere puts a server with users and TLS before it.
Rule 2: Pages are made by one thread at a time, whoever asks. Who waits for longer than PATIENCE_S gets a 503.
Rule 3: A page that cannot be made stops nothing else.
Rule 4: A client is served once, by a daemon thread of its own, and keeps nobody waiting: it is dropped once it has sent
        nothing, or taken nothing, for PATIENCE_S. How many there are is not limited: they are of this machine.
Rule 5: `close` waits for a page that is being made, for PATIENCE_S at most, and none is made afterwards: what it asks may
        be closed then, too. It waits for no client.
Rule 6: What lies below GUARDED is answered only under a name of this machine (HERE): a page of another site that has its
        own name lead here cannot read it. A piece of a stream is made as a page is, alone; after it the stream rests.
Rule 7: A deed is done for a page of this very server alone: the header Origin says so, which no page of another site can
        write, and the body is JSON, which no form of another site can send. Rule 2 is not for deeds: they may take long.
Rule 8: A browser takes nothing of another site into a page from here, runs no script that stands in it, and shows it in no
        frame.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from html import escape
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingTCPServer
from typing import Final
from urllib.parse import unquote, urlsplit

from waterclock.errors import UsageError, WaterclockError, unstopped
from waterclock.ports import holder

HOST: Final = "127.0.0.1"
PATIENCE_S: Final = 10.0
LOOK_S: Final = 0.1  # how often the listener looks whether it is to end
HTML: Final = "text/html; charset=utf-8"
JSON: Final = "application/json"
SENTENCE: Final = "text/plain; charset=utf-8"
EVENTS: Final = "text/event-stream; charset=utf-8"
EVERY_S: Final = 0.2  # between two pieces of a stream
HERE: Final = (HOST, "localhost", "::1")
MOST_ASKED: Final = 65_536  # bytes of a deed's body
GUARDED: Final = "/console/"
ONLY_OURS: Final = "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

Page = tuple[str, str]  # content type, text
Answer = tuple[int, str, str]  # status, content type, text
Routes = Mapping[str, Callable[[], Page]]  # path -> what makes its page
# path that ends with / -> what makes a page of the text behind it, decoded
Below = Mapping[str, Callable[[str], Page]]
# path -> what does as a body says, and says what became of it; WaterclockError and ValueError are refusals
Deeds = Mapping[str, Callable[[bytes], Page]]
# path -> what makes the pieces of a stream, without end; "" if there is nothing new
Streams = Mapping[str, Callable[[], Iterator[str]]]


class NoSuchPage(Exception):
    """Of what makes the pages below a path: there is none for this text. Its sentence is the answer."""


class PageServer:
    """Answers at `http://127.0.0.1:port` with the pages of `routes`, from threads of its own, until `close`.

    `port` 0 is any free one. UsageError if the port is taken, or none that one may listen on; it names the option `free`.

    >>> with PageServer({"/hello": lambda: ("text/plain", "hello")}, 0) as server:
    ...     server.url.startswith("http://127.0.0.1:")
    True
    """

    def __init__(
        self,
        routes: Routes,
        port: int,
        below: Below | None = None,
        streams: Streams | None = None,
        free: str = "--metrics 0",
        deeds: Deeds | None = None,
    ) -> None:
        self._routes = routes
        self._below = below or {}
        self._streams = streams or {}
        self._ends = threading.Event()
        self._alone = threading.Lock()
        self._closed = False
        try:
            self._listener = _PageListener((HOST, port), _Handler)
        except (OSError, OverflowError) as error:
            why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            held = f": {there} has it" if (there := holder(HOST, port)) else ""
            raise UsageError(
                f"metrics cannot be served on port {port} of {HOST}: {why}{held}. Name another port: {free} takes any "
                "free one"
            ) from error
        self._listener.answer = self._answer
        self._listener.stream = self._stream
        self._listener.deeds = deeds or {}
        self._thread = threading.Thread(target=self._listener.serve_forever, args=(LOOK_S,), name="web", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """Where the index is, without a slash at the end."""
        return f"http://{HOST}:{self._listener.server_address[1]}"

    def close(self) -> None:
        """Listen no more, and wait for a page that is being made; a second time does nothing."""
        self._ends.set()
        self._listener.shutdown()
        self._listener.server_close()
        self._thread.join()
        done = self._alone.acquire(timeout=PATIENCE_S)
        self._closed = True
        if done:
            self._alone.release()

    def __enter__(self) -> PageServer:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _answer(self, path: str) -> Answer:
        path = path.partition("?")[0]
        if path == "/":
            links = "".join(f'<li><a href="{escape(path)}">{escape(path)}</a></li>\n' for path in self._routes)
            found = f'<!doctype html>\n<html lang="en">\n<title>waterclock</title>\n<ul>\n{links}</ul>\n</html>\n'
            return 200, HTML, found
        make = self._routes.get(path)
        for start, of_text in self._below.items():
            if path.startswith(start):
                make = partial(of_text, unquote(path.removeprefix(start)))
        if make is None:
            return 404, SENTENCE, f"there is no such page: ask for {' or '.join(self._routes)}\n"
        if not self._alone.acquire(timeout=PATIENCE_S):
            return 503, SENTENCE, f"the page before this one takes longer than {PATIENCE_S:g} s: ask again later\n"
        try:
            return (503, SENTENCE, "the command is ending\n") if self._closed else (200, *make())
        except NoSuchPage as error:
            return 404, SENTENCE, f"{error}\n"
        except Exception as error:  # whatever it is: the client gets it as its answer
            return 500, SENTENCE, f"{path} could not be made: {error}\n"
        finally:
            self._alone.release()

    def _stream(self, path: str) -> Iterator[str] | None:
        """The pieces of the stream of that path, each when it is made; None if there is none."""
        make = self._streams.get(path.partition("?")[0])
        return None if make is None else self._pieces(make())

    def _pieces(self, pieces: Iterator[str]) -> Iterator[str]:
        while not self._closed:
            with self._alone:
                piece = "" if self._closed else next(pieces)
            yield piece
            if self._ends.wait(EVERY_S):
                return


class _PageListener(ThreadingTCPServer):
    allow_reuse_address = True  # at once after an earlier process, whose connections are not forgotten yet
    daemon_threads = True
    request_queue_size = 128
    answer: Callable[[str], Answer]
    stream: Callable[[str], Iterator[str] | None]
    deeds: Deeds

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: a client that goes away in the middle is no error of ours."""


class _Handler(BaseHTTPRequestHandler):
    timeout = PATIENCE_S  # of one read; and of writing the whole answer
    server: _PageListener

    def do_GET(self) -> None:
        if self.path.startswith(GUARDED) and not self._is_here():
            self._send(403, SENTENCE, f"{self.headers['Host']} is no name of this machine: ask for {HOST}\n")
        elif (pieces := self.server.stream(self.path)) is None:
            self._send(*self.server.answer(self.path))
        else:
            self._head(200, EVENTS)
            for piece in () if self.command == "HEAD" else pieces:
                if piece:
                    self.wfile.write(piece.encode("utf-8", "replace"))

    do_HEAD = do_GET

    def do_POST(self) -> None:
        deed, length = self.server.deeds.get(self.path), self.headers.get("Content-Length", "")
        own = f"http://{self.headers.get('Host')}"
        if deed is None:
            self.send_error(501)
        elif not self._is_here() or self.headers.get("Origin") != own or self.headers.get_content_type() != JSON:
            self._send(403, SENTENCE, f"only a page of {own} may ask for this, in JSON\n")
        elif not length.isdecimal() or int(length) > MOST_ASKED:
            self._send(400, SENTENCE, f"a body of {MOST_ASKED} bytes at most is taken, with its Content-Length\n")
        else:
            self._send(*_done(deed, self.rfile.read(int(length))))

    def _is_here(self) -> bool:
        """Rule 6."""
        return urlsplit(f"//{self.headers.get('Host') or HOST}").hostname in HERE

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What http.server refuses by itself: another method (501 there), a line or a header that is too long."""
        if code == 501:
            code, message = 405, "only GET and HEAD are answered"
        self._send(code, SENTENCE, f"{message or 'refused'}\n")

    def _send(self, status: int, content_type: str, text: str) -> None:
        body = text.encode("utf-8", "replace")
        self._head(status, content_type, len(body))
        if self.command != "HEAD":
            self.wfile.write(body)

    def _head(self, status: int, content_type: str, length: int | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        if length is not None:
            self.send_header("Content-Length", str(length))
        self.send_header("Cache-Control", "no-store")
        self.send_header("Content-Security-Policy", ONLY_OURS)
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("X-Content-Type-Options", "nosniff")
        if status == 405:
            self.send_header("Allow", "GET, HEAD")
        self.end_headers()

    def version_string(self) -> str:
        return "waterclock"

    def log_message(self, format: str, *args: object) -> None:
        """Requests are not logged."""


def _done(deed: Callable[[bytes], Page], body: bytes) -> Answer:
    try:
        return (200, *deed(body))
    except (WaterclockError, ValueError) as error:
        return 400, SENTENCE, f"{unstopped(error)}.\n"
    except Exception as error:  # whatever it is: the client gets it as its answer
        return 500, SENTENCE, f"it could not be done: {error}\n"
