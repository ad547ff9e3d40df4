"""Reading ranges of partitions from a broker: every record of them, whatever lies between, and nothing else."""

from __future__ import annotations

import importlib.util
import random
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from unittest.mock import patch

import pytest

if not importlib.util.find_spec("confluent_kafka") or not importlib.util.find_spec("kio"):
    pytest.skip("needs waterclock[kafka,broker]", allow_module_level=True)

from confluent_kafka import KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.broker.raw_client import RawClient
from tests.conformance import batches
from tests.spark.topics import Sender
from waterclock.errors import EnvironmentMissing, UsageError, WaterclockError
from waterclock.kafka import Offsets, Partition
from waterclock.kafka import client as clients
from waterclock.kafka.client import Client
from waterclock.streaming.toml.topics import Topics
from waterclock.streaming.topics import fetcher as fetching
from waterclock.streaming.topics.fetcher import Fetcher, client_for, resolved, settings_of
from waterclock.streaming.topics.offsets import Range
from waterclock.streaming.topics.records import UNREADABLE
from waterclock.testing import Broker, Error


def settings(servers: str, **client: str) -> dict[str, str]:
    told = {name.replace("_", "."): value for name, value in client.items()}
    return settings_of(
        Topics(servers, ("t",), {}, {}, "earliest", "latest", 10, "python", "fail", client=told, connector={})
    )


@pytest.fixture
def client(kafka_broker: Broker) -> Iterator[Client]:
    made = client_for(settings(kafka_broker.bootstrap), 10.0)
    yield made
    made.close()


@pytest.fixture
def topic(kafka_broker: Broker, kafka_topic: str) -> str:
    """A topic with two partitions."""
    name = f"{kafka_topic}-two"
    kafka_broker.create_topic(name, 2)
    return name


@pytest.fixture
def transactional(kafka_broker: Broker, topic: str) -> Sender:
    sender = Sender(kafka_broker.bootstrap, topic, transactional_id=topic)
    sender.producer.init_transactions(30)
    return sender


def read(client: Client, *ranges: Range, on_loss: str = "fail") -> dict[int, list[int]]:
    """The offsets that come out, by partition."""
    found: dict[int, list[int]] = {}
    for records in Fetcher(client, ranges, on_loss).records():
        found.setdefault(records.partition, []).extend(records.offsets)
    return found


def test_a_range_gives_its_own_records_and_no_other(client: Client, kafka_broker: Broker, topic: str) -> None:
    Sender(kafka_broker.bootstrap, topic).put(*map(str, range(10)))
    assert read(client, Range(topic, 0, 3, 7)) == {0: [3, 4, 5, 6]}
    (records,) = Fetcher(client, [Range(topic, 0, 9, 10)], "fail").records()
    assert (records.values, records.keys, records.headers) == ([b"9"], [None], [None])


def test_after_a_reading_nothing_is_fetched_any_more_not_even_after_one_that_was_broken_off(
    client: Client, kafka_broker: Broker, topic: str
) -> None:
    Sender(kafka_broker.bootstrap, topic).put(*map(str, range(10)))
    read(client, Range(topic, 0, 0, 5))
    assert client.consumer.assignment() == []
    with patch.object(fetching, "CHUNK", 2):
        reading = Fetcher(client, [Range(topic, 0, 0, 10)], "fail").records()
        assert next(reading).offsets == [0, 1]
        reading.close()
    assert client.consumer.assignment() == []


def test_one_client_reads_range_after_range_in_any_order(client: Client, kafka_broker: Broker, topic: str) -> None:
    for partition in range(2):
        Sender(kafka_broker.bootstrap, topic).put(*map(str, range(50)), partition=partition)
    chance = random.Random(7)
    for _ in range(30):
        start, other = chance.randrange(50), chance.randrange(50)
        both = [Range(topic, 0, start, chance.randrange(start, 50) + 1), Range(topic, 1, other, 50)]
        asked = chance.choice([both, both[:1], both[1:]])
        assert read(client, *asked) == {each.partition: list(range(each.start, each.end)) for each in asked}


def test_a_range_ends_where_its_last_offsets_are_no_records(client: Client, topic: str, transactional: Sender) -> None:
    transactional.in_transaction("a", "b", committed=True)  # 0 1, marker 2
    transactional.in_transaction("gone", "gone", committed=False)  # 3 4, marker 5
    assert client.ends([(topic, 0)]) == {(topic, 0): 6}
    for start, end, found in ((0, 6, [0, 1]), (0, 3, [0, 1]), (1, 5, [1]), (2, 3, []), (3, 6, []), (3, 4, [])):
        assert read(client, Range(topic, 0, start, end)) == ({0: found} if found else {})
    transactional.in_transaction("c", committed=True)
    assert read(client, Range(topic, 0, 2, 5), Range(topic, 1, 0, 0)) == {}


