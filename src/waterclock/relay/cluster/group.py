"""How a relay joins its consumer group, and leaves it.

Rule 1: what the group says is heard in callbacks of the consumer's `poll`; what is done about it is for relay.py.
Rule 2: a consumer is left before it is closed, and hears all that the group has told it, one that is shut out too:
        librdkafka hangs in `close` where a partition is just being given to it, and its thread uses up a processor.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException

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
    with suppress(KafkaException):  # one that is shut out is told so, and has left
        consumer.unsubscribe()
    for polls in range(LEAVING_POLLS):
        is_all_heard = consumer.poll(0.02) is None
        if is_all_heard and (was_given or polls >= 5) and not consumer.assignment():
            break
    _close(consumer)


def _close(consumer: Consumer) -> None:
    """librdkafka may hang here all the same: then it is left to the end of the process."""
    closing = threading.Thread(target=consumer.close, name="leaving", daemon=True)
    closing.start()
    closing.join(CLOSING_S)
    if closing.is_alive():
        log.warning("the consumer does not close within %d seconds: it is left behind", CLOSING_S)
