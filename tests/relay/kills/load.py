"""Who schedules, cancels and replaces meanwhile, by a seed: keys, ids, due soon or later, and now and then nonsense.

Rule 1: a request counts as acknowledged when Kafka says so. One of which it says nothing may be in the input or not.
"""

from __future__ import annotations

import random
import threading
from typing import Any
from zlib import crc32

from confluent_kafka import Producer

from tests.relay.kills.checker import Origin
from waterclock.clock import SystemClock
from waterclock.kafka.settings import base_settings

KEYS = 40
NEAR_MS, FAR_MS = (0, 4_000), (16_000, 26_000)
SHARED_IDS = 8  # of which many messages are pending at once


class Load(threading.Thread):
    """Sends about `a_second` requests to `partitions` of `topic` until `stop`; their messages are for `targets`."""

    def __init__(
        self, bootstrap: str, topic: str, partitions: int, targets: list[str], seed: int, a_second: int
    ) -> None:
        super().__init__(daemon=True)
        settings = {"linger.ms": 5, "enable.idempotence": True, "acks": "all", "message.timeout.ms": 180_000}
        self._producer = Producer({**base_settings(bootstrap, {}), **settings})
        self._topic, self._partitions, self._targets = topic, partitions, targets
        self._dice, self._a_second, self._clock = random.Random(seed), a_second, SystemClock()
        self._over = threading.Event()
        self._ids: list[tuple[bytes, bytes | None, int]] = []
        self.sent = 0
        self.acknowledged: list[Origin] = []
        self.refused: list[str] = []

    def run(self) -> None:
        while not self._over.is_set():
            for _ in range(max(1, self._a_second // 20)):
                self._request()
            self._producer.poll(0)
            self._over.wait(0.05)

    def stop(self) -> None:
        """No more; what was sent is acknowledged when this returns, or never will be."""
        self._over.set()
        self.join()
        self._producer.flush(180)

    def _request(self) -> None:
        self.sent += 1
        chance = self._dice.random()
        if chance < 0.01:
            self._write(b"nonsense %d" % self.sent, None, self._dice.randrange(self._partitions), {"trace": b"x"})
        elif chance < 0.12 and self._ids:
            id, key, partition = self._dice.choice(self._ids)
            self._write(None, key, partition, {"delay-action": b"cancel", "delay-id": id})
        elif chance < 0.18 and self._ids:
            id, key, partition = self._dice.choice(self._ids)
            self._schedule(key, partition, {"delay-action": b"replace", "delay-id": id})
        else:
            key = None if chance > 0.95 else b"key-%d" % self._dice.randrange(KEYS)
            partition = crc32(key or b"%d" % self.sent) % self._partitions
            self._schedule(key, partition, self._named(key, partition))

    def _named(self, key: bytes | None, partition: int) -> dict[str, bytes]:
        if self._dice.random() < 0.3:
            return {}
        shared = self._dice.random() < 0.1
        id = b"shared-%d-%d" % (partition, self._dice.randrange(SHARED_IDS)) if shared else b"id-%d" % self.sent
        self._ids = [*self._ids[-300:], (id, key, partition)]
        return {"delay-id": id}

    def _schedule(self, key: bytes | None, partition: int, more: dict[str, bytes]) -> None:
        span = FAR_MS if self._dice.random() < 0.25 else NEAR_MS
        due_ms = self._clock.wall_ms() + self._dice.randint(*span)
        due_ms -= due_ms % 20  # many are due at one instant
        target = self._dice.choice(self._targets).encode()
        headers = {"trace": b"%d" % self.sent, "deliver-to": target, "deliver-at": b"%d" % due_ms, **more}
        value = None if self.sent % 97 == 0 else b"%d " % self.sent + b"." * self._dice.randrange(300)
        self._write(value, key, partition, headers)

    def _write(self, value: bytes | None, key: bytes | None, partition: int, headers: dict[str, bytes]) -> None:
        while True:
            try:
                self._producer.produce(
                    self._topic, value, key, partition, headers=list(headers.items()), on_delivery=self._heard
                )
                return
            except BufferError:
                self._producer.poll(0.1)

    def _heard(self, error: Any, message: Any) -> None:
        if error is None:
            self.acknowledged.append((message.partition(), message.offset()))
        else:
            self.refused.append(error.str())