def test_an_open_transaction_ends_a_partition(client: Client, topic: str, transactional: Sender) -> None:
    transactional.in_transaction("a", committed=True)
    transactional.producer.begin_transaction()
    transactional.put("open")
    assert client.ends([(topic, 0)]) == {(topic, 0): 2}
    transactional.producer.commit_transaction(30)
    assert client.ends([(topic, 0)]) == {(topic, 0): 4}


def test_records_come_in_chunks_that_do_not_depend_on_the_answers(
    client: Client, kafka_broker: Broker, topic: str
) -> None:
    for partition in range(2):
        Sender(kafka_broker.bootstrap, topic).put(*map(str, range(25)), partition=partition)
    with patch.object(fetching, "CHUNK", 10):
        made = list(Fetcher(client, [Range(topic, p, 1, 24) for p in range(2)], "fail").records())
    for partition in range(2):
        chunks = [records.offsets for records in made if records.partition == partition]
        assert chunks == [list(range(1, 11)), list(range(11, 21)), [21, 22, 23]]


# loss ----------------------------------------------------------------------------------------------------


@pytest.fixture
def cut(kafka_broker: Broker, topic: str) -> Callable[[int], None]:
    def cut_before(offset: int) -> None:
        (done,) = admin.delete_records([TopicPartition(topic, 0, offset)]).values()
        done.result(30)

    admin = AdminClient({"bootstrap.servers": kafka_broker.bootstrap})
    return cut_before


def test_records_that_were_deleted_are_an_error_that_names_them(
    client: Client, kafka_broker: Broker, topic: str, cut: Callable[[int], None]
) -> None:
    Sender(kafka_broker.bootstrap, topic).put(*"0123456789")
    cut(6)
    with pytest.raises(WaterclockError, match=rf"records of {topic}/0 from offset 4 to 8 are gone before"):
        read(client, Range(topic, 0, 4, 8))


def test_with_go_on_what_is_left_is_read(
    client: Client, kafka_broker: Broker, topic: str, cut: Callable[[int], None]
) -> None:
    for partition in range(2):
        Sender(kafka_broker.bootstrap, topic).put(*"0123456789", partition=partition)
    cut(6)
    assert read(client, Range(topic, 0, 4, 8), Range(topic, 1, 2, 9), on_loss="go on") == {
        0: [6, 7],
        1: list(range(2, 9)),
    }
    assert read(client, Range(topic, 0, 2, 5), on_loss="go on") == {}
    assert read(client, Range(topic, 0, 20, 25), Range(topic, 1, 9, 10), on_loss="go on") == {1: [9]}


def test_a_range_beyond_the_end_is_loss_too(client: Client, kafka_broker: Broker, topic: str) -> None:
    Sender(kafka_broker.bootstrap, topic).put(*"012")
    for start in (1, 5):
        with (
            patch.object(fetching, "_GONE_AFTER_S", 0.2),
            pytest.raises(WaterclockError, match="are gone before they were read"),
        ):
            read(client, Range(topic, 0, start, 9))


def test_a_topic_that_is_not_known_for_a_moment_is_waited_for(client: Client, topic: str) -> None:
    # the client tells of it when it has looked for half a minute; here it is told at once
    each, unknown = Range(topic, 0, 0, 3), KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
    with patch.object(client, "ends", side_effect=[{}, {}, {each.place: 3}]):
        Fetcher(client, [each], "fail")._trouble(unknown, 0, each)
    assert [(at.partition, at.offset) for at in client.consumer.assignment()] == [(0, 0)]
    with patch.object(fetching, "_GONE_AFTER_S", 0.2), pytest.raises(WaterclockError, match="are gone before"):
        Fetcher(client, [each], "fail")._trouble(unknown, 0, each)


def test_an_end_that_is_not_told_again_yet_is_waited_for(client: Client, kafka_broker: Broker, topic: str) -> None:
    # a leader that has just been elected may not know for a moment that its last records are committed
    sender, asked = Sender(kafka_broker.bootstrap, topic), []
    sender.put(*"012")

    def ends(places: Iterable[Partition]) -> Offsets:
        if asked.append(places) or len(asked) == 2:
            sender.put("3", "4")
        return Client.ends(client, places)

    with patch.object(client, "ends", ends):
        assert read(client, Range(topic, 0, 1, 5), on_loss="go on") == {0: [1, 2, 3, 4]}
    assert len(asked) >= 2


def test_what_the_client_polls_while_it_asks_where_a_loss_ends_is_read_again(
    client: Client, kafka_broker: Broker, topic: str
) -> None:
    sender = Sender(kafka_broker.bootstrap, topic)
    sender.put(*"012", partition=1)

    def starts(places: Iterable[Partition]) -> Offsets:
        sender.put(*"345", partition=1)
        client.consumer.poll(5)  # as it does where no answer comes at once
        return Client.starts(client, places)

    with patch.object(client, "starts", starts), patch.object(fetching, "_GONE_AFTER_S", 0.2):
        assert read(client, Range(topic, 0, 7, 9), Range(topic, 1, 0, 6), on_loss="go on") == {1: list(range(6))}


