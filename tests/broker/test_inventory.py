"""The start's inventory: the store gone, older or damaged, folders gone or strange; nothing of a user's goes in silence."""

from __future__ import annotations

import logging
import shutil
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import Producer

pytest.importorskip("kio")
pytest.importorskip("crc32c")

from tests.broker.raw_client import RawClient
from tests.broker.replication.pairs import PATIENCE_S, pair, until
from waterclock.broker import Broker
from waterclock.broker.errors import LogDamaged
from waterclock.broker.folder.making import FolderLabel, folder_of, read_label, write_label
from waterclock.broker.folder.topics import Topics
from waterclock.broker.store import Entry, Store
from waterclock.broker.store.file import MARK

TOLD = logging.WARNING


def folders(data: Path) -> dict[str, Path]:
    """The partitions' folders, by topic and number."""
    return {path.name.partition(".")[0]: path for path in sorted((data / "topics").iterdir())}


def unknown(data: Path) -> list[str]:
    return sorted(path.name for path in (data / "unknown").iterdir()) if (data / "unknown").exists() else []


def ends(data: Path, **named: Any) -> dict[str, list[int]]:
    """What a broker that starts there serves: each topic's ends."""
    with Broker(data, **named) as broker, RawClient(broker.bootstrap) as client:
        topics = broker.call(lambda: {topic.name: len(topic.partitions) for topic in broker.inside.topics})
        return {name: [client.end(name, number) for number in range(count)] for name, count in topics.items()}


def settings_of(data: Path, topic: str) -> Any:
    with Broker(data) as broker:
        return broker.call(lambda: dict(broker.inside.topics.by_name[topic].settings.given))


def lose_store(data: Path) -> None:
    (data / "store.log").unlink()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A broker's folder: `orders` with a record in each of two partitions, and settings of its own."""
    with Broker(tmp_path) as broker, RawClient(broker.bootstrap) as client:
        broker.create_topic("orders", 2, {"retention.ms": "-1"})
        for number in range(2):
            assert client.produce("orders", b"kept", partition=number) == (0, 0)
    return tmp_path


# The store


