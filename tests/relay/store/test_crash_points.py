"""A checkpoint's steps, and what a crash between any two of them leaves; what a disk that refuses leaves, and that one
which refuses a write again and again is not filled by the attempts.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("numpy")

from tests.relay.store.stores import DAY, HOUR, NOON, US, Date, append, checkpoint, near, reopened, settle, settled
from waterclock.relay.store import DiskRefused, PartitionStore, StoreDamaged, files, ids, ledger
from waterclock.relay.store import store as module
from waterclock.relay.store.folder import Folder


class Crash(BaseException):
    """The process is gone."""


def crash(*_: Any) -> None:
    raise Crash


def remove_one(files: files.StoreFiles, name: str) -> None:
    os.unlink(files.folder / name)
    raise Crash


def full(*_: Any) -> int:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def prepared(folder: Path, patch: pytest.MonkeyPatch) -> PartitionStore:
    """One checkpoint, then one more of everything: a message, a settlement, a span that is over, a snapshot that is due."""
    patch.setattr(ledger, "JOURNAL_BYTES", 100)
    store = PartitionStore(folder, US, Date())
    append(store, [(0, NOON), (1, NOON + 5 * DAY)], id=b"cart-17")
    checkpoint(store, 2)
    append(store, [(2, NOON + HOUR), (3, NOON + 900 * DAY)], id=b"cart-17")
    settle(store, 0)
    store._clock.advance_s(2 * 3_600)  # type: ignore[attr-defined]
    return store


STEPS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "before 1": lambda patch: patch.setattr(PartitionStore, "_drop_finished", crash),
    "before 2": lambda patch: patch.setattr(module, "manifest_bytes", crash),
    "before 3": lambda patch: patch.setattr(files.StoreFiles, "begin_flush", crash),
    "within 3": lambda patch: patch.setattr(files, "flush_folder", crash),
    "before 4": lambda patch: patch.setattr(Folder, "write_manifest", crash),
    "within 4": lambda patch: patch.setattr(os, "replace", crash),
    "before 5": lambda patch: patch.setattr(files.Flush, "sweep", crash),
    "within 5": lambda patch: patch.setattr(files.StoreFiles, "remove", remove_one),
}


@pytest.mark.parametrize("step", STEPS)
def test_a_crash_within_a_checkpoint_leaves_the_last_one_or_this_one(
    tmp_path: Path, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = prepared(tmp_path, monkeypatch)
    with monkeypatch.context() as patch:
        STEPS[step](patch)
        with pytest.raises(Crash):
            checkpoint(store, 4)
    with reopened(store) as again:
        assert again.data_position == (4 if step.endswith("5") else 2)
        if again.data_position == 2:
            assert (again.pending, settled(again, 0)) == (2, [False])
            assert len(append(again, [(2, NOON + HOUR), (3, NOON + 900 * DAY)], id=b"cart-17")) == 2
            settle(again, 0)
        assert (again.pending, settled(again, 0)) == (3, [True])
        assert [one.origin for one in again.find(b"cart-17")] == [0, 1, 2, 3]
        assert near(again, NOON + DAY) == {2: NOON + HOUR}
        checkpoint(again, 4)
        assert sorted(path.name.split(".")[0] for path in again.folder.glob("*.index")) == [
            "2026-06-01T13",
            "2026-06-06",
            "2028-11",
        ]


def test_what_was_settled_while_the_disk_refused_is_written_with_the_next_checkpoint(
    store: PartitionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(store, [(0, NOON), (1, NOON)])
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with pytest.raises(OSError, match="No space left"):
            settle(store, 0)
    assert settled(store, 0, 1) == [True, False]
    checkpoint(store, 2)
    with reopened(store) as again:
        assert settled(again, 0, 1) == [True, False]


def test_after_a_flush_that_failed_the_files_are_not_trusted(
    store: PartitionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(store, [(0, NOON)])
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreDamaged, match="what was written cannot be flushed: No space left on device"):
        checkpoint(store, 1)


def test_a_manifest_that_the_disk_refuses_leaves_the_last_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = prepared(tmp_path, monkeypatch)
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full)
        with pytest.raises(OSError, match="No space left"):
            checkpoint(store, 4)
    assert store.data_position == 2
    checkpoint(store, 4)
    assert store.data_position == 4
    with reopened(store) as again:
        assert again.pending == 3


@pytest.mark.parametrize("step", ["mkdir", "fsync"])  # both come behind the rename, which is one step of the system's
def test_a_crash_while_a_store_is_set_aside_leaves_one_that_is_empty_and_all_of_the_other_beside_it(
    step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = prepared(tmp_path, monkeypatch)
    before = {path.name for path in store.folder.iterdir()}
    with monkeypatch.context() as patch:
        patch.setattr(os, step, crash)
        patch.setattr("waterclock.relay.store.folder.write_whole", lambda path, data: None)
        with pytest.raises(Crash):
            store.set_aside("a test wants it", None)
    store.close()
    with PartitionStore(tmp_path, US, Date()) as again:
        assert (again.rebuilt, again.pending, again.data_position) == (None, 0, 0)
    (aside,) = tmp_path.glob("*.aside.*")
    assert {path.name for path in aside.iterdir()} == before


def test_a_crash_while_a_store_is_cleared_leaves_one_that_is_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = prepared(tmp_path, monkeypatch)
    with monkeypatch.context() as patch:
        patch.setattr("waterclock.relay.store.folder.flush_folder", crash)
        with pytest.raises(Crash):
            store.clear()
    store.close()
    with PartitionStore(tmp_path, US, Date()) as again:
        assert (again.rebuilt, again.pending, again.data_position) == ("there are files and no manifest", 0, 0)
        assert sorted(path.name for path in again.folder.iterdir()) == ["lock"]


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


def test_a_snapshot_that_the_disk_refuses_many_times_takes_no_room(
    store: PartitionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(store, [(n, NOON) for n in range(10)])
    checkpoint(store, 10)
    settle(store, 1)
    before = sizes(store)
    monkeypatch.setattr(ledger, "JOURNAL_BYTES", 0)
    for number in (1, 2, 3) * 2:
        assert attempt(store, lambda: checkpoint(store, 10), monkeypatch, number)
        assert sizes(store) == before
    checkpoint(store, 10)


def test_a_run_of_ids_that_it_refuses_many_times_takes_no_room(
    store: PartitionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ids, "IN_MEMORY", 2)
    append(store, [(0, NOON), (1, NOON)], id=b"cart-17")
    checkpoint(store, 2)
    before = sizes(store)
    for number in (1, 2, 3):
        assert attempt(store, lambda: append(store, [(2, NOON)], id=b"cart-18"), monkeypatch, number)
        assert sizes(store) == before


def test_a_merge_of_ids_that_it_refuses_many_times_takes_no_room(
    store: PartitionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
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
