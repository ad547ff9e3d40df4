"""What came out, against what had to: results by kind, and a sum over all rows, which one row more, less or other changes.

Rule 1: a row is kind, key, rule, due, source, the event's id, and when it was to be delivered. What each contender names in
        his own way (ids of results, batches) or decides by his own watermark (the moment of emission) is left out.
Rule 2: what moves time on, under keys that begin with "end", is no order.
Rule 3: of a topic, what a reader of committed records sees.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

from waterclock.bench.broker.workloads import QUIET

ROW: Final = ("kind", "key", "rule", "due", "source_id", "event_id", "event_deliver_at")
TIMES: Final = (3, 6)  # of a row; T and Z are a form of JSON's
DIGITS: Final = 26
WITHIN_S: Final = 30.0
AT_ONCE, AT_MOST_S = 10_000, 0.2


@dataclass(frozen=True, slots=True)
class Answer:
    """Results by kind; `total` is a sum over all rows, None where nobody kept them."""

    counts: Mapping[str, int]
    total: int | None

    def is_right(self, other: Answer) -> bool:
        """Whether `other` is as far as it tells the same.

        >>> Answer({"met": 1}, 5).is_right(Answer({"met": 1}, None)), Answer({"met": 1}, 5).is_right(Answer({"met": 1}, 6))
        (True, False)
        """
        return dict(self.counts) == dict(other.counts) and other.total in (None, self.total)


def answer(rows: Iterable[tuple[Any, ...]]) -> Answer:
    """Of the rows of one place.

    >>> row = ("met", "o1", "unpaid", "1970-01-01T00:00:01.500000Z", "o1-1", None, None)
    >>> answer([row]) == answer([(*row[:3], "1970-01-01 00:00:01.500000", "o1-1", "", "")])
    True
    """
    counts: Counter[str] = Counter()
    total = 0
    for row in rows:
        if not row[1].startswith("end"):
            counts[row[0]] += 1
            total += hash(tuple(_plain(value) if place in TIMES else value or "" for place, value in enumerate(row)))
    return Answer(dict(counts), total)


def counted(counts: Mapping[str, int]) -> Answer:
    """Of who threw the rows away."""
    return Answer({kind: count for kind, count in counts.items() if count}, None)


def _plain(time: str | None) -> str:
    return (time or "")[:DIGITS].replace("T", " ")


def of_table(file: Path) -> Answer:
    """The table `results` of a SQLite file."""
    with closing(sqlite3.connect(file)) as db:
        return answer(db.execute(f"SELECT {', '.join(ROW)} FROM results"))


def of_topic(bootstrap: str, topic: str) -> Answer:
    """The committed records of a topic."""
    return answer(tuple(row[name] for name in ROW) for row in map(json.loads, _values(bootstrap, topic)))


def _values(bootstrap: str, topic: str) -> Iterator[bytes]:
    settings = {"isolation.level": "read_committed", "enable.partition.eof": True, "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", **settings, **QUIET})
    try:
        left = set(consumer.list_topics(topic, WITHIN_S).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in left])
        until_s = time.monotonic() + WITHIN_S
        while left:
            messages = consumer.consume(AT_ONCE, AT_MOST_S)
            if messages:
                until_s = time.monotonic() + WITHIN_S
            elif time.monotonic() > until_s:
                raise TimeoutError(f"{topic} gave nothing for {WITHIN_S:.0f} s")
            for message in messages:
                if (error := message.error()) is None:
                    yield message.value()
                elif error.code() == KafkaError._PARTITION_EOF:
                    left.discard(message.partition())
                else:
                    raise KafkaException(error)
    finally:
        consumer.close()
