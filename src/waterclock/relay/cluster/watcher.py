"""What a relay asks of the cluster while it works, through its one AdminClient: each one more would have threads and
connections of its own. And two of the questions: are the topics the same, and does Kafka delete what is pending?

Rule 1: no answer is waited for: a question is sent in one step, and its answer is read in a later one. A question that is
        repeated is not sent anew before its answer was read.
Rule 2: who reads gets the answers as librdkafka has them: a future that is done, of a value or of a KafkaException.

`SameLogs`: somebody may delete the input or TOPIC.settled, and make it again.

Rule 3: what is known of the old ones, positions and origins, would be taken for the new one's: messages that never came
        would count as delivered, and what was delivered would come again. So a relay that finds another topic under
        the name ends, with a sentence; the next start knows which topic its files and the settlements are of.
Rule 4: looked at before a take-over that follows a failure, for a reading breaks if the new log has not come as far as
        the old one, and each `SAME_LOGS_NS`, for it goes on in silence if it has.
Rule 5: a topic that is gone, or that Kafka does not describe, is not another one: the relay goes on, and waits.

`Retention`: somebody may change a topic's settings.

Rule 6: a relay does not start on topics of which Kafka deletes (topics.py). One that runs goes on: it has its files, and
        to stop would deliver nothing. It logs the same, at WARNING, when it is so, and each `AGAIN_NS` until it is mended.
Rule 7: what Kafka does not say is looked at again; that it may not be known was said at the start.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, ConfigResource

from waterclock.clock import WallClock
from waterclock.errors import ConnectionLost, UsageError
from waterclock.kafka.errors import words_of
from waterclock.relay.wire.topics import Topics, deletes

Answers = Mapping[Any, Any]  # futures, by what was asked
SAME_LOGS_NS: Final = 3_000_000_000
_ANSWER_S: Final = 5.0
log = logging.getLogger("waterclock.relay")
RETENTION_NS: Final = 60_000_000_000
AGAIN_NS: Final = 600_000_000_000


@dataclass(slots=True)
class _Question:
    every_ns: int
    what: Callable[[], Answers]
    hear: Callable[[Answers], object]
    next_ns: int
    answers: Answers | None = None


class Watcher:
    """Asks by `client`, at times of `clock`. For the relay's thread."""

    def __init__(self, client: AdminClient, clock: WallClock) -> None:
        self.client = client
        self.clock = clock
        self._questions: list[_Question] = []
        self._once: list[tuple[Answers, Callable[[Answers], object]]] = []

    def ask(self, every_ns: int, what: Callable[[], Answers], hear: Callable[[Answers], object]) -> None:
        """Call `what` each `every_ns`, for the first time when they are over, and `hear` with its answers."""
        self._questions.append(_Question(every_ns, what, hear, self.clock.monotonic_ns() + every_ns))

    def once(self, answers: Answers, hear: Callable[[Answers], object]) -> None:
        """Call `hear` with the answers to a question that was sent just now."""
        self._once.append((answers, hear))

    @property
    def is_waiting(self) -> bool:
        """Whether an answer was not read yet."""
        return bool(self._once) or any(each.answers is not None for each in self._questions)

    def step(self) -> None:
        """Read what was answered by now, and send the questions that it is time for. Raises what the callers' `hear`
        raises."""
        once, self._once = self._once, []
        for answers, hear in once:
            if _are_done(answers):
                hear(answers)
            else:
                self._once.append((answers, hear))
        now_ns = self.clock.monotonic_ns()
        for each in self._questions:
            if each.answers is None and now_ns >= each.next_ns:
                each.next_ns = now_ns + each.every_ns
                each.answers = each.what()
            elif each.answers is not None and _are_done(each.answers):
                answers, each.answers = each.answers, None
                each.hear(answers)


def _are_done(answers: Answers) -> bool:
    return all(future.done() for future in answers.values())


class SameLogs:
    """Looks whether the topics still have these ids."""

    def __init__(self, watcher: Watcher, ids: Mapping[str, str]) -> None:
        self._watcher = watcher
        self._ids = ids
        watcher.ask(SAME_LOGS_NS, self._ask, self._hear)

    def check(self) -> None:
        """Look now, and wait for the answer. UsageError by rule 3, ConnectionLost by rule 5."""
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


class Retention:
    """Looks whether Kafka deletes of the input, or of TOPIC.settled; `servers` are named in the command that mends it."""

    def __init__(self, watcher: Watcher, topics: Topics, servers: str) -> None:
        self._servers = servers
        self._watcher = watcher
        self._said: dict[str, tuple[str, int]] = {}  # what was said of a topic, and when it is said again
        resources = [ConfigResource(ConfigResource.Type.TOPIC, topic) for topic in (topics.input, topics.settled)]
        watcher.ask(RETENTION_NS, lambda: watcher.client.describe_configs(resources), self._hear)

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
