"""What a running capture is asked for from outside: that tables come again. Asked and answered in a topic, `NAME.snapshot`.

    1. who asks writes a record: its key is a number of its own, its value the tables               (ask.py)
    2. the capture finds it between two transactions of its source, and looks at the tables
    3. it writes the answer under the same key, in one Kafka transaction with the position that says what is to come
    4. who asked finds the answer

A crash before 3 leaves a record that has no answer: the next start finds it. One behind 3 goes on from the position.

Rule 1: who gives up takes the record back, by a tombstone: what nobody waits for is not begun a day later.
Rule 2: the topic is compacted, and of each number its last record counts.
Rule 3: a capture that may not make the topic goes on without it, and says so.
"""

from __future__ import annotations

import json
import logging
from contextlib import suppress

from confluent_kafka import OFFSET_BEGINNING, KafkaError, TopicPartition

from waterclock.cdc.produce import COMPACTED, Publisher
from waterclock.cdc.snapshot import SnapshotAnswer
from waterclock.errors import UsageError
from waterclock.kafka import library
from waterclock.kafka.admin import Admin
from waterclock.kafka.settings import READING

log = logging.getLogger("waterclock.cdc")
TABLES, ANSWER = "tables", "answer"


def topic_of_requests(name: str) -> str:
    """Of the capture of that name."""
    return f"{name}.snapshot"


class Requests:
    """What the capture of a publisher is asked for. Not if it is not `open`: then nothing is made, and nothing pending."""

    def __init__(self, publisher: Publisher, is_open: bool = True) -> None:
        self._topic, self._pending, self._is_whole = topic_of_requests(publisher.name), dict[bytes, list[str]](), False
        self._consumer: library.Consumer | None = None
        if not is_open:
            return
        admin = Admin(publisher.settings)
        try:
            if self._topic not in admin.topics():
                admin.make(self._topic, 1, COMPACTED)
        except UsageError as error:
            log.warning("%s Tables cannot be asked for (waterclock cdc snapshot) until it is there.", error)
            return
        own = {"group.id": f"{self._topic}.reader", "fetch.wait.max.ms": 5000}  # nothing is committed under it
        self._consumer = library.Consumer({**publisher.settings, **READING, **own})
        self._consumer.assign([TopicPartition(self._topic, 0, OFFSET_BEGINNING)])

    def pending(self) -> dict[bytes, list[str]]:
        """Step 2: the tables of each request that has no answer."""
        while self._consumer is not None and (message := self._consumer.poll(0)) is not None:
            if message.error() is not None:
                self._is_whole |= message.error().code() == KafkaError._PARTITION_EOF
                continue
            self._pending.pop(message.key(), None)
            with suppress(
                ValueError, TypeError, LookupError
            ):  # an answer, a tombstone, or nothing that was asked by us
                self._pending[message.key()] = [str(table) for table in json.loads(message.value())[TABLES]]
        return dict(self._pending) if self._is_whole else {}

    def answer(self, key: bytes, answer: SnapshotAnswer) -> tuple[str, bytes, bytes]:
        """Step 3: topic, key and value of what is to be sent."""
        self._pending.pop(key, None)
        return self._topic, key, json.dumps({ANSWER: answer._asdict()}).encode()

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
