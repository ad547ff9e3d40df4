"""Ids: what is found under one, while it is pending and after, in memory, in runs, and when runs were merged."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("numpy")

import numpy as np

from tests.relay.store.stores import DAY, HOUR, NOON, US, Date, append, checkpoint, reopened, settle, turn
from waterclock.relay.store import Found, PartitionStore, State, StoreDamaged, ids, pack, rows_of
from waterclock.relay.store.files import HEADER
from waterclock.relay.store.ids import BLOCK, ENTRY, HASH, matches


@pytest.fixture
def store(tmp_path: Path) -> Iterator[PartitionStore]:
    with PartitionStore(tmp_path, US, Date(), kept_ms=DAY) as store:
        yield store


def append_ids(store: PartitionStore, first: int, names: list[bytes], due: int = NOON + HOUR) -> None:
    """Messages of origins from `first` on, one for each id."""
    rows = rows_of([due] * len(names), range(first, first + len(names)))
    store.append(rows, [pack(b"", None, name) for name in names], ["reminders"] * len(names))


def origins(store: PartitionStore, name: bytes) -> list[int]:
    return [one.origin for one in store.find(name)]


def test_an_id_is_found_with_what_became_of_its_message(store: PartitionStore) -> None:
    append(store, [(0, NOON + 5), (3, NOON + 40 * DAY), (1, NOON)], id=b"cart-17")
    append(store, [(4, NOON)])
    settle(store, 0)
    store.settle(rows_of([0], [1])["origin"], State.CANCELLED)
    assert store.find(b"cart-17") == [
        Found(0, NOON + 5, "reminders", State.DELIVERED),
        Found(1, NOON, "reminders", State.CANCELLED),
        Found(3, NOON + 40 * DAY, "reminders", State.PENDING),
    ]
    assert store.find(b"cart-1") == []


def test_a_message_that_was_settled_before_it_came_is_found_too(store: PartitionStore) -> None:
    settle(store, 5)  # by the owner before, whose settlements are read before the input
    assert len(append(store, [(5, NOON)], id=b"cart-17")) == 0
    assert store.find(b"cart-17") == [Found(5, NOON, "reminders", State.DELIVERED)]


def test_many_ids_are_looked_up_at_once(store: PartitionStore) -> None:
    append_ids(store, 0, [b"%d" % (n % 50) for n in range(100)])
    found = store.find_many([b"7", b"nobody", b"49", b"7"])
    assert [[one.origin for one in some] for some in found] == [[7, 57], [], [49, 99], [7, 57]]


def test_a_message_that_was_delivered_is_found_for_as_long_as_was_said(store: PartitionStore) -> None:
    append(store, [(0, NOON), (1, NOON + HOUR)], id=b"cart-17")
    settle(store, 0)
    turn(store, DAY - 1)
    assert origins(store, b"cart-17") == [0, 1]
    turn(store, 1)
    assert origins(store, b"cart-17") == [1]


def test_a_message_that_is_pending_though_it_was_due_long_ago_is_found(store: PartitionStore) -> None:
    append(store, [(0, NOON)], id=b"cart-17")
    turn(store, 30 * DAY)
    assert origins(store, b"cart-17") == [0]


def test_ids_are_found_in_a_folder_that_was_opened_again(store: PartitionStore) -> None:
    append(store, [(0, NOON)], id=b"cart-17")
    checkpoint(store, 1)
    append(store, [(1, NOON)], id=b"cart-17")
    with reopened(store) as again:
        assert origins(again, b"cart-17") == [0]


def test_a_row_says_whether_its_message_has_an_id(store: PartitionStore) -> None:
    assert append(store, [(0, NOON)], id=b"cart-17")["id"][0] > 0
    assert append(store, [(1, NOON)])["id"][0] == 0


def test_ids_of_many_runs_are_found_before_and_after_they_are_merged(
    store: PartitionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ids, "IN_MEMORY", 100)
    luck, expected = random.Random(7), dict[bytes, list[int]]()
    for first in range(0, 4_000, 80):
        names = [b"%d" % min(luck.randrange(1_500), 1_400) for _ in range(80)]
        append_ids(store, first, names)
        for n, name in enumerate(names):
            expected.setdefault(name, []).append(first + n)
    runs = len(store._ids._runs)
    assert runs > 20
    wanted = [*expected, b"nobody"]
    before = [[one.origin for one in some] for some in store.find_many(wanted)]
    assert before == [*expected.values(), []]
    while store.tidy():
        assert origins(store, b"1400") == expected[b"1400"]
    assert len(store._ids._runs) < runs / 3
    checkpoint(store, 4_000)
    assert [[one.origin for one in some] for some in store.find_many(wanted)] == before
    with reopened(store) as again:
        assert again.rebuilt is None
        assert [[one.origin for one in some] for some in again.find_many(wanted)] == before


def test_an_id_with_more_messages_than_a_block_holds_has_them_all(
    store: PartitionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ids, "IN_MEMORY", 1)
    append_ids(store, 0, [b"%d" % n for n in range(100)])
    append_ids(store, 100, [b"all"] * 200)
    append_ids(store, 300, [b"last"])
    assert origins(store, b"all") == list(range(100, 300))
    assert [origins(store, b"%d" % n) for n in range(100)] == [[n] for n in range(100)]


def test_what_is_forgotten_leaves_the_disk_and_what_is_pending_stays(
    store: PartitionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ids, "IN_MEMORY", 100)
    append_ids(store, 0, [b"%d" % n for n in range(1_000)])
    append_ids(store, 1_000, [b"later"])
    checkpoint(store, 1_001)
    store.settle(rows_of([0] * 999, range(1, 1_000))["origin"])
    before = store._ids.bytes_on_disk
    turn(store, 2 * DAY)
    while store.tidy():
        pass
    checkpoint(store, 1_001)
    assert store._ids.bytes_on_disk < before / 10
    assert (origins(store, b"0"), origins(store, b"1"), origins(store, b"later")) == ([0], [], [1_000])
    assert len(list(store.folder.glob("*.run"))) == 1


def test_an_id_of_which_only_half_the_hash_is_the_same_is_another() -> None:
    entries = np.array([(5, 1, 0, 0), (5, 2, 1, 0), (5, 2, 2, 0), (5, 3, -1, 0), (6, 2, 3, 0)], ENTRY)
    which, found = matches(entries, np.array([(5, 2), (5, 3), (4, 2)], HASH))
    assert (which.tolist(), found["origin"].tolist()) == ([0, 0], [1, 2])


def with_a_run(store: PartitionStore, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of a run of many blocks; the folder is left."""
    monkeypatch.setattr(ids, "IN_MEMORY", 1)
    append_ids(store, 0, [b"%d" % n for n in range(500)])
    append_ids(store, 500, [b"last"])
    checkpoint(store, 501)
    store.close()
    return next(store.folder.glob("*.run"))


def test_a_block_in_the_place_of_another_is_found(store: PartitionStore, monkeypatch: pytest.MonkeyPatch) -> None:
    path = with_a_run(store, monkeypatch)
    data = path.read_bytes()
    a, b = HEADER + BLOCK, HEADER + 2 * BLOCK
    path.write_bytes(data[:a] + data[b : b + BLOCK] + data[a:b] + data[b + BLOCK :])
    with PartitionStore(store.folder.parent, US, Date()) as again:
        assert again.rebuilt is None
        with pytest.raises(StoreDamaged, match="the checksum of a block is wrong"):
            again.find_many([b"%d" % n for n in range(500)])


def test_a_fence_that_stands_elsewhere_is_found(store: PartitionStore, monkeypatch: pytest.MonkeyPatch) -> None:
    path = with_a_run(store, monkeypatch)
    data = bytearray(path.read_bytes())
    data[-9] ^= 1
    path.write_bytes(data)
    with PartitionStore(store.folder.parent, US, Date()) as again:
        assert (again.rebuilt or "").endswith("the checksum of its fences is wrong")
