"""What happens to a sink behind a connection: something at one of its steps, or a way that is cut at its COMMIT."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from waterclock.sinks import Sink


class Way:
    """A way that is cut at the first COMMIT: before it is handed over, or before its answer is.

    `listening` is where a sink comes; `connect` leads on to the server. `commit`: the bytes of a COMMIT.
    """

    def __init__(self, listening: socket.socket, connect: Callable[[], socket.socket], commit: bytes, cut: str) -> None:
        self._listening = listening
        self._connect = connect
        self._commit = commit
        self._cut = cut
        self._listening.listen()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                with client, self._connect() as server:
                    self._pass_on(client, server)

    def _pass_on(self, client: socket.socket, server: socket.socket) -> None:
        back = threading.Thread(target=self._answers, args=(server, client), daemon=True)
        back.start()
        while data := client.recv(65536):
            commits = self._commit in data and self._cut != "done"
            if commits and self._cut == "before":
                self._cut = "done"
                break
            if commits:
                self._cut = "now"
            server.sendall(data)
        for end in (server, client):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        back.join()

    def _answers(self, server: socket.socket, client: socket.socket) -> None:
        with suppress(OSError):
            while data := server.recv(65536):
                if self._cut == "now":  # the server has committed, and its answer is dropped here
                    self._cut = "done"
                    break
                client.sendall(data)
            client.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join(10)


class Interrupted:
    """A sink; once, before or after one of its calls, something happens to it."""

    def __init__(self, sink: Sink, call: str, when: str, happens: Callable[[], None]) -> None:
        self._sink, self._call, self._when, self._happens = sink, call, when, happens

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> Any:
            if (name, "before") == (self._call, self._when):
                self._once()
            result = getattr(self._sink, name)(*arguments)
            if (name, "after") == (self._call, self._when):
                self._once()
            return result

        return call

    def _once(self) -> None:
        self._when = "never"
        self._happens()
