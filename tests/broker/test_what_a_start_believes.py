"""Each file beside the partitions that a start believes, replaced, damaged or gone: clients see what they saw before, or
somebody is told the file's name; and no record of any other file is touched. The partitions' own: test_every_damage.py.

The table of docs/broker.md says for each what proves that it belongs to its folder and to this moment.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("kio")
pytest.importorskip("crc32c")

from tests.broker.raw_client import RawClient
from waterclock.broker import Broker
from waterclock.broker.errors import LogDamaged
from waterclock.broker.folder import inventory
from waterclock.broker.store import Entry

STOPPED, KILLED = "stopped", "killed"
FILES = ("store.log", "store.number", "broker.json", "clean-stop", "write-ahead.0", "write-ahead.1", "topic.json",
         "memo.json", "memo.copy")  # fmt: skip


def serve(data: Path, value: bytes, turn: int) -> None:
    with Broker(data) as broker, RawClient(broker.bootstrap) as client:
        if turn == 1:
            broker.create_topic("t", 2)
            broker.create_topic("c", 1, {"cleanup.policy": "compact", "max.message.bytes": "5000"})
        for number in range(2):
            for _ in range(4):
                assert client.produce("t", value * 20, partition=number)[0] == 0
            partition = broker.call(lambda number=number: broker.inside.topics.by_name["t"].partitions[number])
            broker.call(lambda p=partition: (setattr(p.memo, "start", turn), p.memo.save()))
        topic = broker.call(lambda: broker.inside.topics.by_name["t"].id.hex)
        broker.inside.store.commit_at_once(Entry("offset", "g:t:0", [4 * turn, -1, "", 0, -1, topic]))
        shutil.copytree(data, f"{data}.{turn}-{KILLED}")


def view(broker: Broker) -> Any:
    """What clients see: topics with their ids and settings, the records of each partition, groups' offsets, the cluster."""

    def look() -> Any:
        inside = broker.inside
        logs = {
            (topic.name, topic.id, str(topic.settings.given), p.number): (p.start, p.end, read(p))
            for topic in inside.topics
            for p in topic.partitions
        }
        return logs, inside.store.load("offset"), inside.identity.cluster

    return broker.call(look)


def read(partition: Any) -> bytes:
    records = partition.read(partition.start, 1 << 20, partition.high)
    return records.read() if records is not None else b""


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folders of two brokers, `ours` and `other`, each of now and of before, stopped and killed."""
    home = tmp_path_factory.mktemp("folders")
    for name, value in (("ours", b"our own"), ("other", b"another")):
        for turn in (1, 2):
            serve(home / name, value, turn)
            shutil.copytree(home / name, home / f"{name}.{turn}-{STOPPED}")
    return home


def named(data: Path, file: str) -> Path | None:
    """The file of that name, in the folder of the first partition if it is one of those."""
    return next(iter([*data.glob(file), *sorted(data.glob(f"topics/t-0.*/{file}"))]), None)


def other(folder: str) -> Callable[[Path, Path, str], bool]:
    def deed(path: Path, home: Path, file: str) -> bool:
        source = named(home / folder, file)
        if source is None or (path.exists() and source.read_bytes() == path.read_bytes()):
            return False
        path.write_bytes(source.read_bytes())
        return True

    return deed


def changed(how: Callable[[bytes], bytes]) -> Callable[[Path, Path, str], bool]:
    def deed(path: Path, home: Path, file: str) -> bool:
        if not path.exists():
            return False
        data = path.read_bytes()
        path.write_bytes(how(data))
        return path.read_bytes() != data

    return deed


def gone(path: Path, home: Path, file: str) -> bool:
    there = path.exists()
    path.unlink(missing_ok=True)
    return there


def another_partitions(path: Path, home: Path, file: str) -> bool:
    if "topics" not in path.parts:
        return False
    source = next(path.parent.parent.glob(f"{'c-0' if file == 'topic.json' else 't-1'}.*")) / file
    path.write_bytes(source.read_bytes())
    return True


DAMAGES: dict[str, Callable[[Path, Path, str], bool]] = {
    "of a kill before": other(f"ours.1-{KILLED}"),
    "of a stop before": other(f"ours.1-{STOPPED}"),
    "another broker's, stopped": other(f"other.2-{STOPPED}"),
    "another broker's, killed": other(f"other.2-{KILLED}"),
    "another partition's": another_partitions,
    "cut": changed(lambda data: data[: len(data) // 2]),
    "emptied": changed(lambda data: b""),
    "zeroed": changed(lambda data: data[:20] + bytes(60) + data[80:]),
    "all zeros": changed(lambda data: bytes(len(data))),
    "flipped": changed(
        lambda data: data[:40] + bytes([data[40] ^ 8]) + data[41:] if len(data) > 40 else b"?" + data[1:]
    ),
    "gone": gone,
}
# what nobody can see, each in docs/broker.md
UNKNOWABLE = {
    ("store.number", "of a kill before"), ("store.number", "of a stop before"), ("store.number", "gone"),
    ("store.number", "emptied"), ("store.number", "all zeros"), ("store.number", "zeroed"),
}  # fmt: skip


def logs(data: Path) -> dict[str, bytes]:
    found = [*data.glob("topics/*/*.log"), *data.glob("unknown/*/*.log")]
    return {f"{path.parent.name}/{path.name}": path.read_bytes() for path in found}


@pytest.mark.parametrize("how", [STOPPED, KILLED])
@pytest.mark.parametrize("file", FILES)
def test_clients_see_what_they_saw_or_somebody_is_told(
    folders: Path, tmp_path: Path, file: str, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    good = folders / f"ours.2-{how}"
    shutil.copytree(good, tmp_path / "good")
    with closing(Broker(tmp_path / "good").start()) as broker:
        expected = view(broker)
    done = 0
    for what, deed in DAMAGES.items():
        data = tmp_path / what
        shutil.copytree(good, data)
        before = logs(data)
        path = named(data, file) or data / file
        if not deed(path, folders, file):
            continue
        done += 1
        caplog.clear()
        try:
            with closing(Broker(data).start()) as broker:
                seen = view(broker)
        except LogDamaged as error:
            logging.getLogger("waterclock.broker").error("%s", error)
            seen = None
        told = file in caplog.text or (file, what) in UNKNOWABLE
        assert seen == expected or told, f"{file}, {what}, {how}: {caplog.text}"
        assert logs(data) == before, f"{file}, {what}, {how}: {caplog.text}"
    assert done >= 4 or file.startswith("write-ahead") or file == "clean-stop"


@pytest.mark.parametrize("name", ["another", None])
def test_a_start_knows_whether_the_machine_was_started_anew(
    name: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where that is not known it may have been."""
    found = []
    for start in range(3):
        if start == 2:
            monkeypatch.setattr(inventory, "boot", lambda: name)
        with Broker(tmp_path) as broker:
            found.append(broker.inside._data.stop.rebooted)
    assert found == [True, False, True]
