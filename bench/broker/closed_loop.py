"""Many producers in a closed loop, each with one small request under way: what a broker's request path carries.

    python -m waterclock.bench.broker.closed_loop BOOTSTRAP TOPIC PARTITIONS PRODUCERS SECONDS [RATE]

Raw sockets and one prepared request, so that the client costs less than the broker. With RATE each producer sends so many
requests a second instead of as many as it can.

Rule 1: every answer's error code is looked at, and the number of the answers is that of the records in the log.
"""

from __future__ import annotations

import json
import selectors
import socket
import struct
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass, field

from crc32c import crc32c

from waterclock.bench.broker.workloads import percentile
from waterclock.errors import WrongAnswer

ERROR_AT_END = 30  # where, from the end of a Produce v7 answer, the error code of its one partition stands


def batch(value: bytes) -> bytes:
    """A record batch with one record."""
    body = b"\0\0\0" + b"\1" + _varint(len(value)) + value + b"\0"
    record = _varint(len(body)) + body
    now = time.time_ns() // 1_000_000
    rest = struct.pack(">hiqqqhii", 0, 0, now, now, -1, -1, -1, 1) + record
    return struct.pack(">qiibI", 0, len(rest) + 9, 0, 2, crc32c(rest)) + rest


def _varint(value: int) -> bytes:
    value <<= 1
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes(out) + bytes([value])


def request(topic: str, partition: int, value: bytes) -> bytes:
    """Produce v7 with acks=all."""
    name, data = topic.encode(), batch(value)
    body = struct.pack(">hhih", 0, 7, 1, 5) + b"bench" + struct.pack(">hhiih", -1, -1, 30_000, 1, len(name)) + name
    body += struct.pack(">iii", 1, partition, len(data)) + data
    return struct.pack(">i", len(body)) + body


@dataclass
class Producer:
    """One connection and its request under way."""

    sock: socket.socket
    request: bytes
    sent_s: float = 0.0
    due_s: float = 0.0
    got: bytearray = field(default_factory=bytearray)

    def send(self, now_s: float) -> None:
        self.sent_s = now_s
        self.sock.sendall(self.request)

    def answered(self) -> bool:
        """Take what has come; True when the answer is whole. WrongAnswer where it holds an error."""
        self.got += self.sock.recv(4096)
        if len(self.got) < 4 or len(self.got) < 4 + int.from_bytes(self.got[:4], "big"):
            return False
        error = struct.unpack_from(">h", self.got, len(self.got) - ERROR_AT_END)[0]
        self.got.clear()
        if error:
            raise WrongAnswer(f"error code {error}")
        return True


class Loop:
    """All producers on one selector. With a `rate` each waits for its next moment; without, it sends at once."""

    def __init__(self, producers: list[Producer], rate: float) -> None:
        self._selector = selectors.DefaultSelector()
        self._rate = rate
        self.times = list[float]()
        self._waiting: list[Producer] = []  # for their moments, the next at the end
        start_s = time.perf_counter()
        for number, producer in enumerate(producers):
            self._selector.register(producer.sock, selectors.EVENT_READ, producer)
            producer.due_s = start_s + (number / len(producers) / rate if rate else 0)
            self._next(producer, start_s)

    def run(self, seconds: float) -> None:
        """Go on for so long."""
        end_s = time.perf_counter() + seconds
        while (now_s := time.perf_counter()) < end_s:
            while self._waiting and self._waiting[-1].due_s <= now_s:
                self._waiting.pop().send(now_s)
            pause_s = min(1.0, max(0.0, self._waiting[-1].due_s - now_s)) if self._waiting else 1.0
            for key, _ in self._selector.select(pause_s):
                if key.data.answered():
                    self._answered(key.data)

    def _answered(self, producer: Producer) -> None:
        now_s = time.perf_counter()
        self.times.append((now_s - producer.sent_s) * 1e3)
        producer.due_s += 1 / self._rate if self._rate else 0
        self._next(producer, now_s)

    def _next(self, producer: Producer, now_s: float) -> None:
        """Send, or put it among those that wait; it is nearly always the last to come."""
        if not self._rate:
            producer.send(now_s)
            return
        at = 0
        while at < len(self._waiting) and self._waiting[at].due_s > producer.due_s:
            at += 1
        self._waiting.insert(at, producer)


def run(bootstrap: str, topic: str, partitions: int, producers: int, seconds: float, rate: float) -> dict[str, float]:
    """Requests a second, and their times; the first tenth is not counted."""
    asked = [request(topic, number % partitions, b"x" * 100) for number in range(producers)]
    with ExitStack() as open_sockets:
        loop = Loop([Producer(open_sockets.enter_context(connected(bootstrap)), one) for one in asked], rate)
        loop.run(seconds)
    answered, times = len(loop.times), loop.times[len(loop.times) // 10 :]
    return {
        "messages": answered,
        "per_s": answered / seconds,
        "p50_ms": percentile(times, 0.5),
        "p99_ms": percentile(times, 0.99),
    }


def connected(bootstrap: str) -> socket.socket:
    host, port = bootstrap.split(":")
    sock = socket.create_connection((host, int(port)))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def main() -> None:
    bootstrap, topic, partitions, producers, seconds, *rate = sys.argv[1:]
    try:
        print(
            json.dumps(run(bootstrap, topic, int(partitions), int(producers), float(seconds), float((rate or [0])[0])))
        )
    except WrongAnswer as error:
        print(json.dumps({"error": str(error)}))
        sys.exit(1)


if __name__ == "__main__":
    main()
