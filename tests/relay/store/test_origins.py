"""What is known of origins: when nothing is pending near them any more, after the folder was opened again, and when a
snapshot says at once what is settled.
"""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("numpy")

import numpy as np

from tests.relay.store.stores import DAY, HOUR, NOON, append, checkpoint, near, reopened, settle, settled, turn
from waterclock.clock import ManualClock
from waterclock.relay.store import Identity, PartitionStore, State, ledger, origins, pack, rows_of
from waterclock.relay.store.origins import CHUNK, FIRST_SLOT, Origins, SpanSlots
from waterclock.relay.wire.settlement import SnapshotCapture, restore


@pytest.mark.parametrize("journal_bytes", [0, 1 << 20])
def test_what_was_settled_long_ago_takes_little_room_and_is_known(
    store: PartitionStore, journal_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "JOURNAL_BYTES", journal_bytes)
    append(store, [(0, NOON), (1, NOON), (CHUNK, NOON + 5 * DAY)])
    settle(store, 0, 1)
    checkpoint(store, 2 * CHUNK)
    assert (list(store.ledger.origins.open), list(store.ledger.origins.packed)) == ([1], [0])
    assert len(store.ledger.origins.packed[0]) < 200
    settle(store, 2 * CHUNK)
    checkpoint(store, 2 * CHUNK)
    again = reopened(store)
    assert settled(again, 0, 1, 2, CHUNK, 2 * CHUNK) == [True, True, False, False, True]
    assert len(append(again, [(0, NOON), (2, NOON + 7)])) == 1  # a copy of one from before the input's start
    assert settled(again, 0, 1, 2) == [True, True, False]
    assert near(again, NOON + HOUR) == {2: NOON + 7}


def test_a_chunk_in_which_something_is_pending_stays_as_it_is(store: PartitionStore) -> None:
    append(store, [(0, NOON + 5 * DAY), (1, NOON), (3 * CHUNK, NOON)], target="mails")
    settle(store, 1)
    checkpoint(store, 4 * CHUNK)
    again = reopened(store)
    assert (again.pending, [span.pending for span in again.spans()]) == (2, [{"mails": 1}, {"mails": 1}])
    assert near(again, NOON + 6 * DAY) == {0: NOON + 5 * DAY, 3 * CHUNK: NOON}


def test_the_slot_of_a_span_that_was_dropped_is_given_again(store: PartitionStore) -> None:
    for hour in range(5):
        append(store, [(2 * hour, NOON + hour * HOUR), (2 * hour + 1, NOON + DAY)])
        settle(store, 2 * hour)
        turn(store, HOUR)
        checkpoint(store, 2 * hour + 2)
    assert len(store.ledger.slots.table()) == 1
    again = reopened(store)
    assert [span.pending for span in again.spans()] == [{"reminders": 5}]
    append(again, [(99, NOON + 20 * HOUR)])
    checkpoint(again, 100)
    assert [span.pending for span in reopened(again).spans()] == [{"reminders": 1}, {"reminders": 5}]


