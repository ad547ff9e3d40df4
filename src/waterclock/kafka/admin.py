"""Topics: listed, made and looked at.

Rule 1: a topic that is there is never changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

from waterclock.clock import SystemClock
from waterclock.errors import EnvironmentMissing, UsageError
from waterclock.kafka.errors import Meaning, meaning_of, words_of
from waterclock.kafka.patience import patiently

_PATIENCE_S = 30.0
_KNOWN_WITHIN_S = 10.0


class Admin:
    """What a client with these settings may see and make of topics."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._servers, self._client = settings["bootstrap.servers"], AdminClient(dict(settings))

    def topics(self) -> dict[str, int]:
        """Topic -> how many partitions it has; EnvironmentMissing if nobody answers."""
        try:
            topics = self._client.list_topics(timeout=_PATIENCE_S).topics
        except KafkaException as error:
            raise EnvironmentMissing(f"There is no Kafka to talk to at {self._servers}: {words_of(error)}.") from None
        return {name: len(topic.partitions) for name, topic in topics.items()}

    def make(self, topic: str, partitions: int, settings: Mapping[str, str] | None = None) -> None:
        """Make a topic; one that somebody made meanwhile is as good. UsageError if Kafka refuses."""
        (made,) = self._client.create_topics([NewTopic(topic, partitions, config=dict(settings or {}))]).values()
        try:
            made.result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise UsageError(f"Kafka does not make the topic {topic}: {words_of(error)}.") from None

    def topic_id(self, topic: str) -> str:
        """The id of a topic: one that is made again under the same name has another. UsageError if Kafka does not say."""
        try:
            described = _once_known(lambda: self._client.describe_topics(TopicCollection([topic]))[topic].result())
        except KafkaException as error:
            raise UsageError(f"Kafka does not describe the topic {topic}: {words_of(error)}.") from None
        return str(described.topic_id)

    def settings(self, topic: str) -> dict[str, str]:
        """The settings of a topic, as Kafka names them; UsageError if Kafka does not show them."""
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
        try:
            entries = _once_known(lambda: self._client.describe_configs([resource])[resource].result())
        except KafkaException as error:
            raise UsageError(f"Kafka does not show the settings of the topic {topic}: {words_of(error)}.") from None
        return {name: entry.value for name, entry in entries.items()}


def _once_known(ask: Callable[[], Any]) -> Any:
    """The answer about a topic that was made just now: Kafka's brokers hear of it one after the other."""
    return patiently(ask, lambda error: meaning_of(error) is not Meaning.UNKNOWN, _KNOWN_WITHIN_S, SystemClock())
