"""`node.id`: the broker's id that clients see, kept in its folder; a pair takes any two that differ."""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("kio", reason="the broker needs waterclock[broker]")
pytest.importorskip("crc32c", reason="the broker needs waterclock[broker]")

from tests.broker.replication.pairs import Pair, client, high, log_bytes, partition, until, values
from waterclock.broker import Broker
from waterclock.broker.folder.identity import Identity, peer_of
from waterclock.broker.store import Entry, Store
from waterclock.broker.wire.errors import Error
from waterclock.errors import UsageError

SEVEN = {"node.id": "7"}


def brokers_of(broker: Broker) -> tuple[int, dict[int, str]]:
    """Who leads, and each broker's address, by Metadata."""
    with client(broker) as raw:
        said = raw.ask("Metadata", 4, topics=[], allow_auto_topic_creation=False)
    return said.controller_id, {b.node_id: f"{b.host}:{b.port}" for b in said.brokers}


def started(folder: Path, *options: str) -> str:
    """What the command says when it cannot start."""
    command = [sys.executable, "-m", "waterclock.cli", "broker", "--port", "0", "--data", str(folder), *options]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 2, ended.stderr
    return ended.stderr


def test_without_a_node_id_the_broker_is_1(tmp_path: Path) -> None:
    with Broker(tmp_path) as broker:
        assert brokers_of(broker) == (1, {1: broker.bootstrap})


def test_a_node_id_is_what_clients_see_and_is_kept_in_the_folder(tmp_path: Path) -> None:
    with Broker(tmp_path, settings=SEVEN) as broker:
        assert brokers_of(broker) == (7, {7: broker.bootstrap})
    with Broker(tmp_path) as broker:
        assert brokers_of(broker) == (7, {7: broker.bootstrap})
        with client(broker) as raw:
            resource: dict[str, Any] = {"resource_type": 4, "resource_name": "7", "configuration_keys": ["node.id"]}
            said = raw.ask(
                "DescribeConfigs", 4, resources=[resource], include_synonyms=False, include_documentation=False
            )
        assert [(row.name, row.value, row.read_only) for row in said.results[0].configs] == [("node.id", "7", True)]


def test_a_real_client_sees_the_node_id() -> None:
    admin = pytest.importorskip("confluent_kafka.admin")
    with Broker(settings=SEVEN) as broker:
        broker.create_topic("t")
        said = admin.AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=20)
        assert [(one.id, f"{one.host}:{one.port}") for one in said.brokers.values()] == [(7, broker.bootstrap)]
        assert said.controller_id == said.topics["t"].partitions[0].leader == 7


def test_a_folder_that_was_another_brokers_is_refused_with_a_sentence(tmp_path: Path) -> None:
    Broker(tmp_path / "seven", settings=SEVEN).start().close()
    Broker(tmp_path / "one").start().close()
    with pytest.raises(UsageError, match=r"is broker 7's, and cannot be broker 8's: leave node\.id out"):
        Broker(tmp_path / "seven", settings={"node.id": "8"}).start()
    said = started(tmp_path / "one", "--set", "node.id=2")
    assert "is broker 1's, and cannot be broker 2's: leave node.id out, or choose another data folder (--data" in said
    Broker(tmp_path / "seven", settings=SEVEN).start().close()  # neither attempt changed or locked anything
    Broker(tmp_path / "one", settings={"node.id": "1"}).start().close()


@pytest.mark.parametrize("wrong", ["-1", "x", str(2**31)])
def test_a_node_id_is_a_number_from_0_on(wrong: str) -> None:
    with pytest.raises(UsageError, match=r"node\.id"):
        Broker(settings={"node.id": wrong})


def test_the_node_id_is_among_the_listed_settings() -> None:
    command = [sys.executable, "-m", "waterclock.cli", "broker", "--settings"]
    assert "node.id=1  #" in subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout


@pytest.mark.parametrize(("one", "two"), [(5, 9), (9, 5), (0, 1)])
def test_a_pair_with_any_two_ids_follows_is_promoted_and_deposed(tmp_path: Path, one: int, two: int) -> None:
    with ExitStack() as stack:
        both = Pair(tmp_path, ids=(one, two))
        stack.callback(both.close)
        both.one.create_topic("t")
        both.follow()
        brokers = {one: both.one.bootstrap, two: both.two.bootstrap}
        assert brokers_of(both.one) == brokers_of(both.two) == (one, brokers)
        assert both.one.call(lambda: both.one.inside.replicas.in_sync(partition(both.one))) == (one, two)
        for count in range(4):
            old, new, node = (both.one, both.two, two) if count % 2 == 0 else (both.two, both.one, one)
            with client(old) as raw:
                assert raw.produce("t", b"%d" % count) == (Error.NONE, count)
            new.promote()
            until(lambda old=old: not old.leads)
            both.synced(new)
            assert brokers_of(old) == brokers_of(new) == (node, brokers)
        epochs = [epoch for epoch, _ in both.one.call(lambda: partition(both.one).memo.epochs)]
        assert sorted(set(epochs)) == epochs
        assert len(epochs) == 5
        assert log_bytes(both.one) == log_bytes(both.two)


