"""What is on the disk when the manifest says so: every byte that it names was flushed before, and so were the names."""

from __future__ import annotations

import json
import os
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("numpy")

from tests.relay.store.stores import DAY, HOUR, NOON, US, Date, append, checkpoint, near, reopened, settle
from tests.relay.store.test_model import files_in, named
from waterclock.relay.store import PartitionStore, ids
from waterclock.relay.store.folder import Folder


class Disk:
    """Knows how long files were when they were flushed, by inode, and whether a name was made since the folder was."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.flushed: dict[int, int] = {}
        self.new_names, self.folder, self.manifests = False, 0, 0
        patch.setattr(os, "open", partial(self.open, os.open))
        patch.setattr(os, "fsync", partial(self.fsync, os.fsync))
        real = Folder.write_manifest
        patch.setattr(Folder, "write_manifest", lambda folder, data: self.write_manifest(real, folder, data))

    def open(self, real: Any, path: Any, flags: int, *rest: Any, **more: Any) -> int:
        self.new_names |= bool(flags & os.O_CREAT) and not os.path.exists(path)
        return int(real(path, flags, *rest, **more))

    def fsync(self, real: Any, fd: int) -> None:
        stat = os.fstat(fd)
        self.flushed[stat.st_ino] = stat.st_size
        self.new_names &= stat.st_ino != self.folder
        real(fd)

    def write_manifest(self, real: Any, folder: Folder, data: bytes) -> None:
        files = dict(files_in(json.loads(data.partition(b"\n")[0])))
        assert files
        assert [n for n, size in files.items() if self.flushed.get((folder.path / n).stat().st_ino, 0) < size] == []
        assert not self.new_names
        self.manifests += 1
        real(folder, data)


@pytest.fixture
def disk(store: PartitionStore, monkeypatch: pytest.MonkeyPatch) -> Disk:
    disk = Disk(monkeypatch)
    disk.folder = store.folder.stat().st_ino
    return disk


def test_all_that_a_manifest_names_was_flushed_before(
    store: PartitionStore, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ids, "IN_MEMORY", 30)
    for first in range(0, 120, 20):
        # more spans than files may be open
        append(store, [(first + n, NOON + (first + n) * HOUR) for n in range(20)], id=b"cart-17")
        settle(store, first)
        store.tidy()
        checkpoint(store, first + 20)
    assert disk.manifests == 6


def test_so_it_was_when_everything_goes_on_between_the_steps(store: PartitionStore, disk: Disk) -> None:
    given_up = []
    for first in range(0, 5_000, 1_000):
        append(store, [(first + n, NOON + n * HOUR) for n in range(20)])
        for n, _ in enumerate(store.checkpoint_steps(first + 20, b"f", first)):
            append(store, [(first + 20 + n, NOON + n % 7 * HOUR)])
            settle(store, first + n)
            if first == 3_000 and n == 9:
                given_up.append(store.data_position)
                break
    assert (disk.manifests, given_up, store.data_position) == (4, [2_020], 4_020)


def test_what_a_checkpoint_that_was_given_up_left_is_flushed_by_the_next(store: PartitionStore, disk: Disk) -> None:
    append(store, [(n, NOON + n * HOUR) for n in range(20)])
    next(store.checkpoint_steps(20, None, 0))
    checkpoint(store, 20)
    assert disk.manifests == 1


def test_what_is_appended_between_the_steps_of_a_checkpoint_is_not_in_it(store: PartitionStore) -> None:
    append(store, [(0, NOON), (1, NOON)])
    for _ in store.checkpoint_steps(2, None, 0):
        if store.pending < 4:
            append(store, [(2, NOON), (3, NOON + DAY)])
            settle(store, 0)
    with reopened(store) as again:
        assert (again.rebuilt, again.data_position) == (None, 2)
        assert near(again, NOON + HOUR) == {0: NOON, 1: NOON}


def test_a_span_that_is_dropped_between_the_steps_stays_until_the_next_checkpoint(store: PartitionStore) -> None:
    append(store, [(0, NOON)])
    steps = store.checkpoint_steps(1, None, 0)
    next(steps)
    settle(store, 0)
    store._clock.advance_s(3_600)  # type: ignore[attr-defined]
    store._drop_finished()
    assert list(steps)
    with reopened(store) as again:
        assert (again.rebuilt, again.pending) == (None, 1)


def test_a_store_that_is_discarded_between_the_steps_stays_empty(store: PartitionStore) -> None:
    append(store, [(0, NOON)])
    steps = store.checkpoint_steps(1, None, 0)
    next(steps)
    store.set_aside("a test wants it", None)
    assert list(steps) == []
    assert (store.data_position, list(store.folder.glob("*.*"))) == (0, [])


def test_a_disk_that_writes_a_few_bytes_at_a_time_gets_all_of_it(
    store: PartitionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: real(fd, data[:7], at))
    append(store, [(0, NOON), (1, NOON)])
    assert near(store, NOON + HOUR) == {0: NOON, 1: NOON}


def test_a_folder_that_was_opened_has_the_files_that_the_manifest_names_with_its_first_checkpoint(
    store: PartitionStore,
) -> None:
    append(store, [(0, NOON), (1, NOON + DAY)], id=b"cart-17")
    checkpoint(store, 2)
    append(store, [(2, NOON), (3, NOON + 5 * DAY)], id=b"cart-17")
    store.close()
    before = lengths_in(store.folder)
    with PartitionStore(store.folder.parent, US, Date()) as again:
        assert lengths_in(again.folder) == before  # who opens it may find that it is not to be believed
        append(again, [(2, NOON)])
        assert {*lengths_in(again.folder)} == {*named(again.folder)}
        checkpoint(again, 3)
        assert lengths_in(again.folder) == named(again.folder)


def lengths_in(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_size for path in folder.glob("*.*")}


@pytest.mark.parametrize("kind", ["data", "index", "journal", "log"])
def test_a_file_that_is_a_byte_too_short_is_found_when_the_folder_is_opened(store: PartitionStore, kind: str) -> None:
    append(store, [(0, NOON)], id=b"cart-17")
    checkpoint(store, 1)
    store.close()
    path = next(store.folder.glob(f"*.{kind}"))
    size = path.stat().st_size
    os.truncate(path, size - 1)
    with PartitionStore(store.folder.parent, US, Date()) as again:
        assert (again.rebuilt, again.pending) == (f"{path.name} has {size - 1} bytes of {size}", 0)
