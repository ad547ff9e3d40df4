"""Consumers that wait: many long polls on one partition, each asked again as soon as it is answered.

    python -m waterclock.bench.broker.long_polls BOOTSTRAP TOPIC POLLS

Says `ready` once all wait, and goes on until it is ended. Raw sockets, for the reasons of closed_loop.py.

Rule 1: every answer's error code is looked at; the first error ends it with exit code 1.
"""

from __future__ import annotations

import selectors
import socket
import struct
import sys
from dataclasses import dataclass, field

from waterclock.bench.broker.closed_loop import connected
from waterclock.errors import WrongAnswer

MAX_WAIT_MS = 500
MAX_BYTES = 1 << 20
HEAD = 26  # bytes of a Fetch v4 answer before the error of its one partition, but for the topic's name


@dataclass
class Poll:
    """One connection with one Fetch under way."""

    sock: socket.socket
    topic: bytes
    offset: int = 0
    got: bytearray = field(default_factory=bytearray)

    def ask(self) -> None:
        """Fetch v4 from the offset on, at least one byte."""
        body = struct.pack(">hhih", 1, 4, 1, 5) + b"bench"
        body += struct.pack(">iiiibih", -1, MAX_WAIT_MS, 1, MAX_BYTES, 0, 1, len(self.topic)) + self.topic
        body += struct.pack(">iiqi", 1, 0, self.offset, MAX_BYTES)
        self.sock.sendall(struct.pack(">i", len(body)) + body)

    def take(self) -> bool:
        """What has come; True when the answer is whole. Goes on at the high watermark, whatever was read."""
        self.got += self.sock.recv(1 << 16)
        if len(self.got) < 4 or len(self.got) < 4 + int.from_bytes(self.got[:4], "big"):
            return False
        error, self.offset = struct.unpack_from(">hq", self.got, HEAD + len(self.topic))
        self.got.clear()
        if error:
            raise WrongAnswer(f"error code {error}")
        return True


def run(bootstrap: str, topic: str, polls: int) -> None:
    """For ever."""
    selector = selectors.DefaultSelector()
    for _ in range(polls):
        poll = Poll(connected(bootstrap), topic.encode())
        selector.register(poll.sock, selectors.EVENT_READ, poll)
        poll.ask()
    print("ready", flush=True)
    while True:
        for key, _ in selector.select():
            if key.data.take():
                key.data.ask()


def main() -> None:
    bootstrap, topic, polls = sys.argv[1:]
    run(bootstrap, topic, int(polls))


if __name__ == "__main__":
    main()
