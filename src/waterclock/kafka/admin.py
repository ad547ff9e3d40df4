"""Topics: listed, made, looked at and deleted.

Rule 1: a topic that is there is never changed.
Rule 2: one that was made just now may not be known everywhere yet: who asks for it gets it a moment later.
Rule 3: `topics` is what any broker knows: one that has just begun to follow may lack some. That one is gone is said by who
        leads alone: librdkafka asks the controller for ids and settings.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar, cast

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import ConfigResource, NewTopic, TopicDescription

from waterclock.clock import Clock, SystemClock
from waterclock.errors import EnvironmentMissing, UsageError, WaterclockError
from waterclock.kafka import library
from waterclock.kafka.errors import is_refusal, words_of
from waterclock.kafka.patience import AGAIN_AFTER_S, CALL_S, Backoff, patiently

T = TypeVar("T")


class TopicGone(UsageError):
    """There is no such topic, by the word of who leads."""


@contextmanager
def there_just_now() -> Iterator[None]:
    """EnvironmentMissing instead of TopicGone, of topics that were listed or made just now: the next start makes them."""
    try:
        yield
    except TopicGone as gone:
        raise EnvironmentMissing(f"{gone} It was there: another broker leads, which never had it.") from None


_PATIENCE_S = 30.0
_MADE_WITHIN_S = 5.0
# While a question waits for a controller that is known and away, two threads of librdkafka 2.16 spin, and use up a
# processor: it connects where there is a question. A client that keeps its connections does not, and looks for a broker
# after a pause that grows; one that bootstraps anew when no broker answers begins with the first pause each time.
_ASKING = {"enable.sparse.connections": False, "metadata.recovery.strategy": "none"}
_AWAY = (  # somebody, or there is another controller by now
    KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError._ALL_BROKERS_DOWN, KafkaError.REQUEST_TIMED_OUT,
    KafkaError.NOT_CONTROLLER,
)  # fmt: skip


class Admin:
    """What a client with these settings may see and make of topics; `patience_s`: how long Kafka is waited for; `starts`:
    the command that starts one. `client` is librdkafka's own, for who asks and does not wait: each one more would have
    threads and connections of its own. UsageError for a setting that librdkafka does not know."""

    def __init__(
        self, settings: Mapping[str, Any], patience_s: float = _PATIENCE_S, starts: str = "waterclock broker",
        clock: Clock | None = None,
    ) -> None:  # fmt: skip
        self._servers, self._patience_s, self._starts = settings["bootstrap.servers"], patience_s, starts
        self._clock = clock or SystemClock()
        try:
            self.client = library.AdminClient({**settings, **_ASKING})
        except (KafkaException, TypeError, ValueError) as error:
            raise UsageError(f"The Kafka client cannot be made: {words_of(error)}. Look at its settings.") from None

    def topics(self) -> dict[str, int]:
        """Topic -> how many partitions it has; EnvironmentMissing if nobody answers."""
        try:
            ask = partial(self.client.list_topics, timeout=CALL_S)
            topics = patiently(ask, is_refusal, self._patience_s, self._clock, self._servers).topics
        except KafkaException as error:
            raise self._nobody(error) from None
        return {name: len(topic.partitions) for name, topic in topics.items()}

    def _nobody(self, error: KafkaException) -> EnvironmentMissing:
        return EnvironmentMissing(
            f"There is no Kafka to talk to at {self._servers}: {words_of(error)}. Is the address right, and does it run? "
            f"`{self._starts}` starts one on this machine."
        )

    def known(self, topics: Iterable[str]) -> dict[str, int]:
        """Those of the topics that are there, by the word of who leads, and how many partitions each has: what a list
        lacks may be somebody's all the same. One that was made just now may be missing (rule 2). Errors as of `topics`;
        UsageError if Kafka does not say."""
        names = TopicCollection([*topics])

        def ask() -> dict[str, TopicDescription | None]:
            described = self.client.describe_topics(names, request_timeout=CALL_S)
            return {name: _if_there(future) for name, future in described.items()}

        try:
            found = patiently(
                ask, lambda error: error.code() not in _AWAY, self._patience_s, self._clock, self._servers
            )
        except KafkaException as error:
            if error.args[0].code() in _AWAY:
                raise self._nobody(error) from None
            raise _error_of(f"Kafka does not describe the topics {', '.join(names.topic_names)}", error) from None
        return {name: len(topic.partitions) for name, topic in found.items() if topic is not None}

    def make(self, topic: str, partitions: int, settings: Mapping[str, str] | None = None) -> int | None:
        """Make a topic. One that was there is as good, be it that somebody made it meanwhile or that the list lacked it:
        then how many partitions it has. UsageError if Kafka refuses, EnvironmentMissing if it went away."""
        (made,) = self.client.create_topics([NewTopic(topic, partitions, config=dict(settings or {}))]).values()
        try:
            made.result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise _error_of(f"Kafka does not make the topic {topic}", error) from None
            return self.partitions(topic)
        return None

    def remove(self, topics: Collection[str]) -> None:
        """Delete topics, and wait until they are gone; one that is gone already is as good. UsageError if Kafka refuses."""
        for topic, gone in self.client.delete_topics(list(topics)).items():
            try:
                gone.result()
            except KafkaException as error:
                if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise UsageError(f"Kafka does not delete the topic {topic}: {words_of(error)}.") from None
        backoff = Backoff((AGAIN_AFTER_S,), self._clock, _PATIENCE_S)
        while there := sorted(set(topics) & self.topics().keys()):
            if backoff.is_over:
                raise UsageError(f"Kafka has not deleted the topic {there[0]} within {_PATIENCE_S:.0f} seconds.")
            backoff.sleep()

    def topic_id(self, topic: str) -> str:
        """The id of a topic: one that is made again under the same name has another. TopicGone if it is not there,
        UsageError if Kafka does not say."""
        return str(self._described(topic).topic_id)

    def partitions(self, topic: str) -> int:
        """How many partitions a topic has, by the word of who leads; EnvironmentMissing if it is gone again."""
        with there_just_now():
            return len(self._described(topic).partitions)

    def _described(self, topic: str) -> TopicDescription:
        try:
            return self._once_known(lambda: self.client.describe_topics(TopicCollection([topic]))[topic].result())
        except KafkaException as error:
            raise _error_of(f"Kafka does not describe the topic {topic}", error) from None

    def gone(self, ids: Mapping[str, str]) -> list[str]:
        """Those of the topics that are not there any more, or are others under their names; errors as of `topic_id`."""
        return [topic for topic, id in ids.items() if self.lacks(topic, id)]

    def lacks(self, topic: str, id: str | None = None) -> bool:
        """Whether a topic is not there, or is another one than that of the `id`; errors as of `topic_id`."""
        try:
            return self.topic_id(topic) != id and id is not None
        except TopicGone:
            return True

    def settings(self, topic: str) -> dict[str, str]:
        """The settings of a topic, as Kafka names them; TopicGone and UsageError as for its id."""
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
        try:
            entries = self._once_known(lambda: self.client.describe_configs([resource])[resource].result())
        except KafkaException as error:
            raise _error_of(f"Kafka does not show the settings of the topic {topic}", error) from None
        return {name: entry.value for name, entry in entries.items()}

    def _once_known(self, ask: Callable[[], T]) -> T:
        """Rule 2."""
        return patiently(
            ask, lambda error: error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART, _MADE_WITHIN_S, self._clock
        )


def _if_there(future: Any) -> TopicDescription | None:
    try:
        return cast("TopicDescription", future.result())
    except KafkaException as error:
        if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise
        return None


def _error_of(what: str, raised: KafkaException) -> WaterclockError:
    """A refusal is the user's to mend; a broker that went away meanwhile is there again, or is not."""
    code = raised.args[0].code()
    kind = (
        EnvironmentMissing if code in _AWAY else TopicGone if code == KafkaError.UNKNOWN_TOPIC_OR_PART else UsageError
    )
    return kind(f"{what}: {words_of(raised)}.")
