"""What is known of the topics that messages go to, before anything is sent there: whether one is there, whether this relay
may write to it, how large a batch it takes.

Rule 1: asking makes no topic: a name that was misspelt must not become a topic that nobody reads. Who wants missing topics
        made says so (--make-targets), and the relay makes them. Its producer has none made either (kafka/settings.py), so a
        topic that is deleted between question and sending is not made anew.
Rule 2: an answer is believed for `FRESH_S`, and no longer than until Kafka refuses something that it allowed. So many names
        as come together are one question: whoever makes names up holds nobody else's messages back for long.
Rule 3: what Kafka does not say is no reason to put a message aside: a relay without the right to see a topic's settings
        does not know how much it takes, and hears it when it sends.
Rule 4: whether a topic is there is asked when a request comes, and when it is due. Whether this relay may write to it is
        asked when it is due: until then somebody may give it the right.
Rule 5: nothing is delivered to the relay's own topics, nor to Kafka's, whose names begin with `__`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AclOperation, AdminClient, ConfigResource, NewTopic

from waterclock.clock import Clock, SystemClock
from waterclock.errors import ConnectionLost
from waterclock.kafka.errors import Meaning, Verdict, meaning_of, verdict_of, words_of
from waterclock.relay.wire.request import is_kafkas_own
from waterclock.relay.wire.topics import Topics

FRESH_S: Final = 5.0
_ASKED_S: Final = 5.0
_MOST: Final = 10_000  # that are remembered
_BROKERS: Final = -1  # as many partitions and replicas as the broker gives


@dataclass(slots=True)
class _Topic:
    """`absent`: why nothing can go there, now or later; `refuses`: why this relay may send nothing there now. `limit`: the
    largest batch in bytes, None if that is not known; `has_all`: its settings were asked for too."""

    until_s: float
    absent: str | None = None
    refuses: str | None = None
    limit: int | None = None
    has_all: bool = False


class Targets:
    """Asks by `client`. `makes`: a topic that is not there is made."""

    def __init__(self, client: AdminClient, topics: Topics, clock: Clock | None = None, makes: bool = False) -> None:
        self._client = client
        self._own = frozenset(topics)
        self._makes = makes
        self._clock = clock or SystemClock()
        self._known: dict[str, _Topic] = {}

    def missing(self, topics: Iterable[str]) -> dict[str, str]:
        """The topics that nothing can be delivered to, each with the reason. ConnectionLost if Kafka is away."""
        return self._reasons(set(topics), False)

    def refusing(self, topics: Iterable[str]) -> dict[str, str]:
        """The same, with the topics that this relay may not write to: nothing that is due goes to one of these."""
        return self._reasons(set(topics), True)

    def limit(self, topic: str) -> int | None:
        """The largest batch that the topic takes, in bytes, as far as that was heard of when it was due last."""
        known = self._known.get(topic)
        return known.limit if known is not None else None

    def refuse(self, topic: str, why: str) -> None:
        """Kafka has just refused all that goes to the topic."""
        self._known[topic] = _Topic(self._clock.monotonic_s() + FRESH_S, refuses=why, has_all=True)

    def forget(self, topics: Iterable[str]) -> None:
        """Kafka has refused something that goes to one of these: Kafka is asked for them anew (rule 2)."""
        for topic in topics:
            self._known.pop(topic, None)

    def own_refusal(self) -> str | None:
        """Which of the relay's own topics it may not write to, and why; None if Kafka names none."""
        found = self._asked(sorted(self._own), False)
        return next((why for one in found.values() if (why := one.absent or one.refuses)), None)

    def _reasons(self, topics: set[str], is_due: bool) -> dict[str, str]:
        reserved = {topic for topic in topics if topic in self._own or is_kafkas_own(topic)}
        whose = {True: "the relay's own", False: "Kafka's own"}
        found = {topic: f"{topic} is {whose[topic in self._own]}: nothing is delivered there." for topic in reserved}
        now_s, known = self._clock.monotonic_s(), self._known
        asked = topics - reserved
        stale = [
            t for t in sorted(asked) if (one := known.get(t)) is None or one.until_s <= now_s or is_due > one.has_all
        ]
        if stale:
            if len(known) + len(stale) > _MOST:
                self._known = known = {topic: known[topic] for topic in asked if topic in known}
            known.update(self._asked(stale, is_due))
            if self._makes and (absent := [topic for topic in stale if known[topic].absent]):
                known.update(self._made(absent))
        for topic in asked:
            why = known[topic].absent or (known[topic].refuses if is_due else None)
            if why is not None:
                found[topic] = why
        return found

    def _asked(self, topics: Collection[str], is_due: bool) -> dict[str, _Topic]:
        """Both questions at once: an answer takes as long as both."""
        described = self._client.describe_topics(
            TopicCollection(list(topics)), include_authorized_operations=True, request_timeout=_ASKED_S
        )
        resources = {topic: ConfigResource(ConfigResource.Type.TOPIC, topic) for topic in topics if is_due}
        settings = self._client.describe_configs([*resources.values()], request_timeout=_ASKED_S) if resources else {}
        until_s = self._clock.monotonic_s() + FRESH_S
        found = {topic: self._topic(topic, future, until_s) for topic, future in described.items()}
        for topic, resource in resources.items():
            found[topic].has_all = True
            with suppress(KafkaException, KeyError, ValueError):  # rule 3
                found[topic].limit = int(settings[resource].result()["max.message.bytes"].value)
        return found

    def _topic(self, name: str, future: Any, until_s: float) -> _Topic:
        try:
            operations = future.result().authorized_operations
        except KafkaException as raised:
            return _without(name, raised.args[0], until_s)
        if operations and AclOperation.WRITE not in operations:
            return _Topic(until_s, refuses=f"the relay has no right to write to {name}.")
        return _Topic(until_s)

    def _made(self, topics: Collection[str]) -> dict[str, _Topic]:
        asked = [NewTopic(topic, _BROKERS, _BROKERS) for topic in topics]
        found = {}
        for topic, future in self._client.create_topics(asked, request_timeout=_ASKED_S).items():
            until_s = self._clock.monotonic_s() + FRESH_S
            try:
                future.result()
            except KafkaException as raised:
                if raised.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    why = f"there is no topic {topic}, and Kafka does not make it: {words_of(raised)}."
                    found[topic] = _Topic(until_s, absent=why)
                    continue
            found[topic] = _Topic(until_s)
        return found


def _without(name: str, error: KafkaError, until_s: float) -> _Topic:
    """A topic of which Kafka says no more than this. ConnectionLost if it says nothing."""
    meaning = meaning_of(error)
    if meaning is Meaning.UNKNOWN:
        return _Topic(until_s, absent=f"there is no topic {name} to deliver to.")
    if meaning is Meaning.FORBIDDEN:
        return _Topic(until_s, refuses=f"the relay has no right to the topic {name}.")
    if verdict_of(error) is Verdict.TOPIC:
        return _Topic(until_s, absent=f"{name} takes no message: {words_of(error)}.")
    if error.code() < 0:  # librdkafka's own word, not the broker's
        raise ConnectionLost(f"Kafka does not say which topics there are: {words_of(error)}.")
    return _Topic(until_s)  # rule 3
