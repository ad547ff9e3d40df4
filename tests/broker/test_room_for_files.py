"""A process may open so many files: who makes topics leaves some for the others."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator

import pytest

pytest.importorskip("kio")
pytest.importorskip("confluent_kafka")

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from tests.broker.raw_client import RawClient
from tests.processes import alone
from waterclock.broker import Broker
from waterclock.broker.folder.making import _open_files
from waterclock.errors import UsageError

SPARED = 60
ROOM = 60


@pytest.fixture
def others() -> list[int]:
    """Other files than partitions that are open: their number."""
    return [0]


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch, others: list[int]) -> Iterator[Broker]:
    """One that may make ROOM partitions. What else the tests' process has open comes and goes, so it is not counted."""
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    spared = min(SPARED, most // 4)
    with Broker() as broker:
        topics = broker.inside.topics
        monkeypatch.setattr("waterclock.broker.folder.making.SPARED", SPARED)
        monkeypatch.setattr(
            "waterclock.broker.folder.making._open_files",
            lambda: most - spared - ROOM + others[0] + len(list(topics.partitions())),
        )
        yield broker


def raised_by() -> int:
    """By how much fifty open files raise the number, in a process where nothing else is opened or closed."""
    before = _open_files()
    held = [os.open(os.devnull, os.O_RDONLY) for _ in range(50)]
    after = _open_files()
    for file in held:
        os.close(file)
    return after - before


def test_open_files_are_told_by_the_number_of_the_next_one() -> None:
    assert alone(raised_by) >= 50


def _error(future: object) -> str:
    with pytest.raises(KafkaException) as raised:
        future.result(10)  # type: ignore[attr-defined]
    return f"{raised.value.args[0].name()}: {raised.value.args[0].str()}"


def test_partitions_beyond_what_the_process_may_hold_open_are_refused_and_others_are_served(broker: Broker) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 2})
    few = admin.create_topics([NewTopic("few", 10)])
    few["few"].result(10)
    many = [NewTopic(f"many{number}", 5) for number in range(2 * ROOM // 5)]
    refused = [topic for topic, future in admin.create_topics(many).items() if future.exception(10) is not None]
    assert ROOM // 5 / 2 < len(refused) < len(many)
    said = _error(admin.create_topics([NewTopic("more", 2 * ROOM)])["more"])
    assert said.startswith("POLICY_VIOLATION: 120 partitions more do not fit: each holds a file open")
    grown = admin.create_partitions([NewPartitions("few", 3 * ROOM)])
    assert _error(grown["few"]).startswith("POLICY_VIOLATION: 170 partitions more do not fit")
    with pytest.raises(UsageError, match="120 partitions more do not fit"):
        broker.create_topic("more", 2 * ROOM)
    clients = [RawClient(broker.bootstrap) for _ in range(SPARED // 6)]
    for client in clients:
        client.produce("few", b"served")
        client.close()
    assert broker.call(lambda: "more" not in broker.inside.topics.by_name)


def test_what_was_asked_for_and_is_not_made_yet_counts(broker: Broker) -> None:
    def both() -> tuple[str | None, str | None]:
        topics = broker.inside.topics
        before = topics.maker.why_no_room(ROOM // 2 - 5)
        topics.create("a", ROOM // 2, {})
        return before, topics.maker.why_no_room(ROOM // 2 + 5)

    before, after = broker.call(both)
    assert before is None
    assert after is not None


def test_a_topic_that_is_made_because_it_is_asked_for_is_not_made_where_it_does_not_fit(
    broker: Broker, others: list[int]
) -> None:
    broker.create_topic("t", ROOM - 20)
    found = broker.call(lambda: [broker.inside.topics.maker.why_no_room(number) is None for number in (20, 21)])
    assert found == [True, False]
    others[0] = 20
    metadata = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 2}).list_topics("asked", 5)
    assert metadata.topics["asked"].error is not None
    assert broker.call(lambda: "asked" not in broker.inside.topics.by_name)
