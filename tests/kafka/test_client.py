"""What a reader asks a broker: partitions, offsets, times; a broker that is away is waited for, a refusal is not. Topics:
listed, made once, looked at; what Kafka refuses is a sentence.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import KafkaError, Producer

from tests.samples import free_port
from waterclock.broker import Access
from waterclock.errors import EnvironmentMissing, UsageError
from waterclock.kafka import admin as admins
from waterclock.kafka import client as clients
from waterclock.kafka import patience
from waterclock.kafka.admin import Admin
from waterclock.kafka.client import Client, Remedies
from waterclock.kafka.settings import READING, base_settings
from waterclock.relay.wire.topics import Topics, prepare
from waterclock.testing import Broker, Error, ManualClock

REMEDIES = Remedies("THE SETTINGS", "THE SERVERS")


def client_of(servers: str, patience_s: float, clock: ManualClock | None = None, **given: str) -> Client:
    settings = {name.replace("_", "."): value for name, value in given.items()}
    return Client({"group.id": "g", **base_settings(servers, settings), **READING}, patience_s, REMEDIES, clock)


def put(broker: Broker, topic: str, *values: str, partition: int = 0, timestamp: int = 0) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0, "linger.ms": 0})
    for value in values:
        producer.produce(topic, value, partition=partition, timestamp=timestamp)
    assert producer.flush(30) == 0


@pytest.fixture
def client(kafka_broker: Broker) -> Iterator[Client]:
    made = client_of(kafka_broker.bootstrap, 10.0)
    yield made
    made.close()


@pytest.fixture
def topic(kafka_broker: Broker, kafka_topic: str) -> str:
    """A topic with two partitions."""
    name = f"{kafka_topic}-two"
    kafka_broker.create_topic(name, 2)
    return name


def test_partitions_and_ends_are_told_and_a_topic_that_is_gone_is_left_out(
    client: Client, kafka_broker: Broker, topic: str
) -> None:
    put(kafka_broker, topic, *"012", partition=1)
    assert client.partitions([topic, "nobody-made-it"]) == [(topic, 0), (topic, 1)]
    assert client.ends([(topic, 0), (topic, 1), (topic, 7)]) == {(topic, 0): 0, (topic, 1): 3}
    assert client.ends([]) == {}


def test_an_offset_is_found_by_time_and_the_end_where_nothing_is_later(
    client: Client, kafka_broker: Broker, topic: str
) -> None:
    for number in range(3):
        put(kafka_broker, topic, str(number), timestamp=1000 + number * 10)
    both = [(topic, 0), (topic, 1)]
    found = [client.at(both, time_ms)[topic, 0] for time_ms in (0, 1000, 1010, 1011, 9999)]
    assert found == [0, 0, 1, 2, 3]
    assert client.starts(both) == {(topic, 0): 0, (topic, 1): 0}


@pytest.fixture
def short_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "_ANSWER_S", 0.5)


@pytest.mark.usefixtures("short_answers")
def test_no_broker_is_told_with_the_remedy() -> None:
    client = client_of("127.0.0.1:1", 0.0)
    with pytest.raises(EnvironmentMissing, match=r"no broker answers at 127\.0\.0\.1:1 .*: start it, or mend THE SERV"):
        client.partitions(["t"])
    client.close()


def test_a_setting_that_is_none_is_told_by_its_name() -> None:
    with pytest.raises(UsageError, match=r"^THE SETTINGS: the Kafka client cannot be made: .*no.such.setting"):
        client_of("127.0.0.1:1", 0.0, no_such_setting="1")


@pytest.mark.usefixtures("short_answers")
def test_a_wrong_password_is_told_at_once(kafka_broker_factory: Callable[..., Broker]) -> None:
    broker = kafka_broker_factory(access=Access(users=("ann:right",)))
    sasl = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN", "sasl_username": "ann"}
    good = client_of(broker.bootstrap, 10.0, **sasl, sasl_password="right")
    broker.create_topic("t")
    assert good.partitions(["t"]) == [("t", 0)]
    good.close()
    wrong = client_of(broker.bootstrap, 60.0, ManualClock(), **sasl, sasl_password="wrong")
    with pytest.raises(UsageError, match=r"refuses the client: .*\. Look at THE SETTINGS$"):
        wrong.partitions(["t"])
    wrong.close()


def test_a_broker_that_is_not_ready_is_asked_again(client: Client, kafka_broker: Broker, topic: str) -> None:
    with kafka_broker.faults.answer("ListOffsets", Error.LEADER_NOT_AVAILABLE, times=2) as fault:
        assert client.ends([(topic, 0)]) == {(topic, 0): 0}
    assert fault.met >= 1


def test_a_refusal_that_is_over_ends_nothing(client: Client, kafka_broker: Broker, topic: str) -> None:
    client.note(KafkaError(KafkaError._AUTHENTICATION))  # as of a broker that was just going down
    assert client.ends([(topic, 0)]) == {(topic, 0): 0}
    assert client.refused() is None


@pytest.fixture
def admin(kafka_broker: Broker) -> Admin:
    return Admin(base_settings(kafka_broker.bootstrap, {}))


def test_topics_are_listed_with_their_partitions(admin: Admin, kafka_broker: Broker, kafka_topic: str) -> None:
    kafka_broker.create_topic(f"{kafka_topic}-more", 3)
    topics = admin.topics()
    assert (topics[kafka_topic], topics[f"{kafka_topic}-more"]) == (1, 3)


def test_a_topic_is_made_with_its_settings_and_again_is_the_same(admin: Admin, kafka_topic: str) -> None:
    name = f"{kafka_topic}-made"
    admin.make(name, 2, {"cleanup.policy": "compact"})
    admin.make(name, 5, {"cleanup.policy": "delete"})  # as if somebody had made it meanwhile
    assert admin.topics()[name] == 2
    assert admin.settings(name)["cleanup.policy"] == "compact"


def test_a_topic_that_kafka_does_not_make_is_told_by_its_name(admin: Admin) -> None:
    with pytest.raises(UsageError, match=r"^Kafka does not make the topic a b: .*\.$"):
        admin.make("a b", 1)


def test_settings_that_kafka_does_not_show_are_told_by_their_topic(
    admin: Admin, kafka_broker: Broker, kafka_topic: str
) -> None:
    with (
        kafka_broker.faults.answer("DescribeConfigs", Error.TOPIC_AUTHORIZATION_FAILED),
        pytest.raises(UsageError, match=rf"^Kafka does not show the settings of the topic {kafka_topic}: .*\.$"),
    ):
        admin.settings(kafka_topic)


def test_a_topic_that_was_made_just_now_and_is_not_known_everywhere_yet_is_asked_for_again(
    admin: Admin, kafka_broker: Broker, kafka_topic: str
) -> None:
    """Apache Kafka answers CreateTopics before its own metadata has the topic: a relay that had made its topics ended."""
    with kafka_broker.faults.answer("DescribeConfigs", Error.UNKNOWN_TOPIC_OR_PARTITION, times=2):
        assert admin.settings(kafka_topic)["cleanup.policy"] == "delete"


def test_a_topic_that_is_not_there_is_told_after_a_while(admin: Admin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admins, "_MADE_WITHIN_S", 0.2)
    with pytest.raises(UsageError, match=r"^Kafka does not show the settings of the topic nowhere: "):
        admin.settings("nowhere")


def test_a_topic_that_was_there_and_is_gone_again_is_nothing_for_the_user_to_mend(
    admin: Admin, kafka_broker: Broker, kafka_topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A leader that had just made it was replaced by one that never had it, and a pipeline ended as if misused."""
    monkeypatch.setattr(admins, "_MADE_WITHIN_S", 0.2)
    topics = Topics.of(f"{kafka_topic}-gone")
    prepare(admin, topics, 1, kafka_broker.bootstrap)
    with (
        kafka_broker.faults.answer("DescribeConfigs", Error.UNKNOWN_TOPIC_OR_PARTITION, times=None),
        pytest.raises(EnvironmentMissing, match=r"It was there: another broker leads, which never had it\.$"),
    ):
        prepare(admin, topics, 1, kafka_broker.bootstrap)


