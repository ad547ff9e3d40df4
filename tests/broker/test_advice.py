"""What an error of the start says is the way on, is done; then nobody skips a new record, gets one twice, or is refused.

Each case damages the folder of a broker that was stopped or killed in one way, and follows the advice until it starts.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

pytest.importorskip("kio")
pytest.importorskip("crc32c")

import waterclock.broker
from tests.broker.log.damage import follow_the_remedy
from waterclock.broker import Broker
from waterclock.broker.errors import LogDamaged
from waterclock.broker.log.index import ENTRY

OLD, NEW, MIDDLE = 50, 30, 20
SETTINGS = {"log.segment.bytes": "9000"}
PATIENCE_S = 20.0
Deed = Callable[[Path], object]


class Scene:
    """A topic of OLD records of an idempotent producer that goes on, and two groups: at the end, and in the middle."""

    def __init__(self, data: Path) -> None:
        self.data = data
        with Broker(data, settings=SETTINGS) as broker:
            self.port = int(broker.bootstrap.rpartition(":")[2])
            self.bootstrap = broker.bootstrap
            for name in ("t", "other"):
                broker.create_topic(name)
            self.producer = Producer(
                {"bootstrap.servers": broker.bootstrap, "enable.idempotence": True, "log_level": 0}
            )
            self.errors: list[KafkaError] = []
            self.send(range(OLD))
            self.commit("end", OLD)
            self.commit("middle", MIDDLE)
            shutil.copytree(data, self.killed)  # what kill -9 leaves
            for path in self.killed.glob("write-ahead.*"):  # it heals some of what is done here
                path.unlink()

    @property
    def killed(self) -> Path:
        return self.data.with_name("killed")

    def folder(self, data: Path) -> Path:
        return next((data / "topics").glob("t-0.*"))

    def started(self, data: Path) -> Broker:
        return Broker(data, settings=SETTINGS, port=self.port).start()

    def send(self, numbers: range) -> None:
        """One batch each, and all of them acknowledged."""
        for number in numbers:
            self.producer.produce("t", b"%d:" % number + b"x" * 500, on_delivery=self._delivered)
            assert self.producer.flush(PATIENCE_S) == 0
        assert not self.errors

    def _delivered(self, error: KafkaError | None, message: object) -> None:
        if error is not None:
            self.errors.append(error)

    def _consumer(self, group: str) -> Consumer:
        config = {"group.id": group, "enable.auto.commit": False, "auto.offset.reset": "latest", "log_level": 0}
        return Consumer(config | {"bootstrap.servers": self.bootstrap, "enable.partition.eof": True})

    def commit(self, group: str, offset: int) -> None:
        with closing(self._consumer(group)) as consumer:
            consumer.commit(offsets=[TopicPartition("t", 0, offset)], asynchronous=False)

    def read(self, group: str, offset: int | None = None) -> list[int]:
        """What a member of the group reads on from its offset, or from another one."""
        found = []
        with closing(self._consumer(group)) as consumer:
            place = TopicPartition("t", 0)
            if offset is None:
                (place,) = consumer.committed([place], PATIENCE_S)
            else:
                place.offset = offset
            consumer.assign([place])
            while (message := consumer.poll(PATIENCE_S)) is not None and message.error() is None:
                found.append(int(message.value().partition(b":")[0]))
            assert message is not None
            assert message.error().code() == KafkaError._PARTITION_EOF
        return found


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path / "data")


def logs(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.log"))


def zeroed_at_its_start(number: int) -> Deed:
    def deed(folder: Path) -> None:
        path = logs(folder)[number]
        path.write_bytes(bytes(40) + path.read_bytes()[40:])

    return deed


def emptied(folder: Path) -> None:
    logs(folder)[0].write_bytes(b"")
    logs(folder)[0].with_suffix(".index").unlink()


def too_long(folder: Path) -> None:
    first, second, *_ = logs(folder)
    first.write_bytes(first.read_bytes() + second.read_bytes())
    first.with_suffix(".index").unlink()


def cut_before_a_row(number: int) -> Deed:
    def deed(folder: Path) -> None:
        rows = logs(folder)[number].with_suffix(".index").read_bytes()
        _, at, _, _ = ENTRY.unpack(rows[-ENTRY.size :])
        os.truncate(logs(folder)[number], at)

    return deed


def a_batch_short(folder: Path) -> None:
    """Behind the last row of the index: only a snapshot or the mark says that there was more."""
    path = logs(folder)[-1]
    os.truncate(path, path.stat().st_size - 300)


def snapshot_ahead(folder: Path) -> None:
    data = next(iter(sorted(folder.glob("*.snapshot"), reverse=True)), None)
    assert data is None or int(data.stem) <= OLD
    (folder / f"{OLD + 5:020}.snapshot").write_bytes(b"put back from a longer log")


def no_memo(folder: Path) -> None:
    for name in ("memo.json", "memo.copy"):
        (folder / name).write_bytes(b"?")


def torn_swap(folder: Path) -> None:
    first, second, *_ = logs(folder)
    (folder / f"{0:020}-{int(second.stem):020}.swap").write_bytes(first.read_bytes()[:-9])
    first.unlink()
    first.with_suffix(".index").unlink()


def label_of_another(folder: Path) -> None:
    shutil.copy(next(folder.parent.glob("other-0.*")) / "topic.json", folder)


def gone(folder: Path) -> None:
    shutil.rmtree(folder)


STOPPED, KILLED = "stopped", "killed"
CASES: list[tuple[str, Deed, str]] = [
    (STOPPED, zeroed_at_its_start(-1), "is broken at byte"),
    (KILLED, zeroed_at_its_start(-1), "is broken at byte"),
    (STOPPED, emptied, "had .* when the broker was closed"),
    (KILLED, emptied, "is empty, and at offset"),
    (KILLED, too_long, "goes beyond offset"),
    (STOPPED, cut_before_a_row(0), "when the broker was closed"),
    (KILLED, cut_before_a_row(0), r"has \d+ bytes, and .*index has a batch at byte"),
    (STOPPED, cut_before_a_row(-1), "when the broker was closed"),
    (KILLED, cut_before_a_row(-1), r"has \d+ bytes, and .*index has a batch at byte"),
    (STOPPED, a_batch_short, "when the broker was closed"),
    (STOPPED, no_memo, r"memo.json cannot be read .* nor can"),
    (KILLED, no_memo, r"memo.json cannot be read .* nor can"),
    (KILLED, torn_swap, "which a compaction has written, is broken"),
    (STOPPED, label_of_another, "holds partition 0 of the topic other"),
    (KILLED, label_of_another, "holds partition 0 of the topic other"),
    (STOPPED, gone, "is gone, the folder of partition 0 of the topic t"),
    (KILLED, gone, "is gone, the folder of partition 0 of the topic t"),
]


def follow(error: LogDamaged) -> None:
    """Do what it says, and no more."""
    if "make an empty folder of that name" in str(error):
        Path(str(error).partition(" is gone")[0]).mkdir()
    else:
        assert follow_the_remedy(error), str(error)


def advised(scene: Scene, data: Path) -> Broker:
    """The broker, once the advice of each error was followed."""
    for _ in range(5):
        try:
            return scene.started(data)
        except LogDamaged as error:
            follow(error)
    pytest.fail("the advice leads nowhere")


def test_no_error_advises_to_delete_anything() -> None:
    """Whatever has to go is renamed, and is still read for what it names."""
    said = [
        ast.unparse(node)
        for path in Path(waterclock.broker.__file__).parent.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "LogDamaged"
    ]
    assert len(said) > 10
    assert [one for one in said if re.search(r"\b(delete|remove)\b", one, re.IGNORECASE)] == []


@pytest.mark.parametrize(("how", "deed", "expected"), CASES)
def test_who_follows_the_advice_of_an_error_has_nothing_skipped_given_twice_or_refused(
    scene: Scene, how: str, deed: Deed, expected: str
) -> None:
    data = scene.data if how == STOPPED else scene.killed
    deed(scene.folder(data))
    with pytest.raises(LogDamaged, match=expected):
        scene.started(data)
    new = list(range(OLD, OLD + NEW))
    with closing(advised(scene, data)):
        scene.send(range(OLD, OLD + NEW))
        seen = scene.read("any", 0)
        assert scene.read("end") == new
        assert scene.read("any", OLD) == new
        assert scene.read("middle") == [number for number in seen if number >= MIDDLE]
        assert seen == sorted(set(seen))
        assert seen[-NEW:] == new
        after_kill = data.with_name("again")
        shutil.copytree(data, after_kill)
    for again in (data, after_kill):
        with closing(scene.started(again)):
            assert scene.read("any", 0) == seen
            assert scene.read("end") == new
