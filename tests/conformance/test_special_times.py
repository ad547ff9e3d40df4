"""ListOffsets by each special time, with transactions open, aborted and committed, under both isolation levels."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.conformance.batches import Record, batch, now_ms
from tests.conformance.dialogue import EARLIEST, LATEST, MAX_TIMESTAMP, Dialogue
from tests.conformance.transactions import Transactional
from tests.conformance.waiting import until

EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -4, -5, -6
SPECIAL = (LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD)


class Scene:
    def __init__(self, dialogue: Dialogue, topic: str, name: str) -> None:
        self.dialogue, self.topic, self._name, self._count = dialogue, topic, name, 0
        # of the scene's own moment, not of the session's: markers are of now
        self.before_ms, self.soon_ms, self.later_ms = (now_ms() + minutes * 60_000 for minutes in (-30, 10, 30))

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
    scene.plain(scene.soon_ms, scene.later_ms)


def the_latest_is_open(scene: Scene) -> None:
    scene.plain(scene.soon_ms)
    scene.open(scene.later_ms)


def the_latest_lies_behind_what_is_open(scene: Scene) -> None:
    scene.open(scene.soon_ms)
    scene.plain(scene.later_ms)


def the_latest_lies_before_what_is_open(scene: Scene) -> None:
    scene.plain(scene.later_ms)
    scene.open(scene.soon_ms)


def as_late_before_what_is_open(scene: Scene) -> None:
    scene.plain(scene.later_ms)
    scene.open(scene.later_ms)


def the_latest_is_aborted(scene: Scene) -> None:
    scene.plain(scene.soon_ms)
    scene.end(scene.open(scene.later_ms), False)


def the_latest_is_committed(scene: Scene) -> None:
    scene.plain(scene.soon_ms)
    scene.end(scene.open(scene.later_ms), True)


def the_latest_is_a_marker(scene: Scene) -> None:
    scene.end(scene.open(scene.before_ms), True)


def aborted_behind_what_is_open(scene: Scene) -> None:
    scene.plain(scene.soon_ms)
    scene.open(scene.soon_ms)
    scene.end(scene.open(scene.later_ms), False)


def all_is_open(scene: Scene) -> None:
    scene.open(scene.soon_ms)


def nothing(scene: Scene) -> None:
    pass


# what was made, and the answers to SPECIAL, soon_ms and later_ms: to who reads all, to who reads what is committed
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
    scene = Scene(dialogue, topic, name)
    made(scene)
    for level, expected in enumerate((uncommitted, committed)):
        replies = [
            dialogue.offset(topic, at, version=11, isolation=level) for at in (*SPECIAL, scene.soon_ms, scene.later_ms)
        ]
        assert {reply.error_code.name for reply in replies} == {"none"}
        assert tuple(reply.offset for reply in replies) == expected
