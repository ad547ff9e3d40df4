"""From a real server's binlog into our broker: exactly once, whatever is killed, in the order that was asked for."""

from __future__ import annotations

import gc
import json
import os
import signal
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from tests.cdc.mariadb import MariaServer
from tests.cdc.told import Hurried, Told
from tests.cdc.topics import capture_of, messages, shop
from tests.kafka.reader import committed
from waterclock.cdc import capture as capturing
from waterclock.cdc.capture import Capture
from waterclock.cdc.held import Held
from waterclock.cdc.position import Position
from waterclock.cdc.produce import Publisher, Target
from waterclock.cdc.source import Source, SourceMark
from waterclock.cdc.stored import last_position
from waterclock.changes.maxwell import MaxwellMessage
from waterclock.clock import ManualClock, SystemClock
from waterclock.errors import ConnectionLost, EnvironmentMissing, UsageError
from waterclock.kafka.admin import Admin
from waterclock.signals import heard
from waterclock.testing import Broker

pytestmark = pytest.mark.mariadb


@pytest.mark.always
def test_every_change_is_in_kafka_once_and_those_of_a_key_are_in_order(
    mariadb: MariaServer, broker: Broker, database: str, here: str
) -> None:
    shop(mariadb, database, 20)
    statistics = capture_of(mariadb, Target(broker.bootstrap, database), here, f"{database}.*").run(mariadb.place())
    expected = messages(mariadb.changes(here, f"{database}.*"))
    found = committed(broker, database)
    assert len(found) > 1
    assert sorted(message for part in found.values() for message in part) == sorted(expected)
    for part in found.values():
        for key in {key for key, _ in part}:
            assert [message for message in part if message[0] == key] == [m for m in expected if m[0] == key]
    assert statistics.changes == len(expected)
    assert (statistics.place, statistics.breaks) == (mariadb.place(), 0)


def test_a_global_order_is_the_order_of_the_binlog(
    mariadb: MariaServer, broker: Broker, database: str, here: str
) -> None:
    shop(mariadb, database, 10)
    capture_of(mariadb, Target(broker.bootstrap, database, "global"), here, f"{database}.*").run(mariadb.place())
    assert committed(broker, database) == {0: messages(mariadb.changes(here, f"{database}.*"))}


def test_a_global_order_needs_one_partition(mariadb: MariaServer, broker: Broker, database: str, here: str) -> None:
    broker.create_topic(database, partitions=3)
    with pytest.raises(UsageError, match="has 3 partitions, and a global order needs exactly one"):
        capture_of(mariadb, Target(broker.bootstrap, database, "global"), here, "*.*").run(mariadb.place())


