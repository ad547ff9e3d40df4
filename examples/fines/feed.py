"""The replay on its way into the topic, while the pipeline reads at the other end.

1. a heartbeat with the first moment of all goes to every partition: no partition is silent from then on
2. when the pipeline has taken that, and so is warm, the lines are sent: `rate` a second, keyed by case, idempotent
3. the closing heartbeat goes to every partition: nothing will come any more, and the pipeline ends

A heartbeat is a record with the header `waterclock-heartbeat`, a time, and nothing else.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from waterclock.clock import Clock, SystemClock

from .replay import Replay

TOPIC = "fines"
CLOSING = "9999-12-31T00:00:00Z"
_HEADER = "waterclock-heartbeat"
_AT_ONCE_S = 0.02
_PATIENCE_S = 60
_UNANSWERED = f"not all was acknowledged within {_PATIENCE_S} s"


def send_all(servers: str, partitions: int, replay: Replay) -> None:
    """Make the topic, and send the whole replay to it, keyed by case; all of it is acknowledged in the end."""
    admin = AdminClient({"bootstrap.servers": servers})
    for made in admin.create_topics([NewTopic(TOPIC, partitions, 1)]).values():
        made.result(_PATIENCE_S)
    failed: list[Any] = []
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "log_level": 0})
    for key, line in replay.lines:
        producer.produce(TOPIC, line, key, on_delivery=lambda error, _: failed.append(error) if error else None)
        producer.poll(0)
    if producer.flush(_PATIENCE_S) or failed:
        raise KafkaException(failed[0] if failed else _UNANSWERED)


class Feed:
    """Sends a replay in a thread of its own, `rate` lines a second; afterwards it says what was sent when, and where."""

    def __init__(self, servers: str, partitions: int, replay: Replay, rate: int, clock: Clock | None = None) -> None:
        settings = {"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 5, "log_level": 0}
        self._producer = Producer(settings)
        self._partitions = partitions
        self._replay = replay
        self._rate = rate
        self._clock = clock or SystemClock()
        self._warm, self._over = threading.Event(), False
        self._failure: BaseException | None = None
        self._refused: list[KafkaError] = []  # `flush` counts what waits, and these wait no more
        self._thread = threading.Thread(target=self._run, name="feed", daemon=True)
        self.sent_s: dict[tuple[int, int], float] = {}  # (partition, offset) -> the moment it was sent
        self.lies: list[tuple[int, int] | None] = [None] * replay.events  # of each line

    def start(self, when_failed: Callable[[], object]) -> None:
        """Send the first heartbeats, and then wait for `go_on`; calls `when_failed` where nothing more will come."""
        self._when_failed = when_failed
        self._heartbeats(self._replay.begin.isoformat())
        self._thread.start()

    def go_on(self) -> None:
        """The pipeline is warm: send the lines. Again is nothing."""
        self._warm.set()

    def stop(self) -> None:
        """The pipeline has ended: send no more. Raises what went wrong in sending."""
        self._over = True
        self._warm.set()
        self._thread.join()
        del self._producer  # or it would look for its broker as long as this object lives
        if self._failure is not None:
            raise self._failure

    def write(self, folder: Path) -> None:
        """The lines as they were sent, each with its partition and offset, in a file for people and for the report."""
        folder.mkdir(parents=True)
        rows = zip(self._replay.lines, self.lies, strict=True)
        reported = [
            {**json.loads(line), "partition": at[0], "offset": at[1]} for (_, line), at in rows if at is not None
        ]
        (folder / "events.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in reported), encoding="utf-8")

    def _run(self) -> None:
        try:
            self._warm.wait()
            self._lines()
            self._heartbeats(CLOSING)  # also where not all was sent: a pipeline that goes on must come to its end
        except BaseException as error:
            self._failure = error
            self._when_failed()

    def _lines(self) -> None:
        """A handful at a time, as many as are due by now."""
        began_s, sent = self._clock.monotonic_s(), 0
        while sent < self._replay.events and not self._over:
            due = min(self._replay.events, int((self._clock.monotonic_s() - began_s) * self._rate) + 1)
            for number in range(sent, due):
                self._send(number)
            sent = due
            self._producer.poll(0)
            self._clock.sleep_s(_AT_ONCE_S)
        self._flush()

    def _send(self, number: int) -> None:
        key, line = self._replay.lines[number]
        now_s = self._clock.monotonic_s()

        def delivered(error: KafkaError | None, message: Message) -> None:
            self._heard(error, message)
            if error is None:
                self.lies[number] = place = (message.partition(), message.offset())
                self.sent_s[place] = now_s

        self._producer.produce(TOPIC, line, key, on_delivery=delivered)

    def _heartbeats(self, moment: str) -> None:
        for partition in range(self._partitions):
            self._producer.produce(TOPIC, None, None, partition, headers={_HEADER: moment}, on_delivery=self._heard)
        self._flush()

    def _heard(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._refused.append(error)

    def _flush(self) -> None:
        if self._producer.flush(_PATIENCE_S) or self._refused:
            raise KafkaException(self._refused[0] if self._refused else _UNANSWERED)
