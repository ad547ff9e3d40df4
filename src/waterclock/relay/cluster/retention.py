"""Whether Kafka has begun to delete what is pending, while the relay runs: somebody may change a topic's settings.

Rule 1: a relay does not start on topics of which Kafka deletes (topics.py). One that runs goes on: it has its files, and
        to stop would deliver nothing. It says the same, at WARNING, when it is so, and each `AGAIN_NS` until it is mended.
Rule 2: what Kafka does not say is looked at again; that it may not be known was said at the start.
"""

from __future__ import annotations

import logging
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import ConfigResource

from waterclock.relay.cluster.watcher import Answers, Watcher
from waterclock.relay.wire.topics import Topics, deletes

log = logging.getLogger("waterclock.relay")
LOOK_NS: Final = 60_000_000_000
AGAIN_NS: Final = 600_000_000_000


class Retention:
    """Of the input and of what is settled; `servers` are named in the command that mends it."""

    def __init__(self, watcher: Watcher, topics: Topics, servers: str) -> None:
        self._servers = servers
        self._watcher = watcher
        self._said: dict[str, tuple[str, int]] = {}  # what was said of a topic, and when it is said again
        resources = [ConfigResource(ConfigResource.Type.TOPIC, topic) for topic in (topics.input, topics.settled)]
        watcher.ask(LOOK_NS, lambda: watcher.client.describe_configs(resources), self._hear)

    def _hear(self, answers: Answers) -> None:
        now_ns = self._watcher.clock.monotonic_ns()
        for resource, future in answers.items():
            topic = resource.name
            try:
                settings = {name: entry.value for name, entry in future.result().items()}
            except KafkaException:
                continue
            why = deletes(topic, settings, self._servers)
            said, again_ns = self._said.get(topic, (None, 0))
            if why is None:
                self._said.pop(topic, None)
                if said is not None:
                    log.warning("%s keeps all that it has again", topic)
            elif why != said or now_ns >= again_ns:
                self._said[topic] = why, now_ns + AGAIN_NS
                log.warning("%s", why)