def four_changes(database: str) -> list[MaxwellMessage]:
    """Of two transactions, each with two rows."""
    return [
        MaxwellMessage(database, "t", "insert", 1, f"0-1-{n // 2 + 1}", n // 2, n % 2, n % 2 == 1, (), {"id": str(n)})
        for n in range(4)
    ]


def test_a_source_that_pauses_within_a_transaction_leaves_it_whole(broker: Broker, database: str) -> None:
    """What was gathered is committed when the source is quiet; not so the beginning of a transaction."""
    changes = four_changes(database)
    items = [
        changes[0],
        SourceMark.QUIET,
        changes[1],
        SourceMark.COMMITTED,
        SourceMark.QUIET,
        changes[2],
        SourceMark.QUIET,
        changes[3],
        SourceMark.COMMITTED,
    ]
    counts: list[int] = []
    source = Told(items, lambda: counts.append(capture.statistics().changes))
    target = Target(broker.bootstrap, database, "global")
    capture = Capture(
        lambda: Publisher(target, database), lambda position: source, SystemClock(), start=lambda: Position("")
    )
    capture.run("0-1-2")
    assert counts == [0, 0, 0, 0, 2, 2, 2, 2]
    assert capture.statistics().changes == 4


def test_a_change_waits_for_no_batch_once_the_source_has_no_more(broker: Broker, database: str) -> None:
    """The batches of librdkafka wait for more (`linger.ms`); a commit does not wait for them. A user's own wait counts."""
    producers: list[dict[str, Any]] = []

    def made(settings: dict[str, Any]) -> Producer:
        producers.append(settings)
        return Producer(settings)

    there: list[int] = []
    source = Told(
        [four_changes(database)[0]._replace(commit=True), SourceMark.COMMITTED, SourceMark.QUIET],
        lambda: there.append(len(committed(broker, database)[0])),
    )
    target = Target(broker.bootstrap, database, "global")
    publisher = partial(Publisher, target, database, {"linger.ms": "30000"})
    with patch("waterclock.kafka.library.Producer", made):
        capture = Capture(publisher, lambda position: source, ManualClock(), start=lambda: Position(""))
        began = time.monotonic()
        capture.run()
    assert there == [0, 0, 1]
    assert time.monotonic() - began < 20
    assert producers[0]["linger.ms"] == "30000"


def test_a_log_that_goes_on_without_a_transaction_moves_the_position_and_counts_none(
    broker: Broker, database: str
) -> None:
    """An idle slot of PostgreSQL moves on with each keepalive: they were counted as transactions."""
    change = four_changes(database)[0]
    source = Told([SourceMark.MOVED, SourceMark.MOVED, change, SourceMark.COMMITTED, SourceMark.MOVED], lambda: None)
    target = Target(broker.bootstrap, database, "global")
    capture = Capture(
        lambda: Publisher(target, database), lambda position: source, SystemClock(), start=lambda: Position("")
    )
    found = capture.run("0-1-4")
    assert (found.changes, found.transactions, found.place) == (1, 1, "0-1-4")


def test_a_pause_within_a_transaction_commits_not_even_the_one_before_it(broker: Broker, database: str) -> None:
    """What is in Kafka's transaction cannot be taken apart: the beginning of the second one would go with the first."""
    changes = four_changes(database)
    counts: list[int] = []
    items = [
        *changes[:2],
        SourceMark.COMMITTED,
        changes[2],
        SourceMark.QUIET,
        changes[3],
        SourceMark.COMMITTED,
        SourceMark.QUIET,
    ]
    source = Told(items, lambda: counts.append(capture.statistics().changes))
    target = Target(broker.bootstrap, database, "global")
    capture = Capture(
        lambda: Publisher(target, database), lambda position: source, ManualClock(), start=lambda: Position("")
    )
    capture.run("0-1-2")
    assert counts == [0, 0, 0, 0, 0, 0]
    assert capture.statistics().changes == 4


def test_a_server_that_is_away_for_a_while_is_waited_for_but_not_at_the_start(broker: Broker, database: str) -> None:
    target = Target(broker.bootstrap, database, "global")
    change = MaxwellMessage(database, "t", "insert", 1, "0-1-1", 1, 0, True, (), {"id": "1"})

    def broken() -> None:
        raise ConnectionLost("it went away")

    away = EnvironmentMissing("nobody answers")
    answers: list[Source | EnvironmentMissing] = [away]

    def source(position: Position) -> Source:
        answer = answers.pop(0)
        if isinstance(answer, EnvironmentMissing):
            raise answer
        return answer

    capture = Capture(lambda: Publisher(target, database), source, Hurried(), start=lambda: Position(""))
    with pytest.raises(EnvironmentMissing):
        capture.run("0-1-1")
    answers += [Told([SourceMark.QUIET], broken), away, away, Told([change, SourceMark.COMMITTED], lambda: None)]
    assert capture.run("0-1-1").changes == 1
    assert capture.statistics().breaks == 3
    answers += [Told([SourceMark.QUIET], broken), *[away] * 10]
    with pytest.raises(ConnectionLost, match="nobody answers"):
        capture.run("0-1-2")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_heard_behind_the_source_transaction_in_hand(number: int, broker: Broker, database: str) -> None:
    target = Target(broker.bootstrap, database, "global")
    changes = [MaxwellMessage(database, "t", "insert", 1, "0-1-1", 1, n, n == 2, (), {"id": f"{n}"}) for n in range(4)]
    items = [*changes[:2], changes[2], SourceMark.COMMITTED, changes[3], SourceMark.COMMITTED]
    looks: list[None] = []

    def look() -> None:
        looks.append(None)
        if len(looks) == 1:
            signal.raise_signal(number)

    capture = Capture(
        partial(Publisher, target, "t"), lambda position: Told(items, look), SystemClock(), start=Position("0-1-0")
    )
    with heard():
        assert capture.run().changes == 3
        assert len(committed(broker, database)[0]) == 3
        looks.clear()
        with pytest.raises(KeyboardInterrupt):
            capture.run("0-1-9")  # all up to there was wanted


@pytest.mark.long(seconds=6)
def test_ctrl_c_is_heard_while_kafka_does_not_answer(tmp_path: Path) -> None:
    with Broker(tmp_path) as broker:
        publisher = Publisher(Target(broker.bootstrap, "t", "global"), "t")
        publisher.send(MaxwellMessage("d", "t", "insert", 1, "0-1-1", 1, 0, True, (), {"id": "1"}))
    interrupt = threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT))
    interrupt.start()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        publisher.commit(Position("0-1-1"))
    assert time.monotonic() - began < 30
    interrupt.join()
    publisher.close()