def test_without_its_store_a_broker_has_its_topics_and_says_what_it_does_not_know(
    data: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lose_store(data)
    assert ends(data) == {"orders": [1, 1]}
    assert "store.log is gone" in caplog.text
    assert "groups, their offsets, transactions, and users and settings that clients made are not known" in caplog.text
    assert "the topic orders was taken up again" in caplog.text
    caplog.clear()
    assert settings_of(data, "orders") == {"retention.ms": "-1"}
    assert ends(data) == {"orders": [1, 1]}
    assert not [record for record in caplog.records if record.levelno >= TOLD]


def test_what_was_lost_is_said_once(data: Path, caplog: pytest.LogCaptureFixture) -> None:
    with closing(Store(str(data), lambda *arguments: None)) as store:
        for number in range(50):
            store.commit_at_once(Entry("setting", "x", {"number": number}))
    with Broker(data) as broker, RawClient(broker.bootstrap) as client:
        broker.create_topic("later", 2)
        assert client.produce("later", b"kept", partition=1) == (0, 0)
    lose_store(data)
    assert ends(data) == {"orders": [1, 1], "later": [0, 1]}
    caplog.clear()
    assert ends(data) == {"orders": [1, 1], "later": [0, 1]}
    assert not [record for record in caplog.records if record.levelno >= TOLD]


def test_it_is_the_same_broker_of_the_same_cluster_and_its_topics_have_their_ids(data: Path) -> None:
    def ids() -> Any:
        with Broker(data) as broker:
            who = broker.inside.identity
            return broker.call(lambda: (who.cluster, who.node, broker.inside.topics.by_name["orders"].id))

    before = ids()
    lose_store(data)
    assert ids() == before


def test_an_older_store_brings_no_newer_topic_into_danger(data: Path, caplog: pytest.LogCaptureFixture) -> None:
    older = (data / "store.log").read_bytes()
    with Broker(data) as broker, RawClient(broker.bootstrap) as client:
        broker.create_topic("later", 1)
        broker.create_topic("latest", 1)
        assert client.produce("latest", b"kept") == (0, 0)
        assert client.produce("later", b"kept") == (0, 0)
    (data / "store.log").write_bytes(older)
    assert ends(data) == {"orders": [1, 1], "later": [1], "latest": [1]}
    assert "store.log is older than the files beside it" in caplog.text


@pytest.mark.parametrize("left", ["older copy", "a commit less"])
@pytest.mark.parametrize("killed", [True, False], ids=["killed", "stopped"])
def test_an_older_store_is_said_although_no_folder_knows_of_it(
    data: Path, caplog: pytest.LogCaptureFixture, killed: bool, left: str
) -> None:
    """Offsets of groups alone were committed since: they went back in silence."""
    path = data / "store.log"
    older = path.read_bytes()
    with closing(Store(str(data), lambda *arguments: None)) as store:
        for number in range(3):
            store.commit_at_once(Entry("setting", "x", {"at": number}))
        kept, last = path.read_bytes(), store.number
    if killed:
        (data / "clean-stop").unlink()
    path.write_bytes(older if left == "older copy" else kept[: kept.rindex(MARK)])
    assert ends(data) == {"orders": [1, 1]}
    first = last - (3 if left == "older copy" else 1)
    assert f"store.log is older than the files beside it: its last commit is number {first}," in caplog.text
    assert f"and there was number {last}. " in caplog.text
    caplog.clear()
    with closing(Store(str(data), lambda *arguments: None)) as store:
        store.commit_at_once(Entry("setting", "x", {"at": 9}))
    assert ends(data) == {"orders": [1, 1]}
    assert not [record for record in caplog.records if record.levelno >= TOLD]


def test_a_store_without_any_topic_is_missed_too(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert ends(tmp_path) == {}
    lose_store(tmp_path)
    assert ends(tmp_path) == {}
    assert "store.log is gone" in caplog.text


def test_a_damaged_number_of_the_last_commit_is_said_and_costs_nothing(
    data: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = data / "store.number"
    whole = path.read_bytes()
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :])
        caplog.clear()
        with closing(Store(str(data), lambda *arguments: None)) as store:
            assert (store.latest, store.number > 0) == (0, True)
        assert "store.number is damaged" in caplog.text
    path.write_bytes(b"")
    caplog.clear()
    assert ends(data) == {"orders": [1, 1]}
    assert not [record for record in caplog.records if record.levelno >= TOLD]


def test_more_partitions_than_an_older_store_knows_are_there_all_the_same(data: Path) -> None:
    older = (data / "store.log").read_bytes()
    with Broker(data) as broker, RawClient(broker.bootstrap) as client:
        broker.call(lambda: broker.inside.topics.grow(broker.inside.topics.by_name["orders"], 4))
        until(lambda: broker.call(lambda: len(broker.inside.topics.by_name["orders"].partitions)) == 4)
        assert client.produce("orders", b"kept", partition=3) == (0, 0)
    (data / "store.log").write_bytes(older)
    assert ends(data) == {"orders": [1, 1, 0, 1]}


def test_any_flipped_bit_of_the_store_costs_no_topic(data: Path) -> None:
    whole = (data / "store.log").read_bytes()
    for at in range(0, len(whole), max(1, len(whole) // 23)):
        (data / "store.log").write_bytes(whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :])
        assert ends(data) == {"orders": [1, 1]}


def test_settings_that_a_client_changed_are_taken_up_too(data: Path) -> None:
    with Broker(data) as broker:
        topics: Topics = broker.inside.topics
        done, wanted = threading.Event(), {"retention.ms": "5", "segment.ms": "7"}
        broker.call(lambda: topics.configure(topics.by_name["orders"], wanted, lambda kept: done.set()))
        assert done.wait(PATIENCE_S)
    lose_store(data)
    assert settings_of(data, "orders") == {"retention.ms": "5", "segment.ms": "7"}


def test_no_producer_gets_the_id_of_one_that_the_logs_know(data: Path) -> None:
    def send(broker: Broker) -> None:
        producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
        producer.produce("orders", b"kept", partition=0)
        assert producer.flush(PATIENCE_S) == 0

    with Broker(data) as broker:
        send(broker)
    lose_store(data)
    with Broker(data) as broker:
        send(broker)
        known = broker.call(lambda: list(broker.inside.topics.by_name["orders"].partitions[0].producers.known))
    assert len(known) == 2
    assert ends(data) == {"orders": [3, 1]}


# Folders


def test_a_folder_that_nobody_knows_is_moved_aside_with_all_that_is_in_it(
    data: Path, caplog: pytest.LogCaptureFixture
) -> None:
    strange = data / "topics" / "orders-0.0123456789abcdef"
    shutil.copytree(folders(data)["orders-0"], strange)  # its label is another folder's
    log = next(strange.glob("*.log")).read_bytes()
    assert ends(data) == {"orders": [1, 1]}
    assert f"{strange} is not known, and lies in {data / 'unknown' / strange.name}" in caplog.text
    assert next((data / "unknown" / strange.name).glob("*.log")).read_bytes() == log


def test_a_second_one_of_its_name_lies_beside_it(data: Path) -> None:
    for _ in range(2):
        (data / "topics" / "x").mkdir()
        ends(data)
    assert unknown(data) == ["x", "x.1"]


def test_a_topic_whose_name_another_one_has_by_now_is_moved_aside(data: Path) -> None:
    other = uuid4()
    folder = data / "topics" / folder_of("orders", other, 0)
    shutil.copytree(folders(data)["orders-0"], folder)
    write_label(str(folder), FolderLabel("orders", other, 0, 1, {}, 3))
    assert ends(data) == {"orders": [1, 1]}
    assert unknown(data) == [folder.name]


def test_what_a_crash_left_of_a_creation_is_moved_aside(data: Path) -> None:
    new = uuid4()
    folder = data / "topics" / folder_of("new", new, 0)
    folder.mkdir()
    write_label(str(folder), FolderLabel("new", new, 0, 1, {}, 3))
    assert ends(data) == {"orders": [1, 1]}
    assert unknown(data) == [folder.name]


def test_what_a_crash_left_of_a_deletion_is_removed(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch, Broker(data) as broker:
        patch.setattr("waterclock.broker.folder.making.shutil.rmtree", lambda *arguments, **named: None)
        topics: Topics = broker.inside.topics
        broker.call(lambda: topics.delete(topics.by_name["orders"]))
        until(lambda: not broker.call(lambda: topics.by_name), "it is deleted")
    assert len(folders(data)) == 2
    assert ends(data) == {}
    assert (folders(data), unknown(data)) == ({}, [])
    with closing(Store(str(data), lambda *arguments: None)) as store:
        assert store.load("deleted") == {}


def test_a_deleted_topic_stays_deleted_and_leaves_no_word_behind(data: Path) -> None:
    with Broker(data) as broker:
        topics: Topics = broker.inside.topics
        broker.call(lambda: topics.delete(topics.by_name["orders"]))
        until(lambda: not folders(data), "its folders are gone")
        until(lambda: not broker.call(lambda: broker.inside.store.load("deleted")), "and that is durable")
    with closing(Store(str(data), lambda *arguments: None)) as store:
        assert store.load("deleted") == store.load("topic") == {}
    assert ends(data) == {}


def test_a_partition_whose_folder_is_gone_is_said_and_nothing_starts_without_a_word(data: Path) -> None:
    shutil.rmtree(folder := folders(data)["orders-1"])
    for _ in range(2):
        with pytest.raises(LogDamaged, match=rf"{folder} is gone, .*orders.*make an empty folder of that name"):
            Broker(data).start()
    folder.mkdir()
    assert ends(data) == {"orders": [1, 1]}  # its offset is not given again


@pytest.mark.parametrize("how", [Path.unlink, lambda path: path.write_bytes(path.read_bytes()[:-4])])
def test_a_label_that_is_gone_or_damaged_is_written_anew(data: Path, how: Callable[[Path], Any]) -> None:
    label = read_label(str(folders(data)["orders-1"]))
    how(folders(data)["orders-1"] / "topic.json")
    assert ends(data) == {"orders": [1, 1]}
    again = read_label(str(folders(data)["orders-1"]))
    assert label is not None
    assert again is not None
    assert again._replace(commit=0) == label._replace(commit=0)


def test_where_the_store_is_gone_too_the_folder_is_known_by_its_name(data: Path) -> None:
    """It was moved into `unknown`, and each start from then on ended with a bare FileNotFoundError."""
    (data / "store.log").unlink()
    (folders(data)["orders-1"] / "topic.json").unlink()
    assert ends(data) == {"orders": [1, 1]}
    assert unknown(data) == []
    assert read_label(str(folders(data)["orders-1"])) is not None


def test_two_folders_that_were_exchanged_are_said(data: Path) -> None:
    one, two = folders(data).values()
    one.rename(data / "aside")
    two.rename(one)
    (data / "aside").rename(two)
    with pytest.raises(LogDamaged, match=rf"{one} holds partition 1 of the topic orders, .*the folder was {two.name}"):
        Broker(data).start()
    for folder in (one, two):
        (folder / "topic.json").unlink()
    assert ends(data) == {"orders": [1, 1]}


# Pairs


def test_a_follower_without_its_store_copies_everything_anew(tmp_path: Path) -> None:
    with pair(tmp_path) as both:
        with RawClient(both.one.bootstrap) as client:
            assert client.produce("t", b"kept") == (0, 0)
        both.synced()
        both.two.close()
        lose_store(tmp_path / "two")
        both.again("two", both.one.bootstrap).start()
        both.synced()
        both.one.close()
        both.two.promote()
        with RawClient(both.two.bootstrap) as client:
            assert client.end("t") == 1


def test_a_follower_that_lost_a_partition_copies_it_anew(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with pair(tmp_path) as both:
        with RawClient(both.one.bootstrap) as client:
            assert client.produce("t", b"kept") == (0, 0)
        both.synced()
        both.two.close()
        shutil.rmtree(folders(tmp_path / "two")["t-0"])
        both.again("two", both.one.bootstrap).start()
        both.synced()
        assert "is copied from the leader anew" in caplog.text
        copied = both.two.call(lambda: both.two.inside_follower.topics.by_name["t"].partitions[0])
        until(lambda: (copied.start, copied.end) == (0, 1), "its record is there again")


def test_one_of_two_that_lost_its_store_does_not_lead_on_a_guess(tmp_path: Path) -> None:
    with pair(tmp_path) as both:
        both.synced()
        both.two.close()
    lose_store(tmp_path / "two")
    for _ in range(2):
        with pytest.raises(LogDamaged, match=r"not known whether it led.*--follow HOST:PORT"):
            Broker(tmp_path / "two").start()
    shutil.rmtree(tmp_path / "two" / "journal")
    assert list(ends(tmp_path / "two")) in ([], ["t"])