def test_no_kafka_is_told_with_its_address_and_with_a_way_to_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admins, "CALL_S", 0.2)
    with pytest.raises(
        EnvironmentMissing, match=r"^There is no Kafka to talk to at 127\.0\.0\.1:1: .*`waterclock broker` starts one"
    ):
        Admin(base_settings("127.0.0.1:1", {}), patience_s=0.2).topics()


@pytest.mark.parametrize("patience_s", [1.0, 9.0])
def test_a_kafka_that_is_away_is_said_when_the_wait_begins_and_once(
    patience_s: float, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A command said nothing for thirty seconds, and then that there is no Kafka. A short wait is not worth a word."""
    monkeypatch.setattr(admins, "CALL_S", 0.2)
    monkeypatch.setattr(patience, "AGAIN_AFTER_S", 3.0)
    servers = f"127.0.0.1:{free_port()}"
    with pytest.raises(EnvironmentMissing):
        Admin(base_settings(servers, {}), patience_s, clock=ManualClock()).topics()
    said = [record.getMessage() for record in caplog.records if record.name == "waterclock.kafka"]
    assert [line.partition(" s: ")[0] for line in said] == [
        f"waiting for Kafka at {servers}, for up to {each:.0f}" for each in (patience_s,) if each > 5
    ]


@pytest.mark.parametrize(
    ("words", "wait_s"), [(["send", "topic", "hello", "--delay", "1s"], 30), (["read", "topic"], 30)]
)
def test_a_command_says_at_its_beginning_that_it_waits_for_kafka(words: list[str], wait_s: int) -> None:
    servers = f"127.0.0.1:{free_port()}"
    asked = [sys.executable, "-m", "waterclock.cli", "relay", *words, "--bootstrap", servers]
    with subprocess.Popen(asked, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        line = next(iter(process.stderr))
        process.kill()
    assert line.startswith(f"waiting for Kafka at {servers}, for up to {wait_s} s: ")


def test_a_kafka_that_goes_away_is_no_refusal(admin: Admin, kafka_broker: Broker, kafka_topic: str) -> None:
    with (
        kafka_broker.faults.answer("CreateTopics", Error.REQUEST_TIMED_OUT),
        pytest.raises(EnvironmentMissing, match=r"^Kafka does not make the topic later: .*\.$"),
    ):
        admin.make("later", 1)
