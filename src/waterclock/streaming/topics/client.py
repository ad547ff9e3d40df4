"""A pipeline's client of Kafka: its settings, and the offsets that its file means.

Rule 1: offsets live with the results; what keeps that promise wins over [source.client].
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from waterclock.clock import Clock
from waterclock.errors import EnvironmentMissing, pip_install
from waterclock.kafka.partitions import Offsets, Partition
from waterclock.kafka.settings import READING, base_settings
from waterclock.streaming.toml.topics import Topics, Where

try:
    from waterclock.kafka.client import Client, Remedies
except ImportError as error:
    raise EnvironmentMissing(f"{error.name} is missing: {pip_install('kafka')}", door="kafka") from error

_FOR_BATCHES = {
    "group.id": "waterclock",  # librdkafka wants a name; nobody joins under it
    # a request that waits for more at the end of a partition stands in the way of the next batch's first one
    "fetch.wait.max.ms": "20",
    "queued.max.messages.kbytes": "16384",  # what is read ahead of a batch's end is thrown away
}
_REMEDIES = Remedies(settings="[source.client]", servers="'servers' in [source]")


def settings_of(topics: Topics) -> dict[str, Any]:
    """The settings of librdkafka for reading these topics."""
    return {**_FOR_BATCHES, **base_settings(topics.servers, topics.client), **READING}


def client_for(settings: Mapping[str, Any], patience_s: float, clock: Clock | None = None) -> Client:
    """A client whose errors name the parts of a pipeline's file; UsageError for a setting that there is not."""
    return Client(settings, patience_s, _REMEDIES, clock)


def resolved(client: Client, where: Where, partitions: Iterable[Partition]) -> Offsets:
    """The offsets that `starting` or `ending` of a pipeline's file mean; of `partitions` that it leaves out: the first."""
    wanted = list(partitions)
    if isinstance(where, Mapping):
        given = {(topic, partition): where[topic][partition] for topic in where for partition in where[topic]}
        return {**client.starts(wanted), **given}
    if isinstance(where, int):
        return client.at(wanted, where)
    return client.starts(wanted) if where == "earliest" else client.ends(wanted)
