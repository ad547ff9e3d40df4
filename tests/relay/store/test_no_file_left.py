"""A process that may open no file more: that says nothing of what the files hold. A partition with messages of a day has
dozens, so a relay of thirty partitions met the usual limit of 1,024. Each was taken for damaged, and filed anew, for
ever."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("numpy")

from tests.relay.store.stores import DAY, HOUR, NOON, US, Date, append, checkpoint, near
from waterclock.relay.store import PartitionStore, folder
from waterclock.relay.store.files import OURS
from waterclock.relay.store.folder import Folder

DUES = [(origin, NOON + origin * HOUR) for origin in range(5)]


@pytest.fixture
def filed(tmp_path: Path) -> Path:
    with PartitionStore(tmp_path, US, Date()) as store:
        append(store, DUES, id=b"cart-17")
        checkpoint(store, len(DUES))
    return tmp_path


def no_file(patch: pytest.MonkeyPatch, is_left: Callable[[], bool]) -> None:
    """None of the store's can be opened unless one is left, nor its folder to be flushed."""
    real = os.open

    def opened(path: Any, *arguments: Any, **named: Any) -> int:
        name = os.path.basename(path)
        if (OURS.fullmatch(name) or name in (".manifest.new", US.folder_name())) and not is_left():
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)
        return real(path, *arguments, **named)

    patch.setattr(os, "open", opened)


def test_those_that_are_open_make_room(filed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with PartitionStore(filed, US, Date()) as store:
        no_file(monkeypatch, lambda: not store._files._open)
        assert near(store, NOON + DAY) == dict(DUES)
        for origin in (5, 6):
            append(store, [(origin, NOON + 7 * HOUR)])
            checkpoint(store, origin + 1)
        assert len(store.find(b"cart-17")) == len(DUES)
    monkeypatch.undo()
    with PartitionStore(filed, US, Date()) as store:
        assert (store.rebuilt, store.pending) == (None, 7)


@pytest.mark.parametrize("of_the_manifest", [False, True])
def test_none_at_all_is_no_damage_and_leaves_no_lock(
    filed: Path, monkeypatch: pytest.MonkeyPatch, of_the_manifest: bool
) -> None:
    with monkeypatch.context() as patch:
        no_file(patch, lambda: False)
        if of_the_manifest:
            patch.setattr(folder, "open_file", lambda path, mode: os.open(f"{path}.1.data", 0))  # as one of the others
        with pytest.raises(OSError, match="Too many open files"):
            PartitionStore(filed, US, Date())
    with PartitionStore(filed, US, Date()) as store:
        assert (store.rebuilt, store.pending) == (None, len(DUES))


def test_nor_is_one_that_cannot_be_opened_to_be_flushed(filed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with PartitionStore(filed, US, Date()) as store:
        append(store, [(5, NOON + 7 * HOUR)])
        store._files.close()
        with monkeypatch.context() as patch:
            no_file(patch, lambda: False)
            with pytest.raises(OSError, match="Too many open files"):
                checkpoint(store, 6)
        checkpoint(store, 6)
    with PartitionStore(filed, US, Date()) as store:
        assert (store.rebuilt, store.pending) == (None, 6)


def test_files_that_can_neither_be_believed_nor_set_aside_leave_no_lock(
    filed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (filed / US.folder_name() / "manifest").write_bytes(b"damaged")

    def refuse(*arguments: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(Folder, "set_aside", refuse)
        with pytest.raises(OSError, match="Input/output error"):
            PartitionStore(filed, US, Date())
    with PartitionStore(filed, US, Date()) as store:
        assert "the manifest is damaged" in (store.rebuilt or "")
