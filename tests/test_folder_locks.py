"""A folder for one process: who has its lock, who is held off, and what removed files, folders and forks change."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from shutil import rmtree
from unittest.mock import patch

import pytest

from waterclock.disk import FolderLock, WithoutLocks

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


def test_a_folder_whose_locks_file_was_removed_is_still_one_processs(
    tmp_path: Path, holder: subprocess.Popen[str]
) -> None:
    """A second process made the file anew, locked that one, and both wrote."""
    (tmp_path / "lock").unlink()
    assert not is_free(tmp_path)
    holder.kill()
    holder.wait()
    assert is_free(tmp_path)


def test_a_lock_whose_file_is_gone_is_taken_anew(tmp_path: Path) -> None:
    lock = lock_of(tmp_path)
    lock.take()
    (tmp_path / "lock").unlink()
    lock.take()
    assert (tmp_path / "lock").exists()
    assert not is_free(tmp_path)
    lock.release()


@pytest.mark.parametrize("again", [False, True], ids=["removed", "replaced"])
def test_a_lock_whose_folder_is_gone_is_taken_anew(tmp_path: Path, again: bool) -> None:
    """Somebody else may have made it again, who has it then."""
    folder = tmp_path / "folder"
    folder.mkdir()
    lock, other = lock_of(folder), lock_of(folder)
    lock.take()
    rmtree(folder)
    folder.mkdir()
    if again:
        other.take()
        with pytest.raises(BlockingIOError):
            lock.take()
        other.release()
    lock.take()
    assert not is_free(folder)
    lock.release()


def test_where_folders_cannot_be_locked_the_file_is(tmp_path: Path) -> None:
    real = fcntl.flock

    def flock(fd: int, how: int) -> None:
        if os.path.isdir(f"/proc/self/fd/{fd}"):
            raise OSError(errno.EBADF, "Bad file descriptor")  # as NFS does
        real(fd, how)

    lock = lock_of(tmp_path)
    with patch("fcntl.flock", side_effect=flock):
        lock.take()
        assert not is_free(tmp_path)
        lock.release()
        assert is_free(tmp_path)


def test_a_lock_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    (tmp_path / "lock").mkdir()
    with pytest.raises(IsADirectoryError, match=re.escape(str(tmp_path / "lock"))):
        lock_of(tmp_path).take()
    assert str(tmp_path) not in [os.path.realpath(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")]


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
