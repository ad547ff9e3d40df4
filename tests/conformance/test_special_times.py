"""ListOffsets by each special time, with transactions open, aborted and committed, under both isolation levels."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.conformance.batches import TODAY_MS, Record, batch
from tests.conformance.dialogue import EARLIEST, LATEST, MAX_TIMESTAMP, Dialogue
from tests.conformance.transactions import Transactional
from tests.conformance.waiting import until

EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -4, -5, -6
SPECIAL = (LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD)
BEFORE_MS, SOON_MS, LATER_MS = (TODAY_MS + minutes * 60_000 for minutes in (-30, 10, 30))  # markers are of now


class Scene:
    def __init__(self, dialogue: Dialogue, topic: str, name: str) -> None:
        self.dialogue, self.topic, self._name, self._count = dialogue, topic, name, 0

    def plain(self, *times: int) -> None:
        assert self.dialogue.produce(self.topic, batch(*(Record(b"v", timestamp_ms=t) for t in times))).error_code == 0

    def open(self, *times: int) -> Transactional:
        self._count += 1
        producer = Transactional(self.dialogue, f"{self._name}-{self._count}")
        producer.put(self.topic, *(Record(b"v", timestamp_ms=t) for t in times))  # type: ignore[arg-type]
        return producer

    def end(self, producer: Transactional, committed: bool) -> None:
        """Until its marker is there: Apache Kafka answers before."""
        end = self.dialogue.offset(self.topic, LATEST).offset
        assert producer.end(committed) == "none"
        until(lambda: self.dialogue.offset(self.topic, LATEST).offset > end)


def plain(scene: Scene) -> None:
    scene.plain(SOON_MS, LATER_MS)


def the_latest_is_open(scene: Scene) -> None:
    scene.plain(SOON_MS)
    scene.open(LATER_MS)


def the_latest_lies_behind_what_is_open(scene: Scene) -> None:
    scene.open(SOON_MS)
    scene.plain(LATER_MS)


def the_latest_lies_before_what_is_open(scene: Scene) -> None:
    scene.plain(LATER_MS)
    scene.open(SOON_MS)


def as_late_before_what_is_open(scene: Scene) -> None:
    scene.plain(LATER_MS)
    scene.open(LATER_MS)


def the_latest_is_aborted(scene: Scene) -> None:
    scene.plain(SOON_MS)
    scene.end(scene.open(LATER_MS), False)


def the_latest_is_committed(scene: Scene) -> None:
    scene.plain(SOON_MS)
    scene.end(scene.open(LATER_MS), True)


def the_latest_is_a_marker(scene: Scene) -> None:
    scene.end(scene.open(BEFORE_MS), True)


def aborted_behind_what_is_open(scene: Scene) -> None:
    scene.plain(SOON_MS)
    scene.open(SOON_MS)
    scene.end(scene.open(LATER_MS), False)


def all_is_open(scene: Scene) -> None:
    scene.open(SOON_MS)


def nothing(scene: Scene) -> None:
    pass


# what was made, and the answers to SPECIAL, SOON_MS and LATER_MS: to who reads all, to who reads what is committed
TABLE = [
    (plain, (2, 0, 1, 0, -1, -1, 0, 1), (2, 0, 1, 0, -1, -1, 0, 1)),
    (the_latest_is_open, (2, 0, 1, 0, -1, -1, 0, 1), (1, 0, -1, 0, -1, -1, 0, -1)),
    (the_latest_lies_behind_what_is_open, (2, 0, 1, 0, -1, -1, 0, 1), (0, 0, -1, 0, -1, -1, -1, -1)),
    (the_latest_lies_before_what_is_open, (2, 0, 0, 0, -1, -1, 0, 0), (1, 0, 0, 0, -1, -1, 0, 0)),
    (as_late_before_what_is_open, (2, 0, 0, 0, -1, -1, 0, 0), (1, 0, 0, 0, -1, -1, 0, 0)),
    (the_latest_is_aborted, (3, 0, 1, 0, -1, -1, 0, 1), (3, 0, 1, 0, -1, -1, 0, 1)),
    (the_latest_is_committed, (3, 0, 1, 0, -1, -1, 0, 1), (3, 0, 1, 0, -1, -1, 0, 1)),
    (the_latest_is_a_marker, (2, 0, 1, 0, -1, -1, -1, -1), (2, 0, 1, 0, -1, -1, -1, -1)),
    (aborted_behind_what_is_open, (4, 0, 2, 0, -1, -1, 0, 2), (1, 0, -1, 0, -1, -1, 0, -1)),
    (all_is_open, (1, 0, 0, 0, -1, -1, 0, -1), (0, 0, -1, 0, -1, -1, -1, -1)),
    (nothing, (0, 0, -1, 0, -1, -1, -1, -1), (0, 0, -1, 0, -1, -1, -1, -1)),
]


@pytest.mark.parametrize(("made", "uncommitted", "committed"), TABLE, ids=[row[0].__name__ for row in TABLE])
def test_what_each_special_time_is_answered(
    dialogue: Dialogue,
    topic: str,
    name: str,
    made: Callable[[Scene], None],
    uncommitted: tuple[int, ...],
    committed: tuple[int, ...],
) -> None:
    """The record with the latest time lay behind an open transaction, and another one was named to who reads what is
    committed: there is none whose time is known to be the latest."""
    made(Scene(dialogue, topic, name))
    for level, expected in enumerate((uncommitted, committed)):
        replies = [dialogue.offset(topic, at, version=11, isolation=level) for at in (*SPECIAL, SOON_MS, LATER_MS)]
        assert {reply.error_code.name for reply in replies} == {"none"}
        assert tuple(reply.offset for reply in replies) == expected
