"""What is known of origins when nothing is pending near them any more, and after the folder was opened again."""

from __future__ import annotations

import pytest

pytest.importorskip("numpy")

import numpy as np

from tests.relay.store.stores import DAY, HOUR, NOON, append, checkpoint, near, reopened, settle, settled, turn
from waterclock.relay.store import PartitionStore, State, ledger, origins
from waterclock.relay.store.origins import CHUNK, FIRST_SLOT, Origins, SpanSlots


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
    assert origins.settle(some, State.FIRED, range(0)).tolist() == []
    assert origins.values(some).tolist() == [State.CANCELLED, State.CANCELLED]
