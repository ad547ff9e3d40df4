"""GET /metrics over HTTP: what Prometheus comes for, made when it comes.

Rule 1: it listens on this machine only. Who wants it elsewhere puts a server with users and TLS before it.
Rule 2: the page is made by one thread at a time, whoever asks.
Rule 3: a page that cannot be made is answer 500 with a sentence; it stops nothing else.
Rule 4: `close` waits for a page that is being made, and none is made afterwards: what it asks may be closed then, too.
        A page that hangs is not waited for longer than 10 s.
"""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler

from waterclock.errors import UsageError

HOST = "127.0.0.1"
CONTENT = "text/plain; version=0.0.4; charset=utf-8"
_PATIENCE_S = 10.0


class _Door(socketserver.ThreadingTCPServer):
    allow_reuse_address = True  # at once after an earlier process, whose connections are not forgotten yet
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: a client that goes away in the middle is no error of ours."""


class MetricsServer:
    """Answers GET /metrics at `http://127.0.0.1:port/metrics` with `page()`, from threads of its own, until `close`.

    `port` 0 is any free one. UsageError where the port is taken, or none that one may listen on.

    >>> with MetricsServer(lambda: "", 0) as server:
    ...     server.url.startswith("http://127.0.0.1:")
    True
    """

    def __init__(self, page: Callable[[], str], port: int) -> None:
        self._page, self._alone, self._closed = page, threading.Lock(), False
        try:
            self._door = _Door((HOST, port), self._handler())
        except (OSError, OverflowError) as error:
            why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            raise UsageError(f"metrics cannot be served on port {port} of {HOST}: {why}. Name another port") from error
        self._thread = threading.Thread(target=self._door.serve_forever, name="metrics", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """Where the page is."""
        return f"http://{HOST}:{self._door.server_address[1]}/metrics"

    def close(self) -> None:
        """Listen no more, and wait for a page that is being made; a second time does nothing."""
        self._door.shutdown()
        self._door.server_close()
        self._thread.join()
        done = self._alone.acquire(timeout=_PATIENCE_S)
        self._closed = True
        if done:
            self._alone.release()

    def __enter__(self) -> MetricsServer:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _answer(self, path: str) -> tuple[int, str]:
        if path.partition("?")[0] != "/metrics":
            return 404, "ask for /metrics\n"
        try:
            with self._alone:
                return (503, "closed\n") if self._closed else (200, self._page())
        except Exception as error:  # whatever it is: the one who asks is told
            return 500, f"the metrics could not be made: {error}\n"

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        answer = self._answer

        class Handler(BaseHTTPRequestHandler):
            timeout = _PATIENCE_S

            def do_GET(self) -> None:
                status, page = answer(self.path)
                body = page.encode()
                self.send_response(status)
                self.send_header("Content-Type", CONTENT if status == 200 else "text/plain; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Requests are not told of."""

        return Handler
