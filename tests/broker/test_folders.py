"""Names on the disk: whatever file or folder is made, the folder that holds its name is flushed before it counts."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

pytest.importorskip("kio")
pytest.importorskip("crc32c")

from tests.broker.record_batches import TRANSACTIONAL, Rec, batch, end_marker
from tests.broker.replication.pairs import client, following, pair
from waterclock.broker import Broker
from waterclock.broker.log import snapshot
from waterclock.broker.log.partition import Partition
from waterclock.broker.log.recovery import open_partition
from waterclock.broker.log.removal import begin_at
from waterclock.broker.settings import Settings, TopicSettings
from waterclock.broker.wire.errors import Error
from waterclock.disk import make_folder


class Names:
    """What was flushed, and what was made, renamed or removed, in its order: (deed, path)."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: list[tuple[str, str]] = []
        fsync, mkdir, replace, unlink = os.fsync, os.mkdir, os.replace, os.unlink

        def flushed(fd: int) -> None:
            self.seen.append(("flush", os.readlink(f"/proc/self/fd/{fd}")))
            fsync(fd)

        def made(path: str, *mode: int, **place: int) -> None:
            mkdir(path, *mode, **place)
            self.seen.append(("make", os.path.abspath(path)))

        def replaced(old: str, new: str, **place: int) -> None:
            replace(old, new, **place)
            self.seen.append(("rename", new))

        def removed(path: str, **place: int) -> None:
            self.seen.append(("remove", os.fspath(path)))
            unlink(path, **place)

        for name, deed in (("fsync", flushed), ("mkdir", made), ("replace", replaced), ("unlink", removed)):
            monkeypatch.setattr(os, name, deed)

    def flushed_after(self, path: Path) -> bool:
        """Whether the folder of `path`, which was made or renamed, was flushed after that."""
        places = [n for n, (deed, at) in enumerate(self.seen) if deed in ("make", "rename") and at == str(path)]
        assert places, f"{path} was not made: {self.seen}"
        return ("flush", str(path.parent)) in self.seen[places[-1] :]


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Names:
    return Names(monkeypatch)


def opened(folder: Path, **settings: str) -> Partition:
    given = {name.replace("_", "."): value for name, value in settings.items()}
    return open_partition("t", 0, str(folder), TopicSettings(Settings(), given))


def append(log: Partition, *data: bytes) -> None:
    for one in data:
        assert log.mark(bytearray(one))[0] == Error.NONE


def flush(log: Partition) -> None:
    files = log.unflushed()
    for segment, _ in files:
        segment.flush()
    log.flushed(log.end, files)


def of_producer(sequence: int, attributes: int = 0) -> bytes:
    return batch([Rec(b"k", b"v", 0)], producer=(7, 0, sequence), attributes=attributes)


# Folders


def test_each_folder_above_a_new_one_is_flushed(tmp_path: Path, names: Names) -> None:
    make_folder(str(tmp_path / "a" / "b"))
    a = str(tmp_path / "a")
    assert names.seen == [
        ("flush", str(tmp_path.parent)), ("make", a), ("flush", str(tmp_path)), ("make", os.path.join(a, "b")),
        ("flush", a),
    ]  # fmt: skip
    make_folder(str(tmp_path / "a" / "b"))  # who made it may not have come to the flush
    assert names.seen[5:] == [("flush", a)]


def test_a_folder_that_another_process_makes_meanwhile_is_good(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mkdir = os.mkdir

    def slower(path: str) -> None:
        mkdir(path)
        raise FileExistsError(17, "File exists", path)

    monkeypatch.setattr(os, "mkdir", slower)
    make_folder(str(tmp_path / "a"))
    assert (tmp_path / "a").is_dir()


def test_a_file_in_the_place_of_a_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("")
    with pytest.raises(FileExistsError):
        make_folder(str(tmp_path / "a"))


def test_the_chain_from_the_data_folder_to_a_partition_is_flushed(tmp_path: Path, names: Names) -> None:
    data = tmp_path / "sub" / "data"
    with Broker(data) as broker:
        broker.create_topic("t")
        (partition,) = (data / "topics").iterdir()
        assert names.flushed_after(tmp_path / "sub")
        assert names.flushed_after(data)
        assert names.flushed_after(data / "topics")
        assert names.flushed_after(partition)
        with client(broker) as raw:
            assert raw.produce("t", b"v") == (0, 0)
        assert ("flush", str(partition)) in names.seen


def test_the_journals_folder_is_flushed_at_both_brokers(tmp_path: Path, names: Names) -> None:
    with pair(tmp_path) as both:
        assert following(both.two).replica.journal.end > 0
        for name in ("one", "two"):
            assert names.flushed_after(tmp_path / name / "journal")


# Snapshots


@pytest.fixture
def log(tmp_path: Path) -> Partition:
    return opened(tmp_path / "log", segment_bytes="300")


def test_the_name_of_a_snapshot_is_flushed_with_the_next_records(log: Partition, names: Names) -> None:
    append(log, of_producer(0))
    flush(log)
    log.take_snapshot()
    (path,) = Path(log.folder).glob("*.snapshot")
    assert not names.flushed_after(path)  # the loop waits for no disk
    append(log, of_producer(1))
    flush(log)
    assert names.flushed_after(path)


def test_the_last_snapshot_is_durable_name_and_bytes_before_a_segment_goes(log: Partition, names: Names) -> None:
    for sequence in range(8):
        append(log, of_producer(sequence))
    flush(log)
    log.memo.start = 4
    begin_at(log, 4)
    (path,) = Path(log.folder).glob("*.snapshot")
    first = next(place for place, (deed, at) in enumerate(names.seen) if deed == "remove" and at.endswith(".log"))
    assert ("flush", str(path)) in names.seen[:first]
    assert ("flush", log.folder) in names.seen[names.seen.index(("flush", str(path))) : first]


def test_retention_flushes_the_last_snapshot_before_a_segment_goes(tmp_path: Path, names: Names) -> None:
    settings = {"log.segment.bytes": "200", "log.message.timestamp.after.max.ms": str(2**62)}
    with Broker(tmp_path, settings=settings) as broker:
        broker.create_topic("t")
        core = broker.inside
        partition = core.topics.by_name["t"].partitions[0]

        def fill() -> None:
            for sequence in range(4):
                assert partition.append(memoryview(bytearray(of_producer(sequence))), 0)[0] == Error.NONE
            flush(partition)
            partition.high = partition.durable
            partition.memo.start = 2
            core.upkeep.retain()

        broker.call(fill)
    removed = [place for place, (deed, at) in enumerate(names.seen) if deed == "remove" and at.endswith(".log")]
    flushed = [place for place, (deed, at) in enumerate(names.seen) if deed == "flush" and at.endswith(".snapshot")]
    assert removed
    assert flushed
    assert flushed[0] < removed[0]


def test_a_file_of_aborted_transactions_is_there_by_name_before_a_snapshot_vouches_for_it(
    log: Partition, names: Names
) -> None:
    append(log, of_producer(0, TRANSACTIONAL), end_marker(7, 0, False, 0))
    flush(log)
    names.seen.clear()
    log.take_snapshot()
    aborted = Path(log.folder) / f"{0:020}.aborted"
    assert names.seen[:2] == [("flush", str(aborted)), ("flush", log.folder)]
    assert snapshot.offsets(os.listdir(log.folder)) == [2]