def test_when_slots_run_short_the_other_topics_of_a_span_are_counted_together(
    store: PartitionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(origins, "SPARE", 65_535 - FIRST_SLOT - 1)
    for n in range(5):
        append(store, [(n, NOON)], target=f"topic-{n}")
    settle(store, 4)
    assert [span.pending for span in store.spans()] == [{"topic-0": 1, "topic-1": 1, "topic-2": 1, "(other topics)": 1}]
    checkpoint(store, 5)
    again = reopened(store)
    assert [sum(span.pending.values()) for span in again.spans()] == [4]
    assert [again.targets[row["target"]] for rows in again.load(NOON + HOUR, 9) for row in rows] == [
        "topic-0",
        "topic-1",
        "topic-2",
        "topic-3",
    ]


def test_what_is_settled_stays_as_it_was_settled_first() -> None:
    origins = Origins(SpanSlots())
    some = np.array([3, 70_000])
    assert origins.settle(some, State.CANCELLED, range(0)).tolist() == [3, 70_000]
    assert origins.settle(some, State.DELIVERED, range(0)).tolist() == []
    assert origins.values(some).tolist() == [State.CANCELLED, State.CANCELLED]


IDENTITY = Identity("group", "topic", 0)
END = 3 * CHUNK + 10
PENDING = [5, CHUNK + 7, 3 * CHUNK + 2]  # in the first, the second, the last chunk
CANCELLED = [6, 3 * CHUNK + 3]


def empty(folder: Path) -> PartitionStore:
    return PartitionStore(folder, IDENTITY, ManualClock())


def file(store: PartitionStore, origins: list[int]) -> list[int]:
    rows = rows_of([10**12] * len(origins), origins)
    return store.append(rows, [pack(b"", None)] * len(origins), ["to"] * len(origins))["origin"].tolist()


def filled(folder: Path) -> PartitionStore:
    """All but `PENDING` is settled of what it knows; of the third chunk nothing is left but that."""
    store = empty(folder)
    fired = [0, 2 * CHUNK, 2 * CHUNK + 1, 3 * CHUNK]
    file(store, sorted([*fired, *CANCELLED, *PENDING]))
    store.settle(np.array(fired))
    store.settle(np.array(CANCELLED), State.CANCELLED)
    return store


def restored(store: PartitionStore, folder: Path, swept: int) -> PartitionStore:
    """Another one that a snapshot of the first was read into."""
    capture = SnapshotCapture(store, 0, END, swept, [])
    while capture.step():
        pass
    other = empty(folder)
    other.begin(swept)
    restore(other, capture.made(0))
    return other


def check(store: PartitionStore) -> None:
    """What was pending may be filed; nothing else may."""
    some = [0, 1, 5, 6, CHUNK, CHUNK + 7, CHUNK + 8, 2 * CHUNK, 2 * CHUNK + 1, 2 * CHUNK + 9]
    expected = {5, CHUNK + 7, 1, CHUNK, CHUNK + 8}  # 1 and its like were no messages: no copy is of them
    assert {origin for origin in some if not store.is_settled(np.array([origin])).item()} == expected
    assert store.is_settled(np.array([3 * CHUNK, 3 * CHUNK + 3, 3 * CHUNK + 2])).tolist() == [True, True, False]


def test_what_is_settled_is_and_what_is_pending_may_come(tmp_path: Path) -> None:
    store = restored(filled(tmp_path / "a"), tmp_path / "b", 3 * CHUNK)
    check(store)
    assert file(store, [*PENDING, 0, 6, 2 * CHUNK]) == PENDING
    store.close()


def test_it_outlasts_a_checkpoint_and_a_crash_behind_it(tmp_path: Path) -> None:
    store = restored(filled(tmp_path / "a"), tmp_path / "b", 3 * CHUNK)
    store.checkpoint(END, None, 3)
    store.settle(np.array([CHUNK + 7]))
    store.close()
    store = empty(tmp_path / "b")
    check(store)
    assert file(store, PENDING) == PENDING
    store.checkpoint(END, None, 3)
    store.close()
    store = empty(tmp_path / "b")
    assert store.is_pending(np.array([*PENDING, 0])).tolist() == [True, True, True, False]
    store.close()


def test_what_a_store_has_for_pending_and_the_snapshot_for_settled_is_settled(tmp_path: Path) -> None:
    first = filled(tmp_path / "a")
    older = empty(tmp_path / "b")
    file(older, [0, 6, 2 * CHUNK, *PENDING])
    capture = SnapshotCapture(first, 0, END, 3 * CHUNK, [])
    while capture.step():
        pass
    restore(older, capture.made(0))
    assert older.is_pending(np.array([0, 6, 2 * CHUNK, *PENDING])).tolist() == [False] * 3 + [True] * 3
    assert older.pending == 3
    first.close()
    older.close()


def test_how_it_was_settled_is_known_from_the_swept_mark_on(tmp_path: Path) -> None:
    store = restored(filled(tmp_path / "a"), tmp_path / "b", 2 * CHUNK + 5)
    values = store.ledger.origins.values(np.array([0, 6, 2 * CHUNK, 3 * CHUNK + 3]))
    assert values.tolist() == [State.DELIVERED, State.CANCELLED, State.DELIVERED, State.CANCELLED]
    store.close()
    store = restored(filled(tmp_path / "c"), tmp_path / "d", 3 * CHUNK)
    assert store.ledger.origins.values(np.array([2 * CHUNK])).tolist() == [State.SETTLED]
    store.close()
