"""A disk that refuses a write again and again is not filled by the attempts."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("numpy")

from tests.relay.store.stores import DAY, HOUR, NOON, append, checkpoint, near, reopened, settle
from waterclock.relay.store import DiskRefused, PartitionStore, ids, ledger


def sizes(store: PartitionStore) -> dict[str, int]:
    return {path.name: path.stat().st_size for path in store.folder.iterdir()}


def refusing(patch: pytest.MonkeyPatch, number: int) -> None:
    """The `number`th write from now on takes the half of what it is given and fails, and so do those behind it."""
    writes, real = iter(range(1, number)), os.pwrite

    def pwrite(fd: int, data: Any, at: int) -> int:
        if next(writes, None) is not None:
            return real(fd, data, at)
        real(fd, data[: len(data) // 2], at)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    patch.setattr(os, "pwrite", pwrite)


def attempt(store: PartitionStore, deed: Callable[[], object], monkeypatch: pytest.MonkeyPatch, number: int) -> bool:
    """Whether a deed failed, with its `number`th write."""
    with monkeypatch.context() as patch:
        refusing(patch, number)
        try:
            deed()
        except OSError:
            return True
    return False


@pytest.mark.parametrize("number", range(1, 27))
def test_an_append_that_the_disk_refuses_many_times_changes_nothing_takes_the_room_of_one_and_can_be_made_again(
    number: int, store: PartitionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its 25th write, all is written."""
    messages = [(n, NOON + n * HOUR) for n in range(6)]
    append(store, [(100, NOON)], id=b"cart-17")

    def deed() -> None:
        assert len(append(store, messages, id=b"cart-17")) == 6

    assert attempt(store, deed, monkeypatch, number) is (number < 26)
    if number < 26:
        assert (store.pending, sum(span.count for span in store._table.by_number.values())) == (1, 1)
        once = sizes(store)
        for _ in range(5):
            assert attempt(store, deed, monkeypatch, 1)
        assert sizes(store) == once
        deed()
    checkpoint(store, 101)
    with reopened(store) as again:
        assert again.pending == 7
        assert [one.origin for one in again.find(b"cart-17")] == [*range(6), 100]
        assert near(again, NOON + DAY) == {100: NOON, **dict(messages)}


def test_nor_does_a_snapshot(store: PartitionStore, monkeypatch: pytest.MonkeyPatch) -> None:
    append(store, [(n, NOON) for n in range(10)])
    checkpoint(store, 10)
    settle(store, 1)
    before = sizes(store)
    monkeypatch.setattr(ledger, "JOURNAL_BYTES", 0)
    for number in (1, 2, 3) * 2:
        assert attempt(store, lambda: checkpoint(store, 10), monkeypatch, number)
        assert sizes(store) == before
    checkpoint(store, 10)


def test_nor_does_a_run_of_ids(store: PartitionStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ids, "IN_MEMORY", 2)
    append(store, [(0, NOON), (1, NOON)], id=b"cart-17")
    checkpoint(store, 2)
    before = sizes(store)
    for number in (1, 2, 3):
        assert attempt(store, lambda: append(store, [(2, NOON)], id=b"cart-18"), monkeypatch, number)
        assert sizes(store) == before


def test_nor_does_a_merge_of_them(store: PartitionStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ids, "IN_MEMORY", 2)
    for n in range(0, 20, 2):
        append(store, [(n, NOON), (n + 1, NOON)], id=b"cart-%d" % n)
    while len(store._ids._runs) >= ids.FAN and not attempt(store, store.tidy, monkeypatch, 1):
        pass
    checkpoint(store, 20)
    before = sizes(store)
    for number in (1, 2):
        assert attempt(store, lambda: [store.tidy() for _ in range(30)], monkeypatch, number)
        assert sizes(store) == before
    while store.tidy():
        pass
    assert [one.origin for one in store.find(b"cart-4")] == [4, 5]


def test_a_merge_that_is_refused_while_its_file_is_flushed_does_no_harm(
    store: PartitionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ids, "IN_MEMORY", 2)
    for n in range(0, 20, 2):
        append(store, [(n, NOON), (n + 1, NOON)], id=b"cart-%d" % n)
    store.tidy()  # the merge has begun
    steps = store.checkpoint_steps(20, None, 0)
    next(steps)
    assert attempt(store, lambda: [store.tidy() for _ in range(30)], monkeypatch, 1)
    assert list(steps)
    assert store.data_position == 20


def test_the_error_has_the_path_and_the_number_of_bytes(store: PartitionStore, monkeypatch: pytest.MonkeyPatch) -> None:
    append(store, [(0, NOON)])
    refusing(monkeypatch, 1)
    with pytest.raises(DiskRefused) as caught:
        append(store, [(1, NOON)])
    path = next(store.folder.glob("*.data"))
    assert (caught.value.filename, caught.value.strerror) == (str(path), "No space left on device")
    assert caught.value.wanted > 0
