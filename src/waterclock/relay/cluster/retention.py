"""Whether Kafka has begun to delete what is pending, while the relay runs: somebody may change a topic's settings.

Rule 1: a relay does not start on topics of which Kafka deletes (topics.py). One that runs goes on: it has its files, and
        to stop would deliver nothing. It says the same, at WARNING, when it is so, and each `AGAIN_NS` until it is mended.
Rule 2: a look waits for no answer: it is asked for in one step, and read in a later one. What Kafka does not tell is looked
        at again; that it may not be told was said at the start.
"""

from __future__ import annotations

import logging
from typing import Any, Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource

from waterclock.clock import WallClock
from waterclock.relay.wire.topics import Topics, deletes

log = logging.getLogger("waterclock.relay")
LOOK_NS: Final = 60_000_000_000
AGAIN_NS: Final = 600_000_000_000


class Retention:
    """Of the input and of what is settled; `servers` are named in the command that mends it."""

    def __init__(self, client: AdminClient, topics: Topics, servers: str, clock: WallClock) -> None:
        self._client, self._servers, self._clock = client, servers, clock
        self._topics = (topics.input, topics.settled)
        self._asked: dict[str, Any] = {}
        self._look_ns = clock.monotonic_ns() + LOOK_NS
        self._said: dict[str, tuple[str, int]] = {}  # what was said of a topic, and when it is said again

    def step(self) -> None:
        """Look where it is time to, and say what was found."""
        now_ns = self._clock.monotonic_ns()
        if not self._asked and now_ns >= self._look_ns:
            self._look_ns = now_ns + LOOK_NS
            of_topic = {ConfigResource(ConfigResource.Type.TOPIC, topic): topic for topic in self._topics}
            asked = self._client.describe_configs(list(of_topic))
            self._asked = {topic: asked[resource] for resource, topic in of_topic.items()}
        for topic in [topic for topic, asked in self._asked.items() if asked.done()]:
            self._hear(topic, self._asked.pop(topic), now_ns)

    def _hear(self, topic: str, asked: Any, now_ns: int) -> None:
        try:
            settings = {name: entry.value for name, entry in asked.result().items()}
        except KafkaException:
            return
        told = deletes(topic, settings, self._servers)
        said, again_ns = self._said.get(topic, (None, 0))
        if told is None:
            self._said.pop(topic, None)
            if said is not None:
                log.warning("%s keeps all that it has again", topic)
        elif told != said or now_ns >= again_ns:
            self._said[topic] = told, now_ns + AGAIN_NS
            log.warning("%s", told)
