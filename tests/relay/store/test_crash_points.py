"""A checkpoint's steps, and what a crash between any two of them leaves; what a disk that refuses leaves."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("numpy")

from tests.relay.store.stores import DAY, HOUR, NOON, US, Date, append, checkpoint, near, reopened, settle, settled
from waterclock.relay.store import PartitionStore, StoreDamaged, files, ledger
from waterclock.relay.store import store as module
from waterclock.relay.store.folder import Folder


class Crash(BaseException):
    """The process is gone."""


def crash(*_: Any) -> None:
    raise Crash


def remove_one(path: Path, **_: Any) -> None:
    os.unlink(path)
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
    "within 5": lambda patch: patch.setattr(Path, "unlink", remove_one),
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