def test_a_broker_that_falls_silent_ends_the_reading_in_a_sentence(kafka_broker_factory: Callable[..., Broker]) -> None:
    broker = kafka_broker_factory()
    broker.create_topic("t")
    Sender(broker.bootstrap, "t").put(*"012")
    client = client_for(settings(broker.bootstrap), 1.0)
    assert read(client, Range("t", 0, 0, 3)) == {0: [0, 1, 2]}
    broker.close()
    with pytest.raises(EnvironmentMissing, match=r"no broker answers at .*: start it, or mend 'servers' in \[source\]"):
        read(client, Range("t", 0, 0, 3))
    client.close()


# what a pipeline asks of a broker ------------------------------------------------------------------------


def test_offsets_are_found_by_time_by_name_and_by_number(client: Client, kafka_broker: Broker, topic: str) -> None:
    for number in range(3):
        Sender(kafka_broker.bootstrap, topic).put(str(number), timestamp=1000 + number * 10)
    places = [(topic, 0), (topic, 1)]
    assert [resolved(client, where, places)[topic, 0] for where in ("earliest", "latest", 1010, 1011, 9999)] == [
        0,
        3,
        1,
        2,
        3,
    ]
    assert resolved(client, {topic: {1: 0, 0: 2}}, places) == {(topic, 0): 2, (topic, 1): 0}
    Sender(kafka_broker.bootstrap, topic).put("of the other partition", partition=1)
    assert resolved(client, {topic: {0: 2}}, places) == {(topic, 0): 2, (topic, 1): 0}


def test_what_keeps_the_promises_wins_over_whatever_was_set() -> None:
    ours = settings("h:1", isolation_level="read_uncommitted", auto_offset_reset="latest", bootstrap_servers="h:2")
    assert (ours["isolation.level"], ours["auto.offset.reset"], ours["bootstrap.servers"]) == (
        "read_committed",
        "error",
        "h:1",
    )


def test_a_refusal_that_is_over_ends_nothing(client: Client, kafka_broker: Broker, topic: str) -> None:
    Sender(kafka_broker.bootstrap, topic).put(*"012")
    client.note(KafkaError(KafkaError._AUTHENTICATION))  # as of a broker that was just going down
    assert client.ends([(topic, 0)]) == {(topic, 0): 3}
    with kafka_broker.faults.answer("ListOffsets", Error.LEADER_NOT_AVAILABLE, times=2):
        assert client.ends([(topic, 0)]) == {(topic, 0): 3}
    client.note(KafkaError(KafkaError._AUTHENTICATION))
    assert read(client, Range(topic, 0, 0, 3)) == {0: [0, 1, 2]}
    assert client.refused() is None


def test_a_header_whose_name_is_no_text_stops_nobody(client: Client, kafka_broker: Broker, topic: str) -> None:
    Sender(kafka_broker.bootstrap, topic).put(*map(str, range(50)), headers={"who": "x"})  # enough to warm Python up
    with RawClient(kafka_broker.bootstrap) as raw, patch.object(batches, "encoded", with_a_header):
        assert raw.produce(topic, b"50", b"51") == (0, 50)
    (records,) = Fetcher(client, [Range(topic, 0, 0, 52)], "fail").records()
    assert records.values == [str(number).encode() for number in range(52)]
    assert records.headers == [[("who", b"x")]] * 50 + [UNREADABLE] * 2


def with_a_header(record: batches.Record, place: int, first_ms: int) -> bytes:
    """A record with the header 0xFF = "x"."""
    number = batches.varint
    header = number(1) + batches.sized(b"\xff") + batches.sized(b"x")
    body = b"\0" + number(0) + number(place) + batches.sized(None) + batches.sized(record.value) + header
    return number(len(body)) + body


def test_a_client_tells_which_part_of_the_pipelines_file_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "_ANSWER_S", 0.5)
    with pytest.raises(UsageError, match=r"^\[source.client\]: the Kafka client cannot be made: .*no.such.setting"):
        client_for(settings("127.0.0.1:1", no_such_setting="1"), 0.0)
    client = client_for(settings("127.0.0.1:1"), 0.0)
    with pytest.raises(EnvironmentMissing, match=r"no broker answers at 127\.0\.0\.1:1 .*mend 'servers' in \[source\]"):
        client.partitions(["t"])
    client.note(KafkaError(KafkaError._AUTHENTICATION))
    assert re.search(r"refuses the client: .* Look at \[source.client\]$", str(client.refused()))
    client.close()


def test_without_confluent_kafka_the_sentence_says_how_to_get_it() -> None:
    script = "import sys; sys.modules['confluent_kafka'] = None\nimport waterclock.streaming.topics.fetcher"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert "EnvironmentMissing: confluent_kafka is missing: pip install 'confluent-kafka>=" in done.stderr
