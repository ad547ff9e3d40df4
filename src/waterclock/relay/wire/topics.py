"""The relay's topics: the input, and beside it what is settled, answered and refused.

    TOPIC            requests: the log of what is pending
    TOPIC.settled    origins that are not pending any more; partition by partition with TOPIC
    TOPIC.replies    what became of cancels and replaces
    TOPIC.dead       requests that cannot be done, with the reason

Rule 1: what is missing is made; a topic that is there is never changed.
Rule 2: Kafka deletes nothing of TOPIC and TOPIC.settled by age or size: that would be what is pending. A relay does not
        start on topics that do, and one that runs says so (watcher.py).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final, NamedTuple

from waterclock.errors import UsageError, WaterclockError
from waterclock.kafka.admin import Admin, there_just_now
from waterclock.relay.wire.request import names_a_topic

log = logging.getLogger("waterclock.relay")
STARTS: Final = "waterclock relay --embedded out/relay"  # a relay, and a Kafka for it, where there is none
KEPT: Final = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}


class Topics(NamedTuple):
    """The four by name.

    >>> Topics.of("delays").settled
    'delays.settled'
    """

    input: str
    settled: str
    replies: str
    dead: str

    @classmethod
    def of(cls, topic: str) -> Topics:
        return cls(topic, f"{topic}.settled", f"{topic}.replies", f"{topic}.dead")


def check_names(topics: Topics) -> None:
    """UsageError if one of them cannot be the name of a topic."""
    for topic in topics:
        if not names_a_topic(topic):
            raise UsageError(
                f"No topic may be named {topic!r}: names have letters, digits, '.', '_' and '-', 249 at most. Give another "
                "--topic."
            )


def prepare(admin: Admin, topics: Topics, partitions: int, servers: str) -> int:
    """Make what is missing, and check what is there (rule 2); how many partitions the input has."""
    there = admin.topics()
    count = there.get(topics.input, there.get(topics.settled, partitions))
    for topic in (topic for topic in topics if topic not in there):  # the input first
        made = admin.make(topic, count, KEPT if topic in (topics.input, topics.settled) else None)
        there[topic] = made or count
        count = there[topics.input]
    if there[topics.settled] != count:
        fewer = min(topics.input, topics.settled, key=there.__getitem__)
        raise UsageError(
            f"{topics.input} has {count} partitions and {topics.settled} {there[topics.settled]}: what is settled stands "
            "in the partition of the same number. Give both as many, with: kafka-topics.sh --bootstrap-server "
            f"{servers} --alter --topic {fewer} --partitions {max(count, there[topics.settled])}"
        )
    for topic in (topics.input, topics.settled):
        with there_just_now():
            settings = admin.settings(topic)
        if (deleted := deletes(topic, settings, servers)) is not None:
            raise UsageError(deleted)
    return count


def make_what_is_gone(admin: Admin, topics: Topics, partitions: int) -> None:
    """Make those topics of answers that somebody deleted meanwhile. Of the input and what is settled nothing is made again:
    what they held is lost, and a relay says so when it starts."""
    try:
        there = admin.topics()
        gone = [topic for topic in (topics.replies, topics.dead) if topic not in there]
        for topic in gone:
            if admin.make(topic, partitions) is None:
                log.warning("the topic %s was deleted: it is made again, empty", topic)
    except WaterclockError:
        return  # the next turn tells


def deletes(topic: str, settings: Mapping[str, str], servers: str) -> str | None:
    """What Kafka deletes of a topic with these settings, as a sentence with the remedy; None if it deletes nothing."""
    wrong = {name: settings.get(name, value) for name, value in KEPT.items() if settings.get(name, value) != value}
    if not wrong:
        return None
    has = " and ".join(f"{name}={value}" for name, value in wrong.items())
    mended = ",".join(f"{name}={KEPT[name]}" for name in wrong)
    return (
        f"The topic {topic} has {has}: Kafka would delete what is pending. Mend it with: kafka-configs.sh "
        f"--bootstrap-server {servers} --alter --entity-type topics --entity-name {topic} --add-config {mended}"
    )
