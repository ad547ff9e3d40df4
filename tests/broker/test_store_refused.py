"""A store that refuses: who asked is told, the next answer is the old one, and so is the one after a restart.

Each test asks for something on a full disk, looks, starts the broker again, and looks once more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("kio")
pytest.importorskip("crc32c")

from tests.broker.admin import BROKER, SET, TOPIC, change, create, log_in_by_scram, setting
from tests.broker.full_disks import full_disk, settle, slow_disk
from tests.broker.replication.pairs import client, pair
from tests.broker.security.test_users import altered, upsertion
from tests.conformance.wire import Wire
from waterclock.broker import Access, Broker
from waterclock.broker.log.partition import Partition

THIS = "1"
SCRAM = "SCRAM-SHA-256"
Look = Callable[[Wire], Any]


class Scene:
    """A broker in `folder`, and a connection to it; `again` starts it anew."""

    def __init__(self, folder: Path, access: Access | None = None) -> None:
        self._folder, self._access = folder, access
        self._start()

    def _start(self) -> None:
        self.broker = Broker(self._folder, access=self._access).start()
        self.wire = Wire(self.broker.bootstrap)

    def again(self) -> None:
        self.close()
        self._start()

    def close(self) -> None:
        self.wire.__exit__()
        self.broker.close()

    @contextmanager
    def refused(self, look: Look) -> Iterator[None]:
        """What is asked for within changes nothing of what `look` sees, now and after a restart."""
        before = look(self.wire)
        with full_disk(self.broker):
            yield
            assert look(self.wire) == before
        assert look(self.wire) == before
        self.again()
        assert look(self.wire) == before


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    scene = Scene(tmp_path)
    create(scene.wire, "t", configs={"retention.ms": "1000"})
    yield scene
    scene.close()


def partitions(wire: Wire) -> Any:
    """Error and number of the partitions of the topic t."""
    row = wire.ask("metadata", 12, topics=[{"name": "t"}], allow_auto_topic_creation=False).topics[0]
    return row.error_code.name, row.topic_id, len(row.partitions)


def delete(wire: Wire, name: str = "t") -> str:
    answer = wire.ask("delete_topics", 6, topics=[{"name": name, "topic_id": None}], timeout=5000)
    return str(answer.responses[0].error_code.name)


# Settings


def test_a_topics_setting(scene: Scene) -> None:
    with scene.refused(lambda wire: setting(wire, TOPIC, "t", "retention.ms")):
        assert change(scene.wire, TOPIC, "t", ("retention.ms", SET, "2000")) == "kafka_storage_error"


def test_a_setting_of_the_broker(scene: Scene) -> None:
    with scene.refused(lambda wire: setting(wire, BROKER, THIS, "message.max.bytes")):
        assert change(scene.wire, BROKER, THIS, ("message.max.bytes", SET, "77")) == "kafka_storage_error"
        assert scene.broker.call(lambda: scene.broker.inside.topics.by_name["t"].settings.max_message_bytes) > 77


def test_a_setting_that_was_made_of_a_refused_one(scene: Scene) -> None:
    """The second change is asked for while the first is on its way to the disk: its row would have both."""

    def look(wire: Wire) -> Any:
        return [setting(wire, TOPIC, "t", name) for name in ("retention.ms", "segment.ms")]

    before = look(scene.wire)
    with slow_disk(scene.broker, outcome=False) as go_on, Wire(scene.broker.bootstrap) as other:
        for wire, name in ((scene.wire, "retention.ms"), (other, "segment.ms")):
            config = {"name": name, "config_operation": SET, "value": "5000"}
            asked = {"resource_type": TOPIC, "resource_name": "t", "configs": [config]}
            wire.send("incremental_alter_configs", 1, resources=[asked])
            assert wire.is_quiet()
        go_on.set()
        errors = [w.receive("incremental_alter_configs", 1).responses[0].error_code.name for w in (scene.wire, other)]
    assert errors == ["kafka_storage_error"] * 2
    assert look(scene.wire) == before
    scene.again()
    assert look(scene.wire) == before


# Topics


def test_a_deletion_of_a_topic(scene: Scene) -> None:
    with scene.refused(partitions):
        assert delete(scene.wire) == "kafka_storage_error"
    assert delete(scene.wire) == "none"


def test_more_partitions(scene: Scene) -> None:
    with scene.refused(partitions):
        row = {"name": "t", "count": 3, "assignments": None}
        answer = scene.wire.ask("create_partitions", 3, topics=[row], timeout=5000)
        assert answer.results[0].error_code.name == "kafka_storage_error"


def test_a_new_topic(scene: Scene) -> None:
    def look(wire: Wire) -> list[str]:
        return [topic.name for topic in wire.ask("metadata", 12, topics=None).topics]

    with scene.refused(look):
        assert create(scene.wire, "new").error_code.name == "kafka_storage_error"


def test_a_topic_whose_deletion_is_on_its_way_is_changed_by_nobody(scene: Scene) -> None:
    """Its row in the store would come back."""
    with slow_disk(scene.broker) as go_on, Wire(scene.broker.bootstrap) as other:
        scene.wire.send("delete_topics", 6, topics=[{"name": "t", "topic_id": None}], timeout=5000)
        assert scene.wire.is_quiet()
        assert partitions(other)[0] == "none"
        assert change(other, TOPIC, "t", ("retention.ms", SET, "2000")) == "unknown_topic_or_partition"
        row = {"name": "t", "count": 3, "assignments": None}
        other.send("create_partitions", 3, topics=[row], timeout=5000)
        assert other.is_quiet()  # who is told that it is gone may hold the broker to it
        go_on.set()
        assert scene.wire.receive("delete_topics", 6).responses[0].error_code.name == "none"
        assert other.receive("create_partitions", 3).results[0].error_code.name == "unknown_topic_or_partition"
        assert delete(other) == "unknown_topic_or_partition"
    for _ in range(2):
        assert partitions(scene.wire)[0] == "unknown_topic_or_partition"
        scene.again()


def test_a_topic_named_twice_in_one_deletion_is_deleted_once(scene: Scene) -> None:
    topic_id = partitions(scene.wire)[1]
    asked = [{"name": "t", "topic_id": None}, {"name": None, "topic_id": topic_id}]
    rows = scene.wire.ask("delete_topics", 6, topics=asked, timeout=5000).responses
    assert [row.error_code.name for row in rows] == ["none", "none"]
    assert partitions(scene.wire)[0] == "unknown_topic_or_partition"


def test_records_deleted_on_a_disk_that_refuses(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    def start() -> int:
        partition: Partition = scene.broker.inside.topics.by_name["t"].partitions[0]
        return partition.start

    def refuse(path: str, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    with client(scene.broker) as raw:
        for _ in range(3):
            raw.produce("t", b"v")
    rows = [{"partition_index": 0, "offset": offset} for offset in (1, 2)]
    with monkeypatch.context() as patch:
        patch.setattr("waterclock.broker.log.memo.write_whole", refuse)
        asked = [{"name": "t", "partitions": [row]} for row in rows]
        answer = scene.wire.ask("delete_records", 2, topics=asked, timeout=5000)
        errors = [topic.partitions[0].error_code.name for topic in answer.topics]
    assert (errors, scene.broker.call(start)) == (["kafka_storage_error"] * 2, 0)
    scene.wire.ask("delete_records", 2, topics=asked[1:], timeout=5000)
    assert scene.broker.call(start) == 2


# Users


def test_a_user_that_a_client_makes_or_takes_away(tmp_path: Path) -> None:
    def names(wire: Wire) -> list[str]:
        log_in_by_scram(wire, SCRAM, "alice", "alice-secret")
        reply = wire.ask("describe_user_scram_credentials", 0, users=None).results
        return [row.user for row in reply]

    scene = Scene(tmp_path, Access(users=("alice:alice-secret",)))
    assert names(scene.wire) == ["alice"]
    assert altered(scene.wire, upsertion("bob", "pw")) == {"bob": "none"}
    with full_disk(scene.broker):
        changed = altered(scene.wire, upsertion("carol", "pw"), deletions=({"name": "bob", "mechanism": 1},))
        assert changed == {"carol": "kafka_storage_error", "bob": "kafka_storage_error"}
        with Wire(scene.broker.bootstrap) as other:
            assert names(other) == ["alice", "bob"]
    scene.again()
    assert names(scene.wire) == ["alice", "bob"]
    scene.close()


# What is not a client's


def test_high_watermarks_that_were_refused_are_written_again(tmp_path: Path) -> None:
    with pair(tmp_path) as both:
        one = both.one

        def keep_highs() -> None:
            one.call(lambda: one.inside.leading.keep_highs(one.inside.topics.partitions()))
            settle(one)

        with client(one) as raw:
            raw.produce("t", b"v")
        with full_disk(one):
            keep_highs()
        keep_highs()
        assert one.call(lambda: one.inside.store.load("self"))["high"] == {"t-0": 1}
