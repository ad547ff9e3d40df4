"""The admin clients that people have: confluent-kafka, kafka-python, aiokafka, each through topics and settings."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("kio")
pytest.importorskip("crc32c")

from waterclock.broker import Access, Broker


@pytest.fixture
def bootstrap() -> Iterator[str]:
    with Broker() as broker:
        yield broker.bootstrap


def results(futures: dict[Any, Any]) -> list[Any]:
    return [future.result(20) for future in futures.values()]


def test_confluent_kafka(bootstrap: str) -> None:
    admin = pytest.importorskip("confluent_kafka.admin")
    kafka = pytest.importorskip("confluent_kafka")
    client = admin.AdminClient({"bootstrap.servers": bootstrap})
    topic = admin.ConfigResource("topic", "t")
    results(client.create_topics([admin.NewTopic("t", 2, config={"retention.ms": "7"})]))
    results(client.create_partitions([admin.NewPartitions("t", 3)]))
    (answer,) = results(client.describe_configs([topic]))
    assert (answer["retention.ms"].value, answer["retention.ms"].source) == ("7", 1)
    entry = admin.ConfigEntry("retention.ms", "8", incremental_operation=admin.AlterConfigOpType.SET)
    results(client.incremental_alter_configs([admin.ConfigResource("topic", "t", incremental_configs=[entry])]))
    (answer,) = results(client.describe_configs([topic]))
    assert answer["retention.ms"].value == "8"
    assert client.describe_cluster().result(20).controller.id == 1
    assert len(client.describe_topics(kafka.TopicCollection(["t"]))["t"].result(20).partitions) == 3
    change = admin.UserScramCredentialUpsertion(
        "carol", admin.ScramCredentialInfo(admin.ScramMechanism.SCRAM_SHA_256, 4096), b"pw", b"12345678"
    )
    results(client.alter_user_scram_credentials([change]))
    assert list(client.describe_user_scram_credentials().result(20)) == ["carol"]
    results(client.delete_topics(["t"]))
    assert client.list_topics(timeout=20).topics == {}


@pytest.mark.servers  # it leaves sockets behind, which fail whichever test runs when they are collected
def test_kafka_python(bootstrap: str) -> None:
    admin = pytest.importorskip("kafka.admin")
    errors = pytest.importorskip("kafka.errors")
    client = admin.KafkaAdminClient(bootstrap_servers=bootstrap)
    client.create_topics([admin.NewTopic("t", 2, 1)])
    with pytest.raises(errors.TopicAlreadyExistsError):
        client.create_topics([admin.NewTopic("t", 2, 1)])
    client.create_partitions({"t": admin.NewPartitions(3)})
    assert [len(topic["partitions"]) for topic in client.describe_topics(["t"])] == [3]
    resource = admin.ConfigResource(admin.ConfigResourceType.TOPIC, "t", configs={"retention.ms": "7"})
    client.alter_configs([resource])
    assert "retention.ms" in str(client.describe_configs([resource]))
    assert client.describe_cluster()["controller_id"] == 1
    client.delete_topics(["t"])
    assert client.list_topics() == []
    client.close()


def test_aiokafka(bootstrap: str) -> None:
    admin = pytest.importorskip("aiokafka.admin")
    kinds = pytest.importorskip("aiokafka.admin.config_resource")

    async def talk() -> None:
        client = admin.AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await client.start()
        await client.create_topics([admin.NewTopic("t", 2, 1)])
        await client.create_partitions({"t": admin.NewPartitions(3)})
        assert [len(topic["partitions"]) for topic in await client.describe_topics(["t"])] == [3]
        resource = kinds.ConfigResource(kinds.ConfigResourceType.TOPIC, "t", configs={"retention.ms": "7"})
        await client.alter_configs([resource])
        assert "retention.ms" in str(await client.describe_configs([resource]))
        await client.delete_topics(["t"])
        assert await client.list_topics() == []
        await client.close()

    asyncio.run(talk())


def test_confluent_kafka_with_acls() -> None:
    """ACLs made, found and taken away; what a producer and a consumer are told that may not."""
    admin = pytest.importorskip("confluent_kafka.admin")
    kafka = pytest.importorskip("confluent_kafka")
    settings = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:admin",
    }
    with Broker(access=Access(users=("admin:a", "alice:b")), settings=settings) as broker:
        login = {
            "bootstrap.servers": broker.bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
        }
        client = admin.AdminClient({**login, "sasl.username": "admin", "sasl.password": "a"})
        alice = {**login, "sasl.username": "alice", "sasl.password": "b"}
        results(client.create_topics([admin.NewTopic("t", 1)]))
        assert produced(kafka, alice) == kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED
        acl = admin.AclBinding(
            admin.ResourceType.TOPIC, "t", admin.ResourcePatternType.LITERAL, "User:alice", "*",
            admin.AclOperation.WRITE, admin.AclPermissionType.ALLOW,
        )  # fmt: skip
        results(client.create_acls([acl]))
        every = admin.AclBindingFilter(
            admin.ResourceType.ANY, None, admin.ResourcePatternType.ANY, None, None, admin.AclOperation.ANY,
            admin.AclPermissionType.ANY,
        )  # fmt: skip
        assert client.describe_acls(every).result(20) == [acl]
        assert produced(kafka, alice) is None
        hers = admin.AdminClient(alice)
        with pytest.raises(kafka.KafkaException) as refused:
            results(hers.create_acls([acl]))
        assert refused.value.args[0].code() == kafka.KafkaError.CLUSTER_AUTHORIZATION_FAILED
        assert results(client.delete_acls([every])) == [[acl]]
        assert client.describe_acls(every).result(20) == []


def produced(kafka: Any, login: dict[str, Any]) -> Any:
    """The code of what a producer is told; None: it is written."""
    told: list[Any] = []
    producer = kafka.Producer({**login, "message.timeout.ms": 20_000})
    producer.produce("t", b"x", on_delivery=lambda error, message: told.append(error and error.code()))
    producer.flush(20)
    return told[0]
