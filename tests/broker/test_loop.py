"""What takes long is done beside the broker's loop: whoever asks for something else meanwhile is served."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("kio")

from tests.broker.raw_client import RawClient
from tests.broker.transactions.client import Client, Id
from tests.broker.transactions.client import batch as transactional
from tests.conformance.waiting import until
from waterclock.broker import Broker, knobs
from waterclock.broker.knobs import Knobs
from waterclock.broker.wire.errors import Error

LIMIT = timedelta(seconds=10)
PATIENCE_S = 10


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(tmp_path) as broker:
        broker.create_topic("t")
        yield broker


@pytest.fixture
def other(broker: Broker) -> Iterator[RawClient]:
    with RawClient(broker.bootstrap) as other:
        yield other


class Gate:
    """A disk that hangs at deeds on folders whose names begin so, until it is opened."""

    def __init__(self, start: str) -> None:
        self.start, self.reached, self.opened = start, threading.Event(), threading.Event()

    def before(self, deed: Callable[..., Any]) -> Callable[..., Any]:
        def held(path: Any, *more: Any, **named: Any) -> Any:
            if os.path.basename(path).startswith(self.start):
                self.reached.set()
                assert self.opened.wait(PATIENCE_S), "everybody waited for the disk"
            return deed(path, *more, **named)

        return held


def send_create(client: RawClient, name: str, partitions: int) -> None:
    topic = {"name": name, "num_partitions": partitions, "replication_factor": 1, "assignments": [], "configs": []}
    client.send("CreateTopics", 4, topics=[topic], timeout=LIMIT, validate_only=False)


def create(client: RawClient, name: str, partitions: int) -> int:
    send_create(client, name, partitions)
    return error(client)


def error(client: RawClient) -> int:
    """The error of the only row in the next answer."""
    answer = client.receive()
    rows = next(rows for rows in (getattr(answer, n, None) for n in ("topics", "responses", "results")) if rows)
    return int(rows[0].error_code.value)


def send_growth(client: RawClient, name: str, count: int) -> None:
    rows = [{"name": name, "count": count, "assignments": None}]
    client.send("CreatePartitions", 3, topics=rows, timeout=LIMIT, validate_only=False)


def send_delete(client: RawClient, name: str) -> None:
    client.send("DeleteTopics", 5, topic_names=[name], timeout=LIMIT)


def folders(broker: Broker) -> set[str]:
    return {name.partition(".")[0] for name in os.listdir(broker.inside.topics.folder)}


# Topics that come and go


def test_others_are_served_while_partitions_are_made(
    broker: Broker, client: RawClient, other: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate("many-")
    monkeypatch.setattr(os, "mkdir", gate.before(os.mkdir))
    send_create(client, "many", 40)
    assert gate.reached.wait(PATIENCE_S)
    assert other.produce("t", b"v") == (0, 0)
    gate.opened.set()
    assert error(client) == Error.NONE
    assert [other.produce("many", b"v", partition=number) for number in range(40)] == [(0, 0)] * 40


def test_others_are_served_while_partitions_are_removed(
    broker: Broker, client: RawClient, other: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert create(client, "many", 40) == Error.NONE
    gate = Gate("many-")
    monkeypatch.setattr(shutil, "rmtree", gate.before(shutil.rmtree))
    send_delete(client, "many")
    assert gate.reached.wait(PATIENCE_S)
    assert other.produce("t", b"v") == (0, 0)
    gate.opened.set()
    assert error(client) == Error.NONE
    assert folders(broker) == {"t-0"}


def test_partitions_that_cannot_all_be_made_leave_nothing_and_may_be_asked_for_again(
    broker: Broker, client: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    mkdir = os.mkdir

    def full(path: Any, *more: Any, **named: Any) -> None:
        if os.path.basename(path).startswith("many-33"):
            raise OSError(28, "No space left on device")
        mkdir(path, *more, **named)

    with monkeypatch.context() as patch:
        patch.setattr(os, "mkdir", full)
        assert create(client, "many", 40) == Error.KAFKA_STORAGE_ERROR
        assert folders(broker) == {"t-0"}
        send_growth(client, "t", 5)
        assert error(client) == Error.NONE
    assert create(client, "many", 40) == Error.NONE


def test_a_partition_that_cannot_be_made_whole_leaves_no_folder(
    broker: Broker, client: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.open

    def full(path: Any, *more: Any, **named: Any) -> int:
        if "/many-" in str(path) and str(path).endswith(".log"):
            raise OSError(24, "Too many open files")
        return real(path, *more, **named)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", full)
        assert create(client, "many", 1) == Error.KAFKA_STORAGE_ERROR
    assert folders(broker) == {"t-0"}


def test_names_in_a_new_partition_are_flushed_with_its_first_record(
    broker: Broker, client: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder's own name is flushed before the topic is told of, and what is in it is made anew where it is lost."""
    flushed: list[str] = []
    real = os.fsync

    def fsync(fd: int) -> None:
        flushed.append(os.path.basename(os.readlink(f"/proc/self/fd/{fd}")).partition(".")[0])
        real(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    assert create(client, "many", 40) == Error.NONE
    assert flushed == ["topics"]
    assert client.produce("many", b"v", partition=7) == (0, 0)
    assert flushed == ["topics", "topic", "many-7"]  # the label, and the names


def test_a_partition_whose_files_a_power_cut_took_before_anything_was_written_is_there(tmp_path: Path) -> None:
    with Broker(tmp_path) as broker:
        broker.create_topic("t")
    for file in next((tmp_path / "topics").iterdir()).iterdir():
        file.unlink()
    with Broker(tmp_path) as broker, RawClient(broker.bootstrap) as client:
        assert client.produce("t", b"v") == (0, 0)


# A topic grows once at a time


def test_a_growth_waits_for_the_one_before_and_begins_where_that_one_ended(
    broker: Broker, client: RawClient, other: RawClient
) -> None:
    """A asks for 3 partitions, B for 5. What A asked for is refused by the store: B's five must not begin at the fourth."""
    held: list[Any] = []
    store, topic = broker.inside.store, broker.inside.topics.by_name["t"]
    broker.call(lambda: setattr(store, "put", lambda *change: held.append(change)))
    send_growth(client, "t", 3)
    until(lambda: held)
    send_growth(other, "t", 5)
    until(lambda: len(topic.growths) == 2)
    broker.call(lambda: held.pop(0)[3](False))
    assert error(client) == Error.KAFKA_STORAGE_ERROR
    until(lambda: held)
    broker.call(lambda: held.pop(0)[3](True))
    assert error(other) == Error.NONE
    assert [partition.number for partition in topic.partitions] == [0, 1, 2, 3, 4]
    assert folders(broker) == {f"t-{number}" for number in range(5)}


ALIKE = {
    "create": (partial(send_create, name="new", partitions=3), "put", Error.TOPIC_ALREADY_EXISTS),
    "create a namesake": (partial(send_create, name="ne.w", partitions=3), "put", Error.INVALID_TOPIC_EXCEPTION),
    "grow": (partial(send_growth, name="t", count=3), "put", Error.INVALID_PARTITIONS),
    "grow what goes": (partial(send_delete, name="t"), "commit", Error.UNKNOWN_TOPIC_OR_PARTITION),
    "delete": (partial(send_delete, name="t"), "commit", Error.UNKNOWN_TOPIC_OR_PARTITION),
}


@pytest.mark.parametrize("done", [True, False], ids=["kept", "refused"])
@pytest.mark.parametrize("what", ALIKE)
def test_who_asks_for_the_same_hears_of_it_once_it_is_durable(
    broker: Broker, client: RawClient, other: RawClient, what: str, done: bool
) -> None:
    """A leader that told of a topic which its follower did not have yet, and died, would have told of nothing."""
    held: list[Any] = []
    send, name, error_then = ALIKE[what]
    store = broker.inside.store
    real = getattr(store, name)
    broker.call(lambda: setattr(store, name, lambda *change: held.append(change)))
    (partial(send_create, name="ne_w", partitions=3) if "namesake" in what else send)(client)
    until(lambda: held)
    alone = askers(broker)
    (partial(send_growth, name="t", count=3) if what == "grow what goes" else send)(other)
    until(lambda: askers(broker) == alone + 1)
    broker.call(lambda: setattr(store, name, real))
    broker.call(lambda: real(*held[0]) if done else held[0][-1](False))
    assert error(client) == (Error.NONE if done else Error.KAFKA_STORAGE_ERROR)
    assert error(other) == (error_then if done else Error.KAFKA_STORAGE_ERROR)


def askers(broker: Broker) -> int:
    """How many wait for topics that are made, grow or go."""
    topics = broker.inside.topics
    known = list(topics.by_name.values())
    grow = [then for topic in known for _, thens in topic.growths for then in thens]
    return sum(map(len, topics.making.values())) + len(grow) + sum(len(topic.leaving or ()) for topic in known)


def test_a_topic_that_is_deleted_while_it_grows_stays_deleted(
    broker: Broker, client: RawClient, other: RawClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate("t-")
    monkeypatch.setattr(os, "mkdir", gate.before(os.mkdir))
    send_growth(client, "t", 3)
    assert gate.reached.wait(PATIENCE_S)
    send_delete(other, "t")
    until(lambda: broker.call(lambda: "t" not in broker.inside.topics.by_name))
    gate.opened.set()
    assert error(other) == Error.NONE
    assert error(client) != Error.NONE
    broker.close()
    with Broker(tmp_path) as again:
        assert again.call(lambda: list(again.inside.topics.by_name)) == []
        assert folders(again) == set()


# Flushes


def test_the_loop_waits_for_no_flush_but_a_frame_written_ahead(
    broker: Broker, client: RawClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, flushed = broker.call(threading.get_ident), list[tuple[bool, str]]()
    frames, fdatasync = {"write-ahead.0", "write-ahead.1"}, os.fdatasync

    def noted(flush: Callable[[int], None]) -> Callable[[int], None]:
        def noting(fd: int) -> None:
            name = os.path.basename(os.readlink(f"/proc/self/fd/{fd}"))
            if flush is not fdatasync or name not in frames:  # tests/broker/test_flusher.py has those
                flushed.append((threading.get_ident() == loop, name.rpartition(".")[2]))
            flush(fd)

        return noting

    monkeypatch.setattr(os, "fsync", noted(os.fsync))
    monkeypatch.setattr(os, "fdatasync", noted(fdatasync))
    monkeypatch.setattr(knobs, "_present", Knobs(snapshot_every=1))
    assert create(client, "u", 3) == Error.NONE
    producer = Client(broker.bootstrap)
    abort_one(producer, "u")
    producer.close()
    folder = broker.call(lambda: Path(broker.inside.topics.by_name["u"].partitions[0].folder))
    until(lambda: [*folder.glob("*.snapshot")] and (False, "aborted") in flushed)
    rows = [{"name": "u", "partitions": [{"partition_index": 0, "offset": 1}]}]
    client.ask("DeleteRecords", 2, topics=rows, timeout=LIMIT)
    send_growth(client, "u", 5)
    assert error(client) == Error.NONE
    send_delete(client, "u")
    assert error(client) == Error.NONE
    assert {"aborted", "log", "topics", "new"} <= {name for _, name in flushed}
    assert [name for in_the_loop, name in flushed if in_the_loop] == []


def abort_one(client: Client, topic: str) -> None:
    """A transaction that is aborted, and records enough behind it that a snapshot is taken."""
    producer = client.ready("n")
    assert client.add("n", producer, topic) == ["NONE"]
    assert client.produce("n", topic, transactional("a", producer, 0))[0] == "NONE"
    assert client.end("n", producer, commit=False) == "NONE"
    for _ in range(50):
        assert client.produce(None, topic, transactional("x" * 50, Id(-1, -1), -1, False))[0] == "NONE"


# Long polls


def test_a_long_poll_ends_with_its_connection(broker: Broker, client: RawClient, other: RawClient) -> None:
    partitions = [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}]
    fields: dict[str, Any] = {"max_wait": timedelta(hours=1), "min_bytes": 1, "forgotten_topics_data": []}
    for reader in (client, other):
        reader.send("Fetch", 12, topics=[{"topic": "t", "partitions": partitions}], **fields)
    until(lambda: waiting(broker) == 2)
    client.close()
    until(lambda: waiting(broker) == 1)
    with RawClient(broker.bootstrap) as producer:
        assert producer.produce("t", b"v") == (0, 0)
    assert len(other.receive().responses[0].partitions[0].records) > 0


def waiting(broker: Broker) -> int:
    return broker.statistics().purgatories["fetch"].delayed
