"""Sends messages at their moments by the clock, and remembers when each was sent.

Rule 1: the first message goes alone, and the others when whoever reads has taken it: a start is no latency.
"""

from __future__ import annotations

import json
import threading
import time
from datetime import UTC, datetime
from typing import Final

from confluent_kafka import KafkaException, Producer

from waterclock.bench.broker.workloads import QUIET

RATE: Final = 200  # messages a second
KEYS: Final = 50
AT_ONCE_S: Final = 0.005  # so often it is looked which messages are due
WITHIN_S: Final = 60.0


class Sender:
    """Sends `messages` messages in a thread of its own; `sent_s` says when."""

    def __init__(self, bootstrap: str, topic: str, messages: int) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "acks": "all", **QUIET})
        self._topic, self.messages = topic, messages
        self._thread = threading.Thread(target=self._run, name="sender", daemon=True)
        self._go, self.over = threading.Event(), False
        self.sent_s: list[float] = []
        self.failure: BaseException | None = None

    def begin(self) -> None:
        """Send the first message, and wait for `go_on`."""
        self._send(0)
        self._flush()
        self._thread.start()

    def go_on(self) -> None:
        """Send the others. Again is nothing."""
        self._go.set()

    def end(self) -> None:
        """Send no more. Raises what went wrong; KeyboardInterrupt where not all was sent: somebody stopped it."""
        self.over = True
        self._go.set()
        self._thread.join()
        if self.failure is not None:
            raise self.failure
        if len(self.sent_s) < self.messages:
            raise KeyboardInterrupt

    def _run(self) -> None:
        try:
            self._go.wait()
            began_s = time.monotonic()
            while (sent := len(self.sent_s)) < self.messages and not self.over:
                for number in range(sent, min(self.messages, int((time.monotonic() - began_s) * RATE) + 2)):
                    self._send(number)
                self._producer.poll(0)
                time.sleep(AT_ONCE_S)
            self._flush()
        except BaseException as error:
            self.failure = error

    def _send(self, number: int) -> None:
        key, moment = f"k{number % KEYS}", datetime.now(UTC).isoformat()
        row = {"id": str(number), "key": key, "seq": number // KEYS + 1, "kind": "event", "ts": moment}
        self.sent_s.append(time.monotonic())
        self._producer.produce(self._topic, json.dumps(row), key)

    def _flush(self) -> None:
        if left := self._producer.flush(WITHIN_S):
            raise KafkaException(f"{left} messages were not acknowledged within {WITHIN_S:.0f} s")
