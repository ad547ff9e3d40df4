"""The one who wants to be reminded: any Kafka producer with a few headers. It notes what was acknowledged, where and when.

Rule 1: a cancel has its reminder's key, so it stands behind it in the same partition.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from confluent_kafka import KafkaError, Message, Producer

from waterclock.clock import WallClock
from waterclock.errors import ConnectionLost
from waterclock.kafka.errors import words_of
from waterclock.kafka.settings import SENDING, base_settings
from waterclock.relay.wire.request import ACTION, AT, ID, TO, Action

from .plan import Plan, Step

TOPIC, TARGET = "delays", "reminders"
_PATIENCE_S: Final = 30.0


@dataclass(slots=True)
class Sent:
    """A request that is in the log: its place there, and when that was known, in ms since 1970."""

    place: str
    offset: int
    acknowledged_ms: int


class Sender:
    """Sends a plan whose time zero is `start_ms`. `reminders` and `cancels` are what is in the log, by number."""

    def __init__(self, servers: str, plan: Plan, start_ms: int, clock: WallClock) -> None:
        self._plan = plan
        self._start_ms = start_ms
        self._clock = clock
        self._next = 0
        settings = {**base_settings(servers, {}), **SENDING, "delivery.report.only.error": False}
        self._producer = Producer(settings)
        self.reminders: dict[int, Sent] = {}
        self.cancels: dict[int, Sent] = {}
        self._failure: KafkaError | None = None

    @property
    def is_done(self) -> bool:
        """Whether all is sent and acknowledged."""
        return len(self.reminders) + len(self.cancels) == len(self._plan.steps)

    def send(self) -> None:
        """What is to be sent by now. ConnectionLost where Kafka did not take something."""
        now_ms = self._clock.wall_ms() - self._start_ms
        steps = self._plan.steps
        while self._next < len(steps) and steps[self._next].at_ms <= now_ms:
            self._send(steps[self._next])
            self._next += 1
        self._producer.poll(0)
        if self._failure is not None:
            raise ConnectionLost(f"Kafka did not take a request: {words_of(self._failure)}.")

    def _send(self, step: Step) -> None:
        reminder = self._plan.reminders[step.number]
        headers: list[tuple[str, Any]] = [(ID, reminder.id)]
        if step.is_cancel:
            headers, value = [*headers, (ACTION, Action.CANCEL.value)], None
        else:
            due_ms = self._start_ms + reminder.due_ms
            headers, value = [*headers, (TO, TARGET), (AT, str(due_ms))], reminder.value
        heard = partial(self._hear, self.cancels if step.is_cancel else self.reminders, step.number)
        while True:
            try:
                self._producer.produce(TOPIC, value, reminder.key, headers=headers, on_delivery=heard)
                return
            except BufferError:
                self._producer.poll(0.05)

    def _hear(self, into: dict[int, Sent], number: int, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._failure = error
            return
        place = f"{TOPIC}-{message.partition()}-{message.offset()}"
        into[number] = Sent(place, message.offset(), self._clock.wall_ms())

    def close(self) -> None:
        """Nothing more is sent."""
        self._producer.purge()
        self._producer.flush(_PATIENCE_S)