def test_what_a_start_agreed_to_is_stored_before_anything_is_read(broker: Broker, database: str) -> None:
    """Less was asked for, nothing came of it, and the next start did not know of it."""
    target = Target(broker.bootstrap, database, "global")
    first = Publisher(target, database)
    first.commit(Position("0-1-0", held=Held(("a.*",))))
    first.close()

    class Agreed(Told):
        def position(self) -> Position:
            return super().position()._replace(held=Held(("a.b",)))

    source = Agreed([], lambda: None)
    Capture(partial(Publisher, target, database), lambda position: source, SystemClock(), start=Position("")).run(
        "0-1-0"
    )
    found = last_position({"bootstrap.servers": broker.bootstrap}, f"{database}.position")
    assert found == Position("0-1-0", held=Held(("a.b",)))


def test_the_last_position_is_found_behind_many_that_were_thrown_away(broker: Broker, database: str) -> None:
    publisher = Publisher(Target(broker.bootstrap, database), database)
    publisher.commit(Position("0-1-7"))
    for number in range(40):
        publisher.store(Position(f"0-1-{100 + number}"))
        publisher._producer.producer.flush(10)
        publisher.close()
    assert last_position({"bootstrap.servers": broker.bootstrap}, f"{database}.position") == Position("0-1-7")


