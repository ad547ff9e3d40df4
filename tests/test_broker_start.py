"""A start that cannot be: what it says, that it removes nothing, and that the folder is free for the next."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("kio")

from tests.raw_client import RawClient
from waterclock.broker import Broker
from waterclock.broker.errors import LogDamaged
from waterclock.broker.store import Store
from waterclock.errors import UsageError


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


def test_logs_whose_store_is_gone_are_told_of_and_stay(folder: Path) -> None:
    before = partitions(folder)
    stores = {path: path.read_bytes() for path in folder.glob("store.sqlite*")}
    for path in stores:
        path.unlink()
    for _ in range(2):  # the first start leaves a store that is new
        with pytest.raises(LogDamaged, match=r"Restore store\.sqlite, or move the logs away"):
            Broker(folder).start()
        assert partitions(folder) == before
    for path in folder.glob("store.sqlite*"):
        path.unlink()
    for path, data in stores.items():
        path.write_bytes(data)
    assert holds_all(folder)


def test_what_a_crash_left_of_the_first_topic_is_removed_at_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Store, "_commit", lambda store, group: False)  # the crash comes before the first commit
        with Broker(tmp_path):
            (tmp_path / "topics" / "orders-0.0123456789abcdef").mkdir()
    with Broker(tmp_path):
        assert partitions(tmp_path) == []


def test_a_port_that_is_taken_is_said_with_what_to_do(tmp_path: Path) -> None:
    with Broker(tmp_path / "one") as broker:
        port = int(broker.bootstrap.rpartition(":")[2])
        with pytest.raises(UsageError, match=f"cannot listen on 127.0.0.1:{port} .*choose another host or port"):
            Broker(tmp_path / "two", port=port).start()


@pytest.mark.parametrize("port", [-4, 99999])
def test_a_port_that_is_none_is_said(tmp_path: Path, port: int) -> None:
    with pytest.raises(UsageError, match=f"cannot listen on 127.0.0.1:{port}"):
        Broker(tmp_path, port=port).start()


def test_a_data_folder_that_is_a_file_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(UsageError, match=r"the data folder .*file cannot be used.*--data"):
        Broker(tmp_path / "file").start()
