"""What is written is written whole, and what nobody believes is not removed."""

from __future__ import annotations

import ast
import os
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


WRITES = {"write", "writev", "pwrite", "pwritev", "sendfile", "copy_file_range", "splice"}
ROOT = Path(disk.__file__).parent
# to stderr, at the end of the process; and to a socket, which goes on from what was taken
ELSEWHERE = {("broker/log/durable.py", "write"), ("broker/net/connection.py", "sendfile")}


def writes() -> Iterator[tuple[str, str, bool]]:
    """Each call of the system's that writes: its file, its name, and whether what it answers is used."""
    for path in ROOT.rglob("*.py"):
        tree = ast.parse(path.read_text())
        dropped = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            name = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
            if name.startswith("os.") and name[3:] in WRITES:
                yield str(path.relative_to(ROOT)), name[3:], id(node) not in dropped


def test_nobody_else_asks_the_system_to_write() -> None:
    assert {(file, name) for file, name, _ in writes() if file != "disk.py"} == ELSEWHERE
    assert {name for file, name, _ in writes() if file == "disk.py"} == {"pwrite"}


def test_nobody_passes_over_how_much_was_taken() -> None:
    assert {file for file, _, used in writes() if not used} == {"broker/log/durable.py"}


def test_nobody_writes_bytes_without_a_buffer() -> None:
    """A file that is opened without one may take a part too, and `write` says so to nobody."""
    unbuffered = [
        (path, node.args[1].value)
        for path in ROOT.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and any(k.arg == "buffering" and getattr(k.value, "value", None) == 0 for k in node.keywords)
        and len(node.args) > 1
        and isinstance(node.args[1], ast.Constant)
    ]
    assert [path for path, mode in unbuffered if mode != "rb"] == []


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
