"""The store of a partition: one test for each sentence of its contract, with time turned by hand; its bench, tiny."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("numpy")

import numpy as np

from tests.relay.store.stores import DAY, HOUR, NOON, US, Date, append, checkpoint, near, reopened, settle, settled
from waterclock.bench.relay.store import burst, measure
from waterclock.errors import UsageError
from waterclock.relay.store import Identity, PartitionStore, pack, rows_of


def test_what_was_appended_is_pending_until_it_is_settled(store: PartitionStore) -> None:
    append(store, [(0, NOON + HOUR), (1, NOON + DAY), (2, NOON + 400 * DAY)])
    assert store.pending == 3
    settle(store, 1)
    assert (store.pending, settled(store, 0, 1, 2, 3)) == (2, [False, True, False, False])


def test_a_load_gives_what_is_pending_in_hours_that_begin_before_and_gives_it_once(store: PartitionStore) -> None:
    append(store, [(0, NOON + 5), (1, NOON + HOUR), (2, NOON + HOUR + 5), (3, NOON + DAY)])
    settle(store, 1)
    assert near(store, NOON + HOUR + 1) == {0: NOON + 5, 2: NOON + HOUR + 5}
    assert near(store, NOON + HOUR + 1) == {}
    assert store.loaded_until == NOON + 2 * HOUR


def test_what_is_appended_before_the_edge_is_the_owners_and_comes_with_no_load(store: PartitionStore) -> None:
    near(store, NOON + HOUR)
    rows = append(store, [(0, NOON + HOUR - 1), (1, NOON + HOUR), (2, 0)])
    assert (rows["due"] < store.loaded_until).tolist() == [True, False, True]
    assert near(store, NOON + 2 * HOUR) == {1: NOON + HOUR}


def test_what_is_appended_between_two_slices_does_not_come_with_the_next(store: PartitionStore) -> None:
    append(store, [(n, NOON + n) for n in range(4)])
    slices = (rows for rows in store.load(NOON + HOUR, 2) if len(rows))
    assert next(slices)["origin"].tolist() == [0, 1]
    append(store, [(4, NOON + 4)])
    settle(store, 3)
    assert [rows["origin"].tolist() for rows in slices] == [[2]]


def test_after_an_unload_all_of_it_comes_again(store: PartitionStore) -> None:
    append(store, [(0, NOON)])
    assert near(store, NOON + HOUR) == {0: NOON}
    store.unload()
    assert near(store, NOON + HOUR) == {0: NOON}


def test_what_a_checkpoint_named_is_there_when_the_folder_is_opened_again(store: PartitionStore) -> None:
    append(store, [(0, NOON), (1, NOON + 1)])
    settle(store, 0)
    checkpoint(store, 2)
    again = reopened(store)
    assert (again.data_position, again.fingerprint, again.settled_position) == (2, b"fingerprint of 2", 4)
    assert (again.pending, settled(again, 0, 1)) == (1, [True, False])
    assert near(again, NOON + HOUR) == {1: NOON + 1}


def test_what_no_checkpoint_named_is_gone_and_can_be_appended_again(store: PartitionStore) -> None:
    append(store, [(0, NOON)])
    checkpoint(store, 1)
    append(store, [(1, NOON + 1), (2, NOON + DAY)])
    settle(store, 0)
    again = reopened(store)
    assert (again.pending, settled(again, 0, 1, 2)) == (1, [False, False, False])
    assert len(append(again, [(1, NOON + 1), (2, NOON + DAY)])) == 2
    assert near(again, NOON + HOUR) == {0: NOON, 1: NOON + 1}


def test_an_origin_that_is_pending_or_settled_is_not_filed_again(store: PartitionStore) -> None:
    append(store, [(0, NOON), (1, NOON)])
    settle(store, 1)
    assert append(store, [(0, NOON + 7), (1, NOON), (2, NOON), (2, NOON + 9)])["origin"].tolist() == [2]
    assert near(store, NOON + HOUR) == {0: NOON, 2: NOON}


def test_an_origin_that_was_settled_before_it_came_is_not_filed(store: PartitionStore) -> None:
    settle(store, 5)
    assert append(store, [(4, NOON), (5, NOON)])["origin"].tolist() == [4]
    assert store.pending == 1


def test_of_origins_that_would_be_known_nothing_is_remembered(store: PartitionStore) -> None:
    store.begin(10)
    append(store, [(10, NOON), (12, NOON)])
    checkpoint(store, 15)
    settle(store, 9, 11, 12, 15)
    assert settled(store, 9, 10, 11, 12, 15) == [True, False, False, True, True]


def test_a_store_that_is_not_empty_does_not_begin(store: PartitionStore) -> None:
    append(store, [(0, NOON)])
    checkpoint(store, 1)
    with pytest.raises(ValueError, match="only an empty store can begin; this one holds the input up to 1"):
        store.begin(0)


def test_spans_are_hours_then_days_then_months_then_years_with_counts_by_topic(store: PartitionStore) -> None:
    append(store, [(0, NOON), (1, NOON + HOUR - 1), (2, NOON + 5 * DAY)])
    append(store, [(3, NOON), (4, NOON + 200 * DAY), (5, NOON + 3_000 * DAY)], target="mails")
    settle(store, 1)
    assert [(span.level.name, span.start_ms, span.end_ms - span.start_ms, span.pending) for span in store.spans()] == [
        ("HOUR", NOON, HOUR, {"reminders": 1, "mails": 1}),
        ("DAY", NOON + 5 * DAY - 12 * HOUR, DAY, {"reminders": 1}),
        ("MONTH", 1_796_083_200_000, 31 * DAY, {"mails": 1}),
        ("YEAR", 2_019_686_400_000, 365 * DAY, {"mails": 1}),
    ]


def test_nothing_pending_is_due_before_next_due(store: PartitionStore) -> None:
    assert store.next_due is None
    append(store, [(0, NOON + DAY), (1, NOON + 7), (2, NOON + 9)])
    assert store.next_due == NOON + 7
    settle(store, 1, 2)
    assert store.next_due == NOON + DAY


def test_a_span_that_is_over_leaves_the_disk(store: PartitionStore) -> None:
    append(store, [(0, NOON), (1, NOON + DAY)])
    checkpoint(store, 2)
    before = store.bytes_on_disk
    settle(store, 0)
    checkpoint(store, 3)
    assert store.bytes_on_disk >= before  # this hour is not over
    store._clock.advance_s(3_600)  # type: ignore[attr-defined]
    checkpoint(store, 4)
    assert store.bytes_on_disk < before
    assert sorted(path.name.split(".")[0] for path in store.folder.glob("*.data")) == ["2026-06-02T12"]
    reopened(store)


def test_another_process_does_not_get_the_folder(store: PartitionStore) -> None:
    with pytest.raises(UsageError, match="is in use by another process: stop that relay"):
        PartitionStore(store.folder.parent, US)


@pytest.mark.parametrize(
    ("due", "origin", "said"), [(-1, 0, "due must be"), (2**47, 0, "due must be"), (0, -1, "origin must be")]
)
def test_a_row_out_of_bounds_is_refused_and_nothing_is_filed(
    store: PartitionStore, due: int, origin: int, said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        store.append(rows_of([NOON, due], [7, origin]), [b"", b""], ["a", "a"])
    assert store.pending == 0


def test_the_files_of_another_topic_of_this_name_are_not_read(tmp_path: Path) -> None:
    other = Identity("relay", "another", 0)
    with PartitionStore(tmp_path, US, Date()) as store:
        append(store, [(0, NOON)])
        checkpoint(store, 1)
    (tmp_path / US.folder_name()).rename(tmp_path / other.folder_name())
    with PartitionStore(tmp_path, other, Date()) as store:
        assert (store.pending, store.data_position) == (0, 0)
        assert store.rebuilt is not None
        assert store.rebuilt.startswith("the files are those of {'group': 'relay', 'topic_id': 'J8iNnLwT'")


def test_files_of_others_stay_where_they_are(store: PartitionStore) -> None:
    (store.folder / "notes.txt").write_text("mine")
    append(store, [(0, NOON)])
    store.clear()
    assert sorted(path.name for path in store.folder.iterdir()) == ["lock", "notes.txt"]
    assert store.pending == 0


def test_bytes_of_a_message_that_is_not_pending_are_not_read(store: PartitionStore) -> None:
    rows = append(store, [(0, NOON)])
    settle(store, 0)
    with pytest.raises(ValueError, match="origin 0 is not pending"):
        list(store.read(rows))


def test_messages_are_read_in_the_order_of_their_rows(store: PartitionStore) -> None:
    rows = append(store, [(n, NOON + n % 7 * HOUR) for n in range(100)])
    shuffled = np.random.default_rng(7).permutation(rows)
    expected = [pack(b"%d is due at %d" % (row["origin"], row["due"]), b"key") for row in shuffled]
    assert list(store.read(shuffled)) == expected


def test_what_is_measured_is_right(tmp_path: Path) -> None:
    assert measure(tmp_path, 20_000).keys() > {"append_per_s", "settle_50k_ms", "find_per_s", "load_s", "resident_mb"}
    assert burst(tmp_path / "burst", 10_000)["loaded"] == 10_000
