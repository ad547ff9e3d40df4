"""What is written is written whole, and what nobody believes is not removed."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from waterclock import disk

OLD, NEW = b"old", b"new and longer"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "notes"
    path.write_bytes(OLD)
    return path


# All of it


@pytest.fixture
def fd(file: Path) -> Iterator[int]:
    fd = os.open(file, os.O_RDWR)
    yield fd
    os.close(fd)


def in_parts(*takes: int) -> Any:
    """A disk that takes so many bytes of each write, and then none."""
    pwrite, left = os.pwrite, list(takes)
    return patch.object(os, "pwrite", lambda fd, data, at: pwrite(fd, data[: left.pop(0) if left else 0], at))


def test_what_a_disk_takes_in_parts_is_written_whole(file: Path, fd: int) -> None:
    with in_parts(1, 3, 10, 100):
        disk.write_all(fd, NEW, 2)
    assert file.read_bytes() == OLD[:2] + NEW


def test_a_disk_that_takes_a_part_and_no_more_is_an_error(file: Path, fd: int) -> None:
    with in_parts(1, 3), pytest.raises(OSError, match="10 of 14 bytes were not written"):
        disk.write_all(fd, NEW, 0)


def test_nobody_else_writes_and_does_not_look_how_much_was_taken() -> None:
    """The broker's own writers look at the answer, each in its place."""
    root = Path(disk.__file__).parent
    callers = {
        str(path.relative_to(root))
        for path in root.rglob("*.py")
        if path.relative_to(root).parts[0] != "broker"
        and re.search(r"\bos\.(p?writev?|sendfile|copy_file_range)\(", path.read_text())
    }
    assert callers == {"disk.py"}


# Set aside


def test_what_is_set_aside_replaces_nothing_and_both_folders_are_flushed(tmp_path: Path) -> None:
    (tmp_path / "unknown").mkdir()
    (tmp_path / "unknown" / "notes").write_bytes(b"an earlier one")
    (tmp_path / "notes").write_bytes(OLD)
    flushed: list[str] = []
    real = os.fsync

    def fsync(fd: int) -> None:
        flushed.append(os.readlink(f"/proc/self/fd/{fd}"))
        real(fd)

    with patch.object(os, "fsync", fsync):
        place = disk.set_aside(tmp_path / "notes", tmp_path / "unknown" / "notes")
    assert place == str(tmp_path / "unknown" / "notes.1")
    assert Path(place).read_bytes() == OLD
    assert not (tmp_path / "notes").exists()
    assert sorted(flushed) == [str(tmp_path), str(tmp_path / "unknown")]
