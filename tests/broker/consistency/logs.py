"""What is there in the end: every partition read from its beginning to its end, and what groups have committed.

Rule 1: a reader of committed records reads to the last stable offset; `settled` waits until that is the end.
Rule 2: what cannot be read to its end in time is `Stalled`: nothing is ever taken for empty.
"""

from __future__ import annotations

from contextlib import closing
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from tests.broker.consistency.facts import COMMITTED
from tests.broker.consistency.worker import QUICK, places, value_of
from waterclock.clock import SystemClock

PATIENCE_S = 60.0
CLOCK = SystemClock()


class Stalled(Exception):
    """Something that must come about within a minute did not."""


def consumer(bootstrap: str, isolation: str, group: str = "none") -> Consumer:
    """One that is asked, and belongs to no group."""
    return Consumer({
        "bootstrap.servers": bootstrap, "group.id": group, "isolation.level": isolation, "enable.auto.commit": False,
        "enable.partition.eof": True, "auto.offset.reset": "error", "check.crcs": True, **QUICK,
    })  # fmt: skip


def everything(bootstrap: str, isolation: str, *topics: str) -> list[list[Any]]:
    """All records, as [topic, partition, offset, value]; Stalled where a partition does not come to its end."""
    found, asked = [], places(*topics)
    left = {(one.topic, one.partition) for one in asked}
    until_s = CLOCK.monotonic_s() + PATIENCE_S
    last: object = None
    with closing(consumer(bootstrap, isolation)) as reader:
        reader.assign(asked)
        while left and CLOCK.monotonic_s() < until_s:
            for one in reader.consume(1000, 0.2):
                error = one.error()
                if error is None:
                    found.append([one.topic(), one.partition(), one.offset(), value_of(one)])
                elif error.code() == KafkaError._PARTITION_EOF:
                    left.discard((one.topic(), one.partition()))
                else:
                    last = error
    if left:
        raise Stalled(f"{sorted(left)} were not read to their ends ({isolation}): {last}")
    return found


def unsettled(bootstrap: str, *topics: str) -> list[str]:
    """The partitions in which a transaction is open: a reader of committed records does not come to their end."""
    found = []
    with closing(consumer(bootstrap, COMMITTED)) as stable, closing(consumer(bootstrap, "read_uncommitted")) as all_:
        for place in places(*topics):
            end = all_.get_watermark_offsets(place, 10)[1]
            if stable_end(stable, place) < end:
                found.append(f"{place.topic}-{place.partition}")
    return found


def stable_end(reader: Consumer, place: TopicPartition) -> int:
    """The last stable offset."""
    return int(reader.get_watermark_offsets(place, 10)[1])


def settled(bootstrap: str, *topics: str) -> None:
    """Wait until no transaction is open."""
    until_s, words = CLOCK.monotonic_s() + PATIENCE_S, "nobody answers"
    while CLOCK.monotonic_s() < until_s:
        try:
            found = unsettled(bootstrap, *topics)
            if not found:
                return
            words = f"open transactions in {found}"
        except KafkaException as error:
            words = str(error)
        CLOCK.sleep_s(0.2)
    raise Stalled(f"{words}, for {PATIENCE_S:g} s after their clients were gone")


def committed(bootstrap: str, group: str, *topics: str) -> dict[str, int]:
    """A group's offsets."""
    with closing(consumer(bootstrap, COMMITTED, group)) as asked:
        told = asked.committed(places(*topics), timeout=30)
    return {f"{one.topic}-{one.partition}": max(one.offset, -1) for one in told}
