"""A start that cannot be: what it says, that it removes nothing, and that the folder is free for the next."""

from __future__ import annotations

import errno
import gc
import os
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("kio")

from tests.broker.raw_client import RawClient
from tests.processes import alone
from waterclock.broker import Broker
from waterclock.broker.errors import DataInUse, LogDamaged
from waterclock.broker.folder.inventory import locked
from waterclock.broker.log.clean_stop import CleanStop
from waterclock.broker.net.listener import Listener
from waterclock.broker.security.access import Access
from waterclock.broker.store import Entry, Store
from waterclock.errors import UsageError
from waterclock.ports import holder


def partitions(folder: Path) -> list[Path]:
    return sorted((folder / "topics").iterdir())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A broker's folder with a topic of three partitions and one record in each."""
    with Broker(tmp_path) as broker, RawClient(broker.bootstrap) as client:
        broker.create_topic("orders", 3)
        for number in range(3):
            assert client.produce("orders", b"kept", partition=number) == (0, 0)
    return tmp_path


def holds_all(folder: Path) -> bool:
    """Whether a broker that starts there serves every record."""
    with Broker(folder) as broker, RawClient(broker.bootstrap) as client:
        return [client.end("orders", number) for number in range(3)] == [1, 1, 1]


def test_a_disk_that_refuses_a_partition_at_a_start_costs_no_partition(folder: Path) -> None:
    before = partitions(folder)
    in_the_way = before[2] / "memo.json"
    in_the_way.mkdir()
    with pytest.raises(IsADirectoryError):
        Broker(folder).start()
    assert partitions(folder) == before
    in_the_way.rmdir()
    assert holds_all(folder)


def test_after_a_start_that_failed_the_same_process_can_open_the_folder(folder: Path) -> None:
    memo = partitions(folder)[2] / "memo.json"
    memo.write_text("{")
    for _ in range(2):
        with pytest.raises(LogDamaged):
            Broker(folder).start()
    memo.unlink()
    assert holds_all(folder)


def test_a_port_that_is_taken_is_said_with_what_to_do(tmp_path: Path) -> None:
    with Broker(tmp_path / "one") as broker:
        port = int(broker.bootstrap.rpartition(":")[2])
        with pytest.raises(UsageError) as refused:
            Broker(tmp_path / "two", port=port).start()
        there = holder("127.0.0.1", port)  # "" on a system that does not say
        who = f"{there} has it" if there else "a broker may still run there"
    assert str(refused.value) == (
        f"cannot listen on 127.0.0.1:{port} (Address already in use): {who}: end it, or choose another port with "
        "--port; --port 0 takes any free one"
    )


def test_a_host_that_is_not_this_machine_is_said(tmp_path: Path) -> None:
    with pytest.raises(
        UsageError,
        match=r"^cannot listen on 192\.0\.2\.1:0 \([^(]+\): choose another host or port \(--host, --port\); --port 0",
    ):
        Broker(tmp_path, host="192.0.2.1", access=Access(insecure_remote=True)).start()


@pytest.mark.parametrize("port", [-4, 99999])
def test_a_port_that_is_none_is_said(tmp_path: Path, port: int) -> None:
    with pytest.raises(UsageError, match=f"cannot listen on 127.0.0.1:{port}"):
        Broker(tmp_path, port=port).start()


def test_a_data_folder_that_is_a_file_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(UsageError, match=r"the data folder .*file cannot be used.*--data"):
        Broker(tmp_path / "file").start()


def test_a_lock_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    (tmp_path / "lock").mkdir()
    with pytest.raises(
        UsageError, match=rf"the data folder {tmp_path} cannot be used: {tmp_path}/lock: Is a directory"
    ):
        Broker(tmp_path).start()


def test_a_second_broker_is_refused_where_somebody_has_removed_the_lock(tmp_path: Path) -> None:
    """It made the file anew and locked that one: two brokers wrote into one folder."""
    with Broker(tmp_path):
        (tmp_path / "lock").unlink()
        with pytest.raises(DataInUse, match=f"another broker has {tmp_path} open"):
            Broker(tmp_path).start()


@pytest.mark.parametrize("role", ["leader", "follower"])
def test_a_stop_that_the_disk_refuses_leaves_the_folder_to_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, role: str
) -> None:
    """Its lock stayed: the next start in that process was told of another broker, which there was not."""
    broker = Broker(tmp_path, follow=ROLES[role]).start()

    def refused(*arguments: object) -> None:
        raise OSError(errno.EIO, "the disk is gone")

    with monkeypatch.context() as patch:
        patch.setattr(CleanStop, "write", refused)
        broker.close()
    assert "the broker ends: [Errno 5] the disk is gone" in caplog.text
    Broker(tmp_path, follow=ROLES[role]).start().close()


# What a start that failed leaves open

NOBODY = "127.0.0.1:9"
ROLES = {"leader": None, "follower": NOBODY}


@contextmanager
def damaged_log(folder: Path) -> Iterator[int]:
    memo = partitions(folder)[2] / "memo.json"
    memo.write_text("{")
    yield 0
    memo.unlink()


