"""The ground that everything stored stands on: files replaced whole through every crash, and folders for one process."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from waterclock import disk
from waterclock.disk import FolderLock, WithoutLocks, flush_file, flush_folder, make_folder, replacing, write_whole

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
            patch.object(disk, "open", opened, create=True),
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
        make_folder(tmp_path / "a" / "b")
    assert flushed == [str(tmp_path), str(tmp_path / "a")]


# A folder for one process


HOLD = """
import sys
from waterclock.disk import FolderLock, WithoutLocks
lock = FolderLock(sys.argv[1], "lock", WithoutLocks.REFUSE)
lock.take()
print("taken", flush=True)
sys.stdin.readline()
lock.release()
print("released", flush=True)
sys.stdin.read()
"""


def lock_of(folder: Path, policy: WithoutLocks = WithoutLocks.REFUSE) -> FolderLock:
    return FolderLock(folder, "lock", policy)


def is_free(folder: Path) -> bool:
    lock = lock_of(folder)
    with suppress(BlockingIOError):
        lock.take()
        lock.release()
        return True
    return False


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process, which holds the lock of the folder."""
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "taken\n"
        yield process
        process.kill()


def test_one_process_has_the_folder_until_it_gives_it_back(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    assert not is_free(tmp_path)
    assert holder.stdin is not None
    assert holder.stdout is not None
    holder.stdin.write("\n")
    holder.stdin.flush()
    assert holder.stdout.readline() == "released\n"
    assert is_free(tmp_path)


def test_a_process_that_was_killed_holds_nobody_off(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    assert not is_free(tmp_path)
    holder.kill()
    holder.wait()
    assert is_free(tmp_path)


def test_two_locks_of_one_process_hold_each_other_off(tmp_path: Path) -> None:
    one = lock_of(tmp_path)
    one.take()
    assert not is_free(tmp_path)
    one.release()
    one.release()
    assert is_free(tmp_path)


def test_taken_again_is_the_same_lock(tmp_path: Path) -> None:
    lock = lock_of(tmp_path)
    lock.take()
    with patch("fcntl.flock", side_effect=AssertionError("it was let go and asked for anew")):
        lock.take()
    lock.release()
    lock.take()
    assert not is_free(tmp_path)
    lock.release()


@pytest.mark.parametrize("again", [False, True], ids=["removed", "replaced"])
def test_a_lock_whose_file_is_gone_is_taken_anew(tmp_path: Path, again: bool) -> None:
    """The folder was removed, and perhaps made again by somebody else, who has it then."""
    lock, other = lock_of(tmp_path), lock_of(tmp_path)
    lock.take()
    (tmp_path / "lock").unlink()
    if again:
        other.take()
        with pytest.raises(BlockingIOError):
            lock.take()
        other.release()
    lock.take()
    assert not is_free(tmp_path)
    lock.release()


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS])
def test_on_a_file_system_without_locks_the_policy_decides(tmp_path: Path, code: int) -> None:
    before = os.listdir("/proc/self/fd")
    with patch("fcntl.flock", side_effect=OSError(code, "no locks here")):
        with pytest.raises(OSError, match="no locks here"):
            lock_of(tmp_path, WithoutLocks.REFUSE).take()
        locks = [lock_of(tmp_path, WithoutLocks.ALLOW) for _ in range(2)]
        for lock in locks:
            lock.take()
    for lock in locks:
        lock.release()
    assert len(os.listdir("/proc/self/fd")) == len(before)


def test_what_allows_everybody_without_locks_allows_one_with_them(tmp_path: Path) -> None:
    lock = lock_of(tmp_path)
    lock.take()
    with pytest.raises(BlockingIOError):
        lock_of(tmp_path, WithoutLocks.ALLOW).take()
    lock.release()


def test_a_folder_that_is_missing_is_an_error_under_both_policies(tmp_path: Path) -> None:
    for policy in WithoutLocks:
        with pytest.raises(FileNotFoundError):
            lock_of(tmp_path / "gone", policy).take()


def test_the_file_of_the_lock_stays_and_keeps_what_is_in_it(tmp_path: Path) -> None:
    (tmp_path / "lock").write_text("who wrote this?")
    lock = lock_of(tmp_path)
    lock.take()
    lock.release()
    assert (tmp_path / "lock").read_text() == "who wrote this?"


@pytest.mark.parametrize("close_fds", [True, False])
def test_a_process_that_was_started_meanwhile_does_not_keep_the_folder(tmp_path: Path, close_fds: bool) -> None:
    lock = lock_of(tmp_path)
    lock.take()
    command = [sys.executable, "-c", "print('there', flush=True); input()"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, close_fds=close_fds, **pipes) as child:  # type: ignore[call-overload]
        child.stdout.readline()
        assert not is_free(tmp_path)
        lock.release()
        assert is_free(tmp_path)
        child.kill()


FORKS = """
import os, sys
from waterclock.disk import FolderLock, WithoutLocks
lock = FolderLock(sys.argv[1], "lock", WithoutLocks.REFUSE)
lock.take()
if os.fork() == 0:
    if sys.argv[2] == "gives it back":
        lock.release()
    print("there", flush=True)
    sys.stdin.read()
    os._exit(0)
sys.stdin.read()
"""


@pytest.mark.parametrize("child", ["does nothing", "gives it back"])
def test_a_forked_child_neither_keeps_the_folder_nor_gives_it_away(tmp_path: Path, child: str) -> None:
    command = [sys.executable, "-c", FORKS, str(tmp_path), child]
    reading, writing = os.pipe()  # both wait at its end: the child outlives its parent
    with subprocess.Popen(command, stdin=reading, stdout=subprocess.PIPE) as parent:
        os.close(reading)
        assert parent.stdout is not None
        parent.stdout.readline()
        assert not is_free(tmp_path)
        parent.kill()
        parent.wait()
        assert is_free(tmp_path)
        os.close(writing)


def test_of_threads_that_ask_at_once_one_has_the_folder(tmp_path: Path) -> None:
    locks, taken = [lock_of(tmp_path) for _ in range(8)], []
    start = threading.Barrier(len(locks))

    def take(lock: FolderLock) -> None:
        start.wait()
        with suppress(BlockingIOError):
            lock.take()
            taken.append(lock)

    threads = [threading.Thread(target=take, args=(lock,)) for lock in locks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (holder,) = taken
    holder.release()
    assert is_free(tmp_path)
