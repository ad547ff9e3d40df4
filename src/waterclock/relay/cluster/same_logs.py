"""Whether the input and TOPIC.settled are still the topics that this relay began with: somebody may delete them and make
them again.

Rule 1: what is known of the old ones, positions and origins, would be taken for the new one's: messages that never came
        would count as delivered, and what was delivered would come again. So a relay that finds another topic under
        the name ends, with a sentence; the next start knows which topic its files and the settlements are of.
Rule 2: looked at before a take-over that follows a failure, for a reading breaks if the new log has not come as far as
        the old one, and each `LOOK_NS`, for it goes on in silence if it has.
Rule 3: a topic that is gone, or of which Kafka does not tell, is not another one: the relay goes on, and waits.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from confluent_kafka import KafkaException, TopicCollection

from waterclock.errors import ConnectionLost, UsageError
from waterclock.kafka.errors import words_of
from waterclock.relay.cluster.watcher import Answers, Watcher

LOOK_NS: Final = 3_000_000_000
_ANSWER_S: Final = 5.0


class SameLogs:
    """Of the topics with these ids."""

    def __init__(self, watcher: Watcher, ids: Mapping[str, str]) -> None:
        self._watcher = watcher
        self._ids = ids
        watcher.ask(LOOK_NS, self._ask, self._hear)

    def check(self) -> None:
        """Look now, and wait for the answer. UsageError by rule 1, ConnectionLost by rule 3."""
        self._compare(self._ask())

    def _ask(self) -> Answers:
        asked: Answers = self._watcher.client.describe_topics(
            TopicCollection(list(self._ids)), request_timeout=_ANSWER_S
        )
        return asked

    def _hear(self, answers: Answers) -> None:
        with suppress(ConnectionLost):
            self._compare(answers)

    def _compare(self, answers: Answers) -> None:
        for topic, id in self._ids.items():
            try:
                found = str(answers[topic].result().topic_id)
            except KafkaException as error:
                raise ConnectionLost(f"Kafka does not describe the topic {topic}: {words_of(error)}.") from None
            if found != id:
                raise UsageError(
                    f"The topic {topic} was deleted and made again while this relay worked: what it held is lost. Start "
                    "the relay again."
                )