@contextmanager
def damaged_store(folder: Path) -> Iterator[int]:
    """That of an earlier version, which this one cannot take over."""
    store, aside, before = folder / "store.log", folder / "aside", folder / "store.sqlite"
    store.rename(aside)
    before.write_bytes(b"not a database at all " * 100)
    yield 0
    before.unlink()
    aside.rename(store)


@contextmanager
def taken_port(folder: Path) -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as other:
        yield other.getsockname()[1]


@contextmanager
def damaged_journal(folder: Path) -> Iterator[int]:
    """The leader opens it late, where it has had a follower: with everything else made already."""
    remember(folder, {"node": 2, "address": NOBODY, "id": "0" * 32})
    (folder / "journal").mkdir()
    (folder / "journal" / "memo.json").write_text("{")
    yield 0
    (folder / "journal" / "memo.json").unlink()
    remember(folder, None)


def remember(folder: Path, follower: dict[str, Any] | None) -> None:
    store = Store(str(folder), lambda *arguments: None)
    store.commit_at_once(Entry("self", "follower", follower))
    store.close()


@contextmanager
def fails_when_it_lets_clients_in(folder: Path) -> Iterator[int]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Listener, "open", refuse)
        yield 0


def refuse(*arguments: Any) -> None:
    raise OSError(24, "Too many open files")


def left_open() -> list[str]:
    """What files and sockets this process has, once all that nobody holds is gone."""
    gc.collect()
    return sorted(os.readlink(fd) for fd in Path("/proc/self/fd").iterdir() if fd.is_symlink() and os.path.lexists(fd))


def threads() -> set[str]:
    return {thread.name for thread in threading.enumerate()}


def starts_that_fail(folder: Path, fault: Callable[[Path], Any], role: str) -> None:
    before, running = left_open(), threads()
    with fault(folder) as port:
        inside = left_open() if port else before
        for _ in range(2):
            with pytest.raises((LogDamaged, UsageError, OSError)) as failed:
                Broker(folder, port=port, follow=ROLES[role]).start()
            assert not isinstance(failed.value, DataInUse)
            del failed
            assert left_open() == inside
            assert threads() == running
    assert left_open() == before


@pytest.mark.parametrize("role", ["leader", pytest.param("follower", marks=pytest.mark.long(seconds=3))])
@pytest.mark.parametrize(
    "fault", [damaged_log, damaged_store, taken_port, damaged_journal, fails_when_it_lets_clients_in]
)
def test_a_start_that_failed_leaves_nothing_open_and_the_folder_free(
    folder: Path, fault: Callable[[Path], Any], role: str
) -> None:
    alone(starts_that_fail, folder, fault, role)
    if role == "leader":
        assert holds_all(folder)
    else:
        with Broker(folder, follow=NOBODY) as broker:
            assert not broker.leads


def test_what_cannot_be_closed_keeps_neither_the_rest_open_nor_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def close(listener: Listener) -> None:
        real(listener)
        raise OSError(5, "Input/output error")

    real, running = Listener.close, threads()
    Broker(tmp_path).start().close()
    with damaged_journal(tmp_path), monkeypatch.context() as patch:
        patch.setattr(Listener, "close", close)
        with pytest.raises(OSError, match="Input/output error"):
            Broker(tmp_path).start()
    assert threads() == running
    locked(str(tmp_path)).release()


def no_locks(folder: Path) -> None:
    def refused(*arguments: Any) -> None:
        raise OSError(37, "No locks available")

    before = left_open()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fcntl.flock", refused)
        with pytest.raises(UsageError, match=r"cannot be used: .*/lock: No locks available"):
            locked(str(folder))
    assert left_open() == before


def test_a_folder_that_cannot_be_locked_leaves_no_file_open(tmp_path: Path) -> None:
    alone(no_locks, tmp_path)


def test_a_broker_without_a_folder_that_cannot_start_leaves_none_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    real = tempfile.TemporaryDirectory

    def temporary(**named: Any) -> Any:
        made.append((folder := real(**named)).name)
        return folder

    monkeypatch.setattr("tempfile.TemporaryDirectory", temporary)
    with taken_port(Path()) as port, pytest.raises(UsageError):
        Broker(port=port).start()
    assert [os.path.exists(path) for path in made] == [False]
    gc.collect()  # where it were left to that, a ResourceWarning would come


# A follower's


def test_a_follower_whose_disk_refuses_to_remember_whom_it_follows_does_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(store: Store, *changes: Entry) -> None:
        if any(change.key == "follows" for change in changes):
            raise OSError(28, "No space left on device")
        real(store, *changes)

    real = Store.commit_at_once
    with monkeypatch.context() as patch:
        patch.setattr(Store, "commit_at_once", full)
        with pytest.raises(OSError, match="No space left"):
            Broker(tmp_path, follow=NOBODY).start()
    with Broker(tmp_path) as broker:
        assert broker.leads


def test_a_broker_that_is_closed_in_the_moment_of_its_deposing_ends(tmp_path: Path) -> None:
    broker = Broker(tmp_path).start()
    (thread,) = [thread for thread in threading.enumerate() if thread.name == "broker"]

    def closed_and_deposed() -> None:
        broker.close()  # what ends its role comes next, and finds that it is over already
        broker.inside.over.set_result(NOBODY)

    broker.call(closed_and_deposed)
    thread.join(20)
    assert not thread.is_alive()
    locked(str(tmp_path)).release()
