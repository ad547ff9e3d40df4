"""A store that is told at once what is settled, as a snapshot says it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from waterclock.clock import ManualClock
from waterclock.relay.store import Identity, PartitionStore, State, pack, rows_of
from waterclock.relay.store.origins import CHUNK
from waterclock.relay.wire.settlement import SnapshotCapture, restore

IDENTITY = Identity("group", "topic", 0)
END = 3 * CHUNK + 10
PENDING = [5, CHUNK + 7, 3 * CHUNK + 2]  # in the first, the second, the last chunk
CANCELLED = [6, 3 * CHUNK + 3]


def opened(folder: Path) -> PartitionStore:
    return PartitionStore(folder, IDENTITY, ManualClock())


def append(store: PartitionStore, origins: list[int]) -> list[int]:
    rows = rows_of([10**12] * len(origins), origins)
    return store.append(rows, [pack(b"", None)] * len(origins), ["to"] * len(origins))["origin"].tolist()


def filled(folder: Path) -> PartitionStore:
    """All but `PENDING` is settled of what it knows; of the third chunk nothing is left but that."""
    store = opened(folder)
    fired = [0, 2 * CHUNK, 2 * CHUNK + 1, 3 * CHUNK]
    append(store, sorted([*fired, *CANCELLED, *PENDING]))
    store.settle(np.array(fired))
    store.settle(np.array(CANCELLED), State.CANCELLED)
    return store


def told(store: PartitionStore, folder: Path, swept: int) -> PartitionStore:
    """Another one that a snapshot of the first was read into."""
    capture = SnapshotCapture(store, 0, END, swept, [])
    while capture.step():
        pass
    other = opened(folder)
    other.begin(swept)
    restore(other, capture.made(0))
    return other


def check(store: PartitionStore) -> None:
    """What was pending may be filed; nothing else may."""
    asked = [0, 1, 5, 6, CHUNK, CHUNK + 7, CHUNK + 8, 2 * CHUNK, 2 * CHUNK + 1, 2 * CHUNK + 9]
    expected = {5, CHUNK + 7, 1, CHUNK, CHUNK + 8}  # 1 and its like were no messages: no copy is of them
    assert {origin for origin in asked if not store.is_settled(np.array([origin])).item()} == expected
    assert store.is_settled(np.array([3 * CHUNK, 3 * CHUNK + 3, 3 * CHUNK + 2])).tolist() == [True, True, False]


def test_what_is_settled_is_and_what_is_pending_may_come(tmp_path: Path) -> None:
    store = told(filled(tmp_path / "a"), tmp_path / "b", 3 * CHUNK)
    check(store)
    assert append(store, [*PENDING, 0, 6, 2 * CHUNK]) == PENDING
    store.close()


def test_it_outlasts_a_checkpoint_and_a_crash_behind_it(tmp_path: Path) -> None:
    store = told(filled(tmp_path / "a"), tmp_path / "b", 3 * CHUNK)
    store.checkpoint(END, None, 3)
    store.settle(np.array([CHUNK + 7]))
    store.close()
    store = opened(tmp_path / "b")
    check(store)
    assert append(store, PENDING) == PENDING
    store.checkpoint(END, None, 3)
    store.close()
    store = opened(tmp_path / "b")
    assert store.is_pending(np.array([*PENDING, 0])).tolist() == [True, True, True, False]
    store.close()


def test_what_a_store_has_for_pending_and_the_snapshot_for_settled_is_settled(tmp_path: Path) -> None:
    first = filled(tmp_path / "a")
    older = opened(tmp_path / "b")
    append(older, [0, 6, 2 * CHUNK, *PENDING])
    capture = SnapshotCapture(first, 0, END, 3 * CHUNK, [])
    while capture.step():
        pass
    restore(older, capture.made(0))
    assert older.is_pending(np.array([0, 6, 2 * CHUNK, *PENDING])).tolist() == [False] * 3 + [True] * 3
    assert older.pending == 3
    first.close()
    older.close()


def test_how_it_was_settled_is_known_from_the_swept_mark_on(tmp_path: Path) -> None:
    store = told(filled(tmp_path / "a"), tmp_path / "b", 2 * CHUNK + 5)
    values = store.ledger.origins.values(np.array([0, 6, 2 * CHUNK, 3 * CHUNK + 3]))
    assert values.tolist() == [State.FIRED, State.CANCELLED, State.FIRED, State.CANCELLED]
    store.close()
    store = told(filled(tmp_path / "c"), tmp_path / "d", 3 * CHUNK)
    assert store.ledger.origins.values(np.array([2 * CHUNK])).tolist() == [State.SETTLED]
    store.close()
