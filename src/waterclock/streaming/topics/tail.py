"""The end of topics, read by a consumer that stays there: what has come, as soon as it comes. No Spark in this file.

Who asks for ends and assigns anew for each batch (planner.py, fetcher.py) has a record tens of milliseconds after it was
sent; who stays has it at once. In return a tail knows nothing: whatever is not a record or the end of a partition is
trouble, and the planner's.

Rule 1: what came with trouble is not taken: it is read once more, from where the tail stood, by whoever knows what to do.
Rule 2: nobody else polls its client: a record that another one polled would be lost.
Rule 3: a position lies behind a record, or where the client says that the partition ends: behind a marker too.
Rule 4: records are cut as a fetcher cuts them: a batch that is read once more gives the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaError, TopicPartition

from waterclock.kafka import Offsets, Partition
from waterclock.kafka.client import Client
from waterclock.streaming.topics.fetcher import CHUNK, chunks
from waterclock.streaming.topics.records import Records

WAIT_S = 0.1  # for something to come


class Tail:
    """Stands nowhere until `stand`."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.at: Offsets = {}  # the offset that is next, of each partition
        self.may_have_more = False  # than was taken last

    def stand(self, at: Mapping[Partition, int]) -> None:
        """Read what comes from here on, and nothing else; of no partitions, nothing."""
        self._client.consumer.assign([TopicPartition(*place, offset) for place, offset in at.items()])
        self.at = dict(at)

    def take(self, most: int) -> list[Records] | None:
        """What has come, about `most` records at most, by topic, partition and offset; None if there is trouble, and then
        the tail stands where it stood."""
        first = self._client.consumer.poll(WAIT_S)
        came = [] if first is None else [first, *self._client.consumer.consume(min(CHUNK, most) - 1, 0)]
        self.may_have_more = len(came) >= min(CHUNK, most)
        at, found = dict(self.at), dict[Partition, list[Any]]()
        for message in came:
            place, error, offset = (message.topic(), message.partition()), message.error(), message.offset()
            if place not in at or (error is not None and error.code() != KafkaError._PARTITION_EOF):
                return None
            if error is not None:
                at[place] = max(at[place], offset)
            elif offset >= at[place]:
                at[place] = offset + 1
                found.setdefault(place, []).append(message)
        self.at = at
        return [records for place, messages in sorted(found.items()) for records in chunks(place, messages)]

    def close(self) -> None:
        """End of use, and of its client."""
        self._client.close()
