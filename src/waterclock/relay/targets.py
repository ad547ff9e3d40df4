"""Which topics are there to be delivered to, asked seldom.

Rule 1: a topic that was there a moment ago is taken to be there; one that is not known is asked for before it is called
        missing. Brokers that make topics on demand are given the time for it.
Rule 2: a missing one is not asked for again at once: requests that name it cost nobody else anything.
Rule 3: to have a broker make one takes an answer each: `MOST_ASKED` in REFRESH_S. Of more names not there, the others
        are missing unasked: whoever makes names up holds nobody else's messages back for long.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any, Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from waterclock.clock import Clock, SystemClock
from waterclock.errors import ConnectionLost
from waterclock.kafka.errors import words_of
from waterclock.relay.topics import Topics

REFRESH_S: Final = 5.0
MOST_ASKED: Final = 25
_ASKED_S: Final = 5.0
_MADE_WITHIN_S: Final = 0.5  # a topic that the broker makes on demand


class Targets:
    """The topics of the cluster, but for the relay's own."""

    def __init__(self, client: AdminClient, topics: Topics, clock: Clock | None = None) -> None:
        self._client, self._own, self._clock = client, frozenset(topics), clock or SystemClock()
        self._known: frozenset[str] = frozenset()
        self._missing: dict[str, float] = {}  # until when it is not asked for
        self._fresh_until_s = 0.0
        self._left, self._left_until_s = MOST_ASKED, 0.0  # rule 3

    def missing(self, topics: Iterable[str]) -> dict[str, str]:
        """Those of `topics` that nothing can be delivered to, each with the reason. ConnectionLost if Kafka is away."""
        wanted = set(topics)
        if self._clock.monotonic_s() >= self._fresh_until_s:
            self._refresh()
        unknown = wanted - self._known - self._own
        asked = {topic for topic in unknown if self._missing.get(topic, 0.0) <= self._clock.monotonic_s()}
        if asked:
            self._refresh()
        if asked := self._some(asked - self._known):
            self._ask(asked)
        absent = {topic: f"there is no topic {topic} to deliver to." for topic in unknown - self._known}
        own = {topic: f"{topic} is the relay's own: nothing is delivered there." for topic in wanted & self._own}
        return absent | own

    def _some(self, topics: set[str]) -> set[str]:
        """As many of them as may be asked for now (rule 3)."""
        if self._clock.monotonic_s() >= self._left_until_s:
            self._left, self._left_until_s = MOST_ASKED, self._clock.monotonic_s() + REFRESH_S
        some = set(islice(topics, self._left))
        self._left -= len(some)
        return some

    def _ask(self, topics: set[str]) -> None:
        until_s = self._clock.monotonic_s() + _MADE_WITHIN_S
        for topic in topics:
            self._list(topic)  # has a broker make it that does so
        self._refresh()
        while topics - self._known and self._clock.monotonic_s() < until_s:
            self._clock.sleep_s(0.1)
            self._refresh()
        again_s = self._clock.monotonic_s() + REFRESH_S
        self._missing = (
            {**self._missing, **dict.fromkeys(topics - self._known, again_s)} if len(self._missing) < 10_000 else {}
        )

    def _refresh(self) -> None:
        self._known = frozenset(name for name, topic in self._list().items() if topic.error is None) - self._own
        self._fresh_until_s = self._clock.monotonic_s() + REFRESH_S

    def _list(self, topic: str | None = None) -> dict[str, Any]:
        try:
            return dict(self._client.list_topics(topic, timeout=_ASKED_S).topics)
        except KafkaException as error:
            raise ConnectionLost(f"Kafka does not say which topics there are: {words_of(error)}.") from None
