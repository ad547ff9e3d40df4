"""format = "kafka": a topic of Kafka. The reference is made of this.

servers      the brokers' addresses, "a:9092,b:9092" or a list
topic        the topic of results; it is made. TOPIC_dead_letters and TOPIC_batches stand beside it. Up to 236 letters,
             digits and . _ -; no topic of [source]
partitions   how many the topic gets when it is made; left out, as many as the broker gives
client       [sink.client]: settings of librdkafka; {env = "NAME"} takes a value from the environment. Not acks,
             enable.idempotence, transactional.id, partitioner, isolation.level
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from waterclock.errors import UsageError
from waterclock.kafka.settings import WHY_SENDING
from waterclock.sinks.base import Sink
from waterclock.sinks.destination import LONGEST_ENDING, Destination, SinkTable
from waterclock.sinks.tables import BATCHES, DEAD_LETTERS

_OWN: Mapping[str, str] = {**WHY_SENDING, "bootstrap.servers": "servers in [sink] says it"}
_BYTES = 249  # of a topic's name
_MOST_PARTITIONS = 10_000


@dataclass(frozen=True, slots=True)
class KafkaTopic(Destination):
    """A topic of Kafka, and those beside it; `partitions`: how many it gets when it is made, -1: the broker says it."""

    kind = "a topic"
    keys = ("servers", "topic", "partitions", "client")
    records_inputs = True

    servers: str
    topic: str
    partitions: int
    client: Mapping[str, str] = field(repr=False)  # may hold secrets

    @classmethod
    def from_table(cls, given: SinkTable) -> KafkaTopic:
        """See `Destination`."""
        partitions = given.number("partitions", -1, _MOST_PARTITIONS)
        servers, client = given.client(_OWN)
        return cls(servers, kafka_topic(given.text("topic")), partitions, client)

    @property
    def place(self) -> str:
        """See `Destination`."""
        return f"the topic {self.topic!r} at {self.servers}"

    def sink(self) -> Sink:
        """See `Destination`."""
        from waterclock.sinks.topic.topic import TopicSink  # its package is that of the extra `kafka`

        return TopicSink(self.servers, self.topic, partitions=self.partitions, settings=self.client)

    def topic_of(self, servers: str, topics: Sequence[str]) -> str | None:
        """See `Destination`."""
        ours, theirs = ({each.strip() for each in addresses.split(",")} for addresses in (self.servers, servers))
        written = {self.topic + end for end in ("", DEAD_LETTERS, BATCHES)} if ours & theirs else set()
        return min(written & set(topics), default=None)


def kafka_topic(name: str) -> str:
    """`name` of a topic; UsageError if Kafka takes none of that name, or has no room for those beside it.

    >>> kafka_topic("orders.late")
    'orders.late'
    """
    longest = _BYTES - LONGEST_ENDING
    if not re.fullmatch(r"[a-zA-Z0-9._-]+", name) or name in (".", "..") or len(name) > longest:
        raise UsageError(
            f"sink topic {name!r} must be a name of up to {longest} letters, digits and . _ - (not only one or two dots)"
        )
    return name
