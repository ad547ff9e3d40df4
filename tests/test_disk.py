"""The ground that everything stored stands on: names that last, files replaced whole through every crash, sealed files;
what is written is written whole, and what nobody believes is not removed.
"""

from __future__ import annotations

import ast
import errno
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from waterclock import disk
from waterclock.disk import (
    flush_file,
    flush_folder,
    make_folder,
    read_sealed,
    replacing,
    sealed,
    unsealed,
    write_sealed,
    write_whole,
)

OLD, NEW = b"old", b"new and longer"
STEPS = ("open", "write", "fsync", "replace", "folder")


class PowerCut(BaseException):
    """The machine died: what has not been done will not be done, not even what tidies up."""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "notes"
    path.write_bytes(OLD)
    return path


class Steps:
    """The calls that `write_whole` makes, in order; at one of them the machine dies, or the disk refuses."""

    def __init__(self, at: str = "", when: str = "", fail: Callable[[], BaseException] = PowerCut) -> None:
        self.seen: list[str] = []
        self._files = ExitStack()
        self._at, self._when, self._fail, self._dead = at, when, fail, False

    def step(self, name: str, deed: Callable[[], Any]) -> Any:
        if self._dead:
            raise PowerCut
        self.seen.append(name)
        if (self._at, self._when) == (name, "before"):
            raise self._died()
        found = deed()
        if (self._at, self._when) == (name, "after"):
            raise self._died()
        return found

    def _died(self) -> BaseException:
        error = self._fail()
        self._dead = isinstance(error, PowerCut)
        return error

    def __enter__(self) -> Steps:
        fsync, replace, link, unlink = os.fsync, os.replace, os.link, os.unlink

        def flushed(fd: int) -> None:
            name = "folder" if os.path.isdir(f"/proc/self/fd/{fd}") else "fsync"
            self.step(name, lambda: fsync(fd))

        def opened(path: str, mode: str, **named: Any) -> Any:
            return File(self.step("open", lambda: self._files.enter_context(open(path, mode, **named))), self)

        self._patches = [
            patch.object(os, "fsync", flushed),
            patch.object(os, "replace", lambda a, b: self.step("replace", lambda: replace(a, b))),
            patch.object(os, "link", lambda a, b: self.step("link", lambda: link(a, b))),
            patch.object(os, "unlink", lambda path: self.step("unlink", lambda: unlink(path))),
            patch.object(disk, "open_file", opened),
        ]
        for each in self._patches:
            each.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._files.close()
        for each in self._patches:
            each.stop()