def test_a_pair_with_ids_of_its_own_keeps_its_roles_over_restarts(tmp_path: Path) -> None:
    both = Pair(tmp_path, ids=(5, 9))
    with ExitStack() as stack:
        stack.callback(both.close)
        both.one.create_topic("t")
        both.follow()
        both.one.close()
        both.two.promote()
        both.two.close()
        both.again("two").start()  # promoted, and alone: the old leader counts as missing
        assert both.two.leads
        assert both.two.call(lambda: both.two.inside.replicas.all()) == (9, 5)
        both.again("one").start()  # remembers 9 as its follower, and finds that it leads
        assert not both.one.leads
        both.synced(both.two)
        both.two.close()
        both.one.close()
        both.again("one").start()  # a follower alone: it knows by its folder who leads
        assert brokers_of(both.one)[0] == 9


def test_a_follower_with_its_leaders_id_is_refused_with_a_sentence(tmp_path: Path) -> None:
    with Broker(tmp_path / "one", settings=SEVEN) as one:
        two = Broker(tmp_path / "two", settings=SEVEN, follow=one.bootstrap).start()
        until(lambda: two.failure is not None)
        assert f"{one.bootstrap} is broker 7 too: give this one another node.id" in str(two.failure)
        two.close()


def test_a_follower_without_a_node_id_takes_another_than_its_leaders(tmp_path: Path) -> None:
    for leader, follower in ((2, 1), (7, 2)):
        both = Pair(tmp_path / f"{leader}", ids=(leader, None))
        both.one.create_topic("t")
        both.follow()
        assert sorted(brokers_of(both.two)[1]) == sorted((leader, follower))
        both.close()


def test_a_follower_that_never_met_its_leader_names_none(tmp_path: Path) -> None:
    with Broker(tmp_path, follow="127.0.0.1:9") as two:
        assert brokers_of(two) == (-1, {2: two.bootstrap})


@pytest.mark.parametrize("node", [1, 2])
def test_folders_of_a_pair_from_before_ids_were_kept_still_open(node: int) -> None:
    """They remember their own id once they are a pair, and never the other's."""
    for kept in ({"node": node, "follows": "x:1", "applied": 3}, {"node": node, "deposed": {"address": "x:1"}}):
        assert peer_of(kept, node) == 3 - node
    assert peer_of({"node": node, "follower": {"node": 3 - node}}, node) == 3 - node
    assert peer_of({"node": node}, node) is None


def test_a_folder_from_before_ids_were_kept_is_broker_1s(tmp_path: Path) -> None:
    Broker(tmp_path).start().close()
    store = Store(str(tmp_path), lambda *arguments: None)
    store.commit_at_once(Entry("self", "node", None))
    store.close()
    with pytest.raises(UsageError, match="is broker 1's, and cannot be broker 2's"):
        Broker(tmp_path, settings={"node.id": "2"}).start()
    with Broker(tmp_path) as broker:
        assert brokers_of(broker)[0] == 1


def test_a_deposed_leader_knows_its_leaders_id_before_it_meets_it(tmp_path: Path) -> None:
    both = Pair(tmp_path, ids=(5, 9))
    with ExitStack() as stack:
        stack.callback(both.close)
        both.follow()
        both.two.close()
        both.one.call(lambda: both.one.inside.depose("127.0.0.1:9", 7))  # by one that cannot be reached
        until(lambda: not both.one.leads)
        assert brokers_of(both.one) == (9, {5: both.one.bootstrap, 9: "127.0.0.1:9"})


@pytest.mark.parametrize(("node", "peer"), [(1, 2), (2, 1), (5, 9), (9, 5), (0, 7)])
def test_two_brokers_of_a_pair_never_take_the_same_epoch(node: int, peer: int) -> None:
    ours, theirs = Identity("c", "h", 1, node, node, peer), Identity("c", "h", 1, peer, peer, node)
    for known in range(10):
        assert known < ours.next_epoch(known) != theirs.next_epoch(known) > known
        assert ours.next_epoch(known) <= known + 2


def test_a_record_that_a_promoted_broker_takes_is_there_under_its_id(tmp_path: Path) -> None:
    both = Pair(tmp_path, ids=(3, 8))
    both.one.create_topic("t")
    both.follow()
    both.one.close()
    both.two.promote()
    with client(both.two) as raw:
        assert raw.produce("t", b"x") == (Error.NONE, 0)
    until(lambda: high(both.two) == 1)
    assert values(both.two) == [b"x"]
    both.close()