@pytest.mark.parametrize("lags", [False, True])
def test_a_topic_that_would_forget_the_position_is_refused(
    lags: bool, broker: Broker, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if a list that lags lacks it."""
    broker.create_topic(f"{database}.position", partitions=1)
    if lags:
        monkeypatch.setattr(Admin, "topics", lambda admin: {})
    with pytest.raises(UsageError, match=r"cleanup.policy=delete, so it would forget it. Set it to compact"):
        Publisher(Target(broker.bootstrap, database), database)


def clients() -> int:
    """How many threads of librdkafka run in this process."""
    return sum(task.read_text().startswith("rdk:") for task in Path("/proc/self/task").glob("*/comm"))


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs Linux's /proc")
def test_a_publisher_that_is_gone_leaves_no_client_that_tries_to_connect(broker: Broker, database: str) -> None:
    gc.collect()
    gc.disable()
    try:
        before = clients()
        Publisher(Target(broker.bootstrap, database), database).close()
        assert clients() <= before
    finally:
        gc.enable()


def test_a_second_run_goes_on_where_the_first_one_ended(
    mariadb: MariaServer, broker: Broker, database: str, here: str
) -> None:
    for _ in range(3):
        shop(mariadb, database, 4)
        begin = "no place: the stored one counts" if _ else here
        target = Target(broker.bootstrap, database, "global")
        capture_of(mariadb, target, begin, f"{database}.*").run(mariadb.place())
    assert committed(broker, database)[0] == messages(mariadb.changes(here, f"{database}.*"))


def test_a_truncate_is_in_every_partition(mariadb: MariaServer, broker: Broker, database: str, here: str) -> None:
    mariadb.run(f"create table {database}.t (id int)", f"insert into {database}.t values (1)", f"truncate {database}.t")
    capture_of(mariadb, Target(broker.bootstrap, database), here, f"{database}.*").run(mariadb.place())
    last = [json.loads(part[-1][1])["type"] for part in committed(broker, database).values()]
    assert last == ["truncate"] * 4


def test_a_transaction_larger_than_allowed_goes_in_parts_and_each_change_once(
    mariadb: MariaServer, broker: Broker, database: str, here: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capturing, "LARGEST", 1000)
    mariadb.run(f"use {database}", "create table t (id int primary key)", "insert into t select seq from seq_1_to_3500")
    target = Target(broker.bootstrap, database, "global")
    stored: list[Position] = []

    class Dying(Publisher):
        def commit(self, position: Position) -> None:
            super().commit(position)
            stored.append(position)
            if len(stored) in (2, 4):
                raise KeyboardInterrupt

    capture = capture_of(mariadb, target, here, f"{database}.*", Dying)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            capture.run(mariadb.place())
    capture.run(mariadb.place())
    assert [position.rows for position in stored] == [1000, 2000, 3000, 0]
    assert committed(broker, database)[0] == messages(mariadb.changes(here, f"{database}.*"))


def test_a_change_that_is_too_large_for_the_topic_is_said_and_comes_once_the_topic_takes_it(
    mariadb: MariaServer, broker: Broker, database: str, here: str
) -> None:
    mariadb.run(
        f"use {database}",
        "create table t (id int primary key, c longtext)",
        "set group_concat_max_len = 10000000",
        "insert into t select 1, group_concat(md5(seq) separator '') from seq_1_to_90000",
        "insert into t values (2, 'b')",
    )
    target = Target(broker.bootstrap, database, "global")
    with pytest.raises(UsageError, match=r"larger than the topic .* takes. Set the topic's max.message.bytes higher"):
        capture_of(mariadb, target, here, f"{database}.*").run(mariadb.place())
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    larger = ConfigEntry("max.message.bytes", "10000000", incremental_operation=AlterConfigOpType.SET)
    (done,) = admin.incremental_alter_configs(
        [ConfigResource(ConfigResource.Type.TOPIC, database, incremental_configs=[larger])]
    ).values()
    done.result()
    capture_of(mariadb, target, here, f"{database}.*").run(mariadb.place())
    assert committed(broker, database)[0] == messages(mariadb.changes(here, f"{database}.*"))


def test_the_later_of_two_with_one_name_writes_and_the_earlier_one_is_told(
    mariadb: MariaServer, broker: Broker, database: str, here: str
) -> None:
    target = Target(broker.bootstrap, database, "global")
    shop(mariadb, database, 3)
    changes = mariadb.changes(here, f"{database}.*")
    earlier = Publisher(target, database)
    earlier.send(changes[0])
    later = Publisher(target, database)
    later.send(changes[1])
    later.commit(Position("0-1-2"))
    with pytest.raises(UsageError, match="Another process captures under the name"):
        earlier.commit(Position("0-1-1"))
    earlier.close()
    later.close()
    assert committed(broker, database)[0] == messages(changes[1:2])
    assert last_position({"bootstrap.servers": broker.bootstrap}, f"{database}.position") == Position("0-1-2")


def test_the_earlier_one_is_told_too_where_only_its_client_knows(broker: Broker, database: str) -> None:
    """The client says that it can do no more, and not why: the earlier one began anew, and fenced the later one."""
    target, change = (
        Target(broker.bootstrap, database, "global"),
        MaxwellMessage("a", "t", "insert", 1, "", 1, 0, True, (), {}),
    )
    earlier = Publisher(target, database)
    earlier.send(change)
    Publisher(target, database).close()
    with pytest.raises(KafkaException):
        earlier._producer.producer.commit_transaction(10)
    with pytest.raises(UsageError, match="Another process captures under the name"):
        earlier.send(change)
    earlier.close()