class File:
    """A file whose bytes reach the disk one half before the other."""

    def __init__(self, file: Any, steps: Steps) -> None:
        self._file, self._steps = file, steps

    def write(self, data: bytes) -> None:
        self._file.write(data[: len(data) // 2])
        self._file.flush()
        self._steps.step("write", lambda: self._file.write(data[len(data) // 2 :]))

    def __enter__(self) -> File:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


# Whole files


def test_a_file_is_flushed_before_it_is_renamed_and_its_folder_after_that(file: Path) -> None:
    with Steps() as steps:
        write_whole(file, NEW)
    assert steps.seen == list(STEPS)
    assert file.read_bytes() == NEW


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("step", STEPS)
def test_a_crash_at_each_step_leaves_the_old_file_or_the_new_one(step: str, when: str, file: Path) -> None:
    with Steps(step, when), pytest.raises(PowerCut):
        write_whole(file, NEW)
    is_new = step == "folder" or (step, when) == ("replace", "after")
    assert file.read_bytes() == (NEW if is_new else OLD)
    write_whole(file, NEW)  # what the crash left of the last writing stands in nobody's way
    assert [path.name for path in file.parent.iterdir()] == ["notes"]
    assert file.read_bytes() == NEW


@pytest.mark.parametrize("step", STEPS[1:4])
def test_a_disk_that_refuses_leaves_the_old_file_and_nothing_beside_it(step: str, file: Path) -> None:
    full = Steps(step, "before", lambda: OSError(errno.ENOSPC, "No space left on device"))
    with full, pytest.raises(OSError, match="No space left"):
        write_whole(file, NEW)
    assert [path.name for path in file.parent.iterdir()] == ["notes"]
    assert file.read_bytes() == OLD


def test_ctrl_c_in_the_middle_leaves_nothing_beside_the_file(file: Path) -> None:
    with Steps("write", "after", KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        write_whole(file, NEW)
    assert [path.name for path in file.parent.iterdir()] == ["notes"]


def test_a_reader_of_the_folder_passes_over_a_half_written_file(tmp_path: Path) -> None:
    with replacing(tmp_path / "notes"):
        assert [path.name[0] for path in tmp_path.iterdir()] == ["."]


def test_a_file_without_a_folder_in_its_path_lies_in_this_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_whole("notes", NEW)
    assert (tmp_path / "notes").read_bytes() == NEW


def test_what_is_replaced_without_a_flush_is_not_flushed(file: Path) -> None:
    with Steps() as steps, replacing(file) as fresh:
        fresh.write(NEW)
    assert steps.seen == ["open", "write", "replace"]
    assert file.read_bytes() == NEW


def test_what_cannot_be_flushed_is_an_error_and_leaves_nothing_open(tmp_path: Path) -> None:
    before = os.listdir("/proc/self/fd")
    for flush in (flush_file, flush_folder):
        with pytest.raises(FileNotFoundError):
            flush(tmp_path / "gone")
        refused = patch.object(os, "fsync", side_effect=OSError(errno.EIO, "Input/output error"))
        with refused, pytest.raises(OSError, match="Input/output"):
            flush(tmp_path)
    assert len(os.listdir("/proc/self/fd")) == len(before)


def test_a_new_folder_is_durable_under_each_name_above_it(tmp_path: Path) -> None:
    flushed: list[str] = []
    real = os.fsync

    def fsync(fd: int) -> None:
        flushed.append(os.readlink(f"/proc/self/fd/{fd}"))
        real(fd)

    with patch.object(os, "fsync", fsync):
        make_folder(tmp_path / "a" / "b")
    assert flushed == [str(tmp_path.parent), str(tmp_path), str(tmp_path / "a")]


def test_one_whose_name_could_not_be_flushed_gets_that_at_the_next_start(tmp_path: Path) -> None:
    """The simulation found a broker whose whole folder went with a power cut: its first start had been refused."""
    flushed: list[str] = []
    with patch.object(disk, "flush_folder", lambda folder: flushed.append(str(folder))):
        (tmp_path / "a").mkdir()
        make_folder(tmp_path / "a")
    assert flushed == [str(tmp_path)]
    with patch.object(disk, "flush_folder", side_effect=PermissionError):
        make_folder(tmp_path / "a")  # /home may not be read by many who have a folder there


VALUE = {"start": 17, "writes": 1}
WITH_CRC32C = b'{"start":17,"writes":1}\n6a52f8ba\n'  # as brokers wrote it before there was one record


def test_what_a_broker_wrote_with_the_other_checksum_is_read(tmp_path: Path) -> None:
    pytest.importorskip("crc32c")
    (tmp_path / "old").write_bytes(WITH_CRC32C)
    assert read_sealed(str(tmp_path / "old")) == VALUE


def test_who_lacks_the_other_checksum_takes_that_file_for_damaged_and_reads_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "crc32c", None)
    assert unsealed(sealed(VALUE)) == VALUE
    with pytest.raises(ValueError, match="checksum"):
        unsealed(WITH_CRC32C)


def test_a_file_is_believed_at_its_whole_length_alone(tmp_path: Path) -> None:
    write_sealed(str(tmp_path / "new"), VALUE)
    whole = (tmp_path / "new").read_bytes()
    assert read_sealed(str(tmp_path / "new")) == VALUE
    for data in (*(whole[:n] for n in range(len(whole))), whole + b"\n", WITH_CRC32C.replace(b"17", b"18")):
        with pytest.raises(ValueError, match="checksum"):
            unsealed(data)


def test_the_manifest_of_a_relays_files_is_read_as_earlier_versions_wrote_it(tmp_path: Path) -> None:
    pytest.importorskip("numpy")
    from waterclock.relay.store import Identity
    from waterclock.relay.store.folder import MANIFEST, Folder

    (tmp_path / MANIFEST).write_bytes(
        b'{"format":2,"identity":{"group":"relay","topic_id":"J8iNnLwT","partition":2},"next":7}\n35961ab4\n'
    )
    folder = Folder(tmp_path)
    stored = folder.read_manifest(Identity("relay", "J8iNnLwT", 2))
    folder.release()
    assert stored is not None
    assert stored["next"] == 7


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
