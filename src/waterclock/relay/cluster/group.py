"""A relay as a member of its consumer group: how it joins and leaves, what the group has said, what is read for it.

Rule 1: what the group says is heard in callbacks of the consumer's `poll`; what is done about it is for relay.py.
Rule 2: a consumer is left before it is closed, and hears all that the group has said to it, one that is shut out too:
        librdkafka hangs in `close` if a partition is just being given to it, and its thread uses up a processor.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from waterclock.errors import ConnectionLost, WaterclockError

log = logging.getLogger("waterclock.relay")
SESSION_MS: Final = 6_000
HEARTBEAT_MS: Final = 300  # who lives hears so soon that another is gone, and that something is to be given back
LEAVING_POLLS: Final = 100  # two seconds
CLOSING_S: Final = 10.0
_CONSUMER: Final = {
    "isolation.level": "read_committed",
    "enable.auto.commit": False,
    "auto.offset.reset": "error",
    "enable.partition.eof": True,
    "partition.assignment.strategy": "cooperative-sticky",  # a partition that stays is not taken over again
    "session.timeout.ms": SESSION_MS,
    "heartbeat.interval.ms": HEARTBEAT_MS,
    "fetch.wait.max.ms": 100,
    "fetch.message.max.bytes": 1 << 20,  # compressed: of what packs well, many times as much in memory
    "queued.max.messages.kbytes": 32_768,
    "fetch.queue.backoff.ms": 5,
}


class Member:
    """One member of the `group`, and its consumer of `topic`; `name` is a static member's. For one thread.

    `given`, `taken`: partitions that the group has given or taken away, and that nothing was done about yet; `end_of` says
    where one ends, more or less. `is_in_doubt`: the way to Kafka broke, and nothing was done about that yet; `lost` hears
    where all brokers are away. `was_given`: the group has answered.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        topic: str,
        group: str,
        name: str | None,
        end_of: Callable[[int], int],
        lost: Callable[[WaterclockError], object],
    ) -> None:
        self._settings = {**settings, "error_cb": self.on_error}
        self.topic = topic
        self.group = group
        self.name = name
        self._end_of = end_of
        self._lost = lost
        self.is_in_doubt = self.was_given = False
        self.join()

    def join(self) -> None:
        """Nothing is known of what another consumer was given."""
        self.given: set[int] = set()
        self.taken: set[int] = set()
        self._paused: set[int] = set()
        given, taken = self.on_given, self._on_taken
        self.consumer = join(self._settings, self.topic, self.group, name=self.name, on_given=given, on_taken=taken)

    def on_error(self, error: KafkaError) -> None:
        """librdkafka says this of its connections."""
        self.is_in_doubt = True
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            self._lost(ConnectionLost(f"Kafka is away: {error.str()}."))

    def on_given(self, consumer: Consumer, places: Sequence[TopicPartition]) -> None:
        """They are read at their ends for now: whoever takes one over says where it begins.

        To pause them would be to wait: librdkafka looks at one that is read again only when it looks at others, or after a
        second. The end is a number: librdkafka asks where OFFSET_END is, and goes there even if it was given another offset
        meanwhile. What stands before would be lost.
        """
        for each in places:
            each.offset = self._end_of(each.partition)
        consumer.incremental_assign(list(places))
        self.given |= {each.partition for each in places}
        self.was_given = True

    def _on_taken(self, consumer: Consumer, places: Sequence[TopicPartition]) -> None:
        numbers = {each.partition for each in places}
        self.given -= numbers
        self.taken |= numbers
        consumer.incremental_unassign(list(places))

    def read(self, wait_s: float, most: int) -> list[Message]:
        """Records and errors, once there is one, `wait_s` at most."""
        first = self.consumer.poll(wait_s)
        return [] if first is None else [first, *self.consumer.consume(most, 0)]

    def read_from(self, number: int, offset: int) -> None:
        """Read a partition from there on."""
        where = [TopicPartition(self.topic, number, offset)]
        self.consumer.incremental_unassign(where)
        self.consumer.incremental_assign(where)

    def pause(self, numbers: set[int]) -> None:
        """Read all but these. What is not read waits in the log, and librdkafka goes on where it was."""
        if paused := numbers - self._paused:
            self.consumer.pause([TopicPartition(self.topic, number) for number in sorted(paused)])
        if resumed := self._paused - numbers:
            self.consumer.resume([TopicPartition(self.topic, number) for number in sorted(resumed)])
        self._paused = numbers


def join(
    settings: Mapping[str, Any],
    topic: str,
    group: str,
    *,
    name: str | None,
    on_given: Callable[..., object],
    on_taken: Callable[..., object],
) -> Consumer:
    """A consumer of the topic, in the group; `name`: a static member's."""
    member = {} if name is None else {"group.instance.id": name}
    consumer = Consumer({**settings, **_CONSUMER, **member, "group.id": group})
    consumer.subscribe([topic], on_assign=on_given, on_revoke=on_taken, on_lost=on_taken)
    return consumer


def leave(consumer: Consumer) -> None:
    """Leave the group, then close. Rule 2."""
    was_given = bool(consumer.assignment())
    with suppress(KafkaException):  # one that is shut out has left
        consumer.unsubscribe()
    for polls in range(LEAVING_POLLS):
        is_all_heard = consumer.poll(0.02) is None
        if is_all_heard and (was_given or polls >= 5) and not consumer.assignment():
            break
    # librdkafka may hang here all the same: then it is left to the end of the process
    closing = threading.Thread(target=consumer.close, name="leaving", daemon=True)
    closing.start()
    closing.join(CLOSING_S)
    if closing.is_alive():
        log.warning("the consumer does not close within %d seconds: it is left behind", CLOSING_S)
