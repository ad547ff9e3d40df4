"""A topic for each table: twenty tables, twenty topics, one capture, and one Kafka transaction over all of them."""

from __future__ import annotations

import json
from secrets import token_hex

import pytest
from confluent_kafka.admin import AdminClient

from tests.cdc.mariadb import MariaServer
from tests.cdc.topics import messages
from tests.kafka.reader import committed
from waterclock import cli
from waterclock.cdc.position import Position
from waterclock.cdc.produce import ONE, PER_TABLE, Publisher, Target, TopicNames, topic_of
from waterclock.changes.maxwell import MaxwellMessage
from waterclock.errors import UsageError
from waterclock.kafka.admin import Admin
from waterclock.testing import Broker


@pytest.mark.mariadb
@pytest.mark.parametrize(
    ("order", "count"),
    [
        ("key", 4),
        ("global", 4),
        *(pytest.param(order, 20, marks=pytest.mark.long(seconds=6)) for order in ("key", "global")),
    ],
)
@pytest.mark.long(seconds=3)
def test_twenty_tables_have_twenty_topics_and_each_is_in_order(
    order: str, count: int, mariadb: MariaServer, broker: Broker, database: str, here: str
) -> None:
    tables = [f"t{n}" for n in range(count)]
    mariadb.run(f"use {database}", *[f"create table {table} (id int primary key, c int)" for table in tables])
    for n in range(3):
        rows = [f"insert into {table} values ({n}, {n}), ({n + 10}, 0)" for table in tables]
        more = [f"update {table} set c = c + 1" for table in tables[::3]]
        mariadb.run(f"use {database}", "begin", *rows, *more, "commit", f"truncate t{n}")
    command = [
        "cdc",
        f"mysql://root@127.0.0.1:{mariadb.port}/{database}",
        "--to",
        f"kafka://{broker.bootstrap}/{database}",
    ]
    assert (
        cli.main([*command, "--topics", "per-table", "--order", order, "--once", "--from", here, "--partitions", "2"])
        == 0
    )
    changes = mariadb.changes(here, f"{database}.*")
    for table in tables:
        found = committed(broker, f"{database}.{database}.{table}")
        wanted = messages(change for change in changes if change.table == table)
        if order == "global":
            assert found == {0: wanted}
            continue
        for part in found.values():
            for key in {key for key, _ in part}:
                assert [each for each in part if each[0] == key] == [each for each in wanted if each[0] == key]
        truncates = sum(b'"truncate"' in value for _, value in wanted)
        assert sum(map(len, found.values())) == len(wanted) + truncates  # which are in both partitions
    there = AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=10).topics
    assert database not in there
    assert f"{database}.position" in there


def change(database: str, table: str, n: int = 1) -> MaxwellMessage:
    return MaxwellMessage(database, table, "insert", 1, f"0-1-{n}", n, 0, True, ("id",), {"id": str(n)})


def test_what_was_sent_to_several_topics_is_there_together_or_not_at_all(broker: Broker) -> None:
    target = Target(broker.bootstrap, "together", topics=PER_TABLE)
    publisher = Publisher(target, "together")
    for table in ("a", "b"):
        publisher.send(change("d", table))
    publisher.close()
    again = Publisher(target, "together")
    assert again.stored is None
    assert [committed(broker, f"together.d.{table}") for table in ("a", "b")] == [{}, {}]
    again.send(change("d", "b"))
    again.commit(Position("0-1-1"))
    again.close()
    assert committed(broker, "together.d.a") == {}
    assert sum(map(len, committed(broker, "together.d.b").values())) == 1


@pytest.mark.parametrize("topics", [ONE, PER_TABLE])
def test_changes_go_in_batches_that_a_topic_takes_also_one_that_is_met_late(broker: Broker, topics: str) -> None:
    """Each was small enough, and a hundred of them in one batch of librdkafka's were not: refused at every start."""
    name = f"narrow-{topics}"
    admin = Admin({"bootstrap.servers": broker.bootstrap})
    there = [f"{name}.d.wide", f"{name}.d.narrow"] if topics == PER_TABLE else [name]
    for topic in there:
        admin.make(topic, 1, {} if topic.endswith("wide") else {"max.message.bytes": "20000"})
    publisher = Publisher(Target(broker.bootstrap, name, topics=topics), name)
    sent = [
        change("d", "narrow" if n else "wide", n)._replace(data={"id": str(n), "v": f'"{token_hex(200)}"'})
        for n in range(300)
    ]
    for one in sent:
        publisher.send(one)
    publisher.commit(Position("0-1-1"))
    publisher.close()
    assert [row for topic in there for row in committed(broker, topic)[0]] == messages(sent)


ODD = ["a b", "a.b", "a_b", "größe", "表", "a/b", "-", "x" * 64, "A_B", "..", "a$b"]


@pytest.mark.long(seconds=6)
def test_tables_with_odd_names_have_topics_of_their_own_that_kafka_takes(broker: Broker) -> None:
    publisher = Publisher(Target(broker.bootstrap, "odd", "global", topics=PER_TABLE), "odd")
    for table in ODD:
        publisher.send(change("my.shop", table))
    publisher.commit(Position("0-1-1"))
    publisher.close()
    for table in ODD:
        ((_, value),) = committed(broker, topic_of("odd", "my.shop", table))[0]
        assert json.loads(value)["table"] == table


def test_names_that_need_no_change_have_none() -> None:
    assert topic_of("shop", "till", "Item_2-b") == "shop.till.Item_2-b"
    assert topic_of("shop", "till", "a b") == "shop.till.a_b-806c5cd3"


def test_two_tables_that_kafka_does_not_tell_apart_are_refused() -> None:
    names = TopicNames("shop", ("shop.a.position", ""))
    assert names.of("a_b", "c") == names.of("a_b", "c") == "shop.a_b.c"
    with pytest.raises(
        UsageError, match=r"The table a.b_c would have the topic shop.a.b_c, .* that of the table a_b.c. Leave"
    ):
        names.of("a", "b_c")
    with pytest.raises(UsageError, match=r"not tell from that of the topic shop.a.position of this capture"):
        names.of("a", "position")


def test_a_name_that_is_too_long_for_kafka_is_refused() -> None:
    with pytest.raises(UsageError, match=r"with 264 letters, and Kafka takes 249. Leave the table out"):
        topic_of("s" * 134, "d" * 64, "t" * 64)


def test_a_table_whose_topic_has_several_partitions_is_refused_where_order_is_global(broker: Broker) -> None:
    broker.create_topic("wide.d.t", partitions=3)
    publisher = Publisher(Target(broker.bootstrap, "wide", "global", topics=PER_TABLE), "wide")
    with pytest.raises(UsageError, match=r"The topic wide.d.t has 3 partitions, and a global order needs exactly one"):
        publisher.send(change("d", "t"))
    publisher.close()
