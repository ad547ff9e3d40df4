"""The orders as everybody is given them, files of JSON lines or a topic, and the answer that they must lead to.

Rule 1: the same rows in the same order for everybody; `events` are the different ones, and one in twenty comes twice.
Rule 2: nobody's events are late, and no gap is given up: who is late depends on when a watermark moves, which everybody
        does at moments of his own.
Rule 3: what must come out is computed from the rows alone: each event once at its time, each order met or expired.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from confluent_kafka import Producer

from waterclock.bench import orders
from waterclock.bench.broker.workloads import BATCHED, QUIET, create
from waterclock.bench.orders import SECOND_US, Row
from waterclock.bench.processors.answers import Answer, answer

FILES: Final = 4
PARTITIONS: Final = 4
WITHIN_US: Final = 60 * SECOND_US
END_US: Final = orders.START_US + 30 * 86_400 * SECOND_US  # behind all that is due, and before today
COLUMNS: Final = ("id", "key", "seq", "kind", "ts", "deliver_at")
NUMBER: Final = "seq"  # the only column that is no text


@dataclass(frozen=True, slots=True)
class Course:
    """The orders of `events` events in a folder; `rows` is how many arrive, those that come twice counted twice."""

    events: int
    rows: int
    folder: Path
    answer: Answer


def make(events: int, folder: Path) -> Course:
    """Files of JSON lines in `folder`, one second apart, and what must come of them."""
    made = orders.make(max(1, events // len(orders.KINDS)))
    folder.mkdir(parents=True)
    size = -(-len(made.rows) // FILES)
    for number in range(FILES):
        file = folder / f"orders-{number:05d}.jsonl"
        file.write_text("".join(f"{line}\n" for line in lines(made.rows[number * size : (number + 1) * size])))
        os.utime(file, (1_700_000_000 + number, 1_700_000_000 + number))
    return Course(made.distinct, len(made.rows), folder, answer(results(made.rows)))


def lines(rows: Sequence[Row]) -> Iterator[str]:
    """Each row as a JSON object.

    >>> next(lines([("o1-1", "o1", 1, "created", 0, 1_500_000)]))[-78:]
    '"ts":"1970-01-01T00:00:00.000000Z","deliver_at":"1970-01-01T00:00:01.500000Z"}'
    """
    ids, keys, numbers, kinds, times, delivered = zip(*rows, strict=True)
    for row in zip(ids, keys, numbers, kinds, texts(times), texts(delivered), strict=True):
        parts = ",".join(
            f'"{name}":{value}' if name == NUMBER else f'"{name}":"{value}"'
            for name, value in zip(COLUMNS, row, strict=True)
        )
        yield f"{{{parts}}}"


def texts(times_us: Sequence[int]) -> list[str]:
    """Microseconds as texts in UTC, to the microsecond."""
    return [f"{text}Z" for text in np.datetime_as_string(np.array(times_us, "datetime64[us]"))]


def results(rows: Sequence[Row]) -> Iterator[tuple[str, ...]]:
    """What the rules must say: kind, key, rule, due, source, the event's id, and when it was to be delivered."""
    once = {row[0]: row for row in rows}
    delivered = texts([row[5] for row in once.values()])
    for (name, key, *_), due in zip(once.values(), delivered, strict=True):
        yield "event", key, "deliver_at", due, name, name, due
    created = [row for row in once.values() if row[3] == "created"]
    paid_us = {row[1]: row[4] for row in once.values() if row[3] == "paid"}
    deadlines_us = [row[4] + WITHIN_US for row in created]
    for (name, key, *_), due_us, due in zip(created, deadlines_us, texts(deadlines_us), strict=True):
        yield "met" if paid_us[key] < due_us else "expired", key, "unpaid", due, name, "", ""


def fill(bootstrap: str, topic: str, folder: Path) -> None:
    """The lines of the files into a topic by their keys, and in each partition a last one that moves time past all."""
    create(bootstrap, topic, PARTITIONS)
    producer = Producer({"bootstrap.servers": bootstrap, **BATCHED, **QUIET})
    for file in sorted(folder.iterdir()):
        with file.open("rb") as taken:
            for number, line in enumerate(taken):
                producer.produce(topic, line.rstrip(), line.split(b'"', 8)[7])
                if not number % 1000:
                    producer.poll(0)
        producer.flush()
    for number in range(PARTITIONS):
        last = next(lines([(f"end{number}-1", f"end{number}", 1, "created", END_US, END_US)]))
        producer.produce(topic, last, f"end{number}", number)
    if left := producer.flush(60):
        raise RuntimeError(f"{left} orders were not acknowledged within a minute")
