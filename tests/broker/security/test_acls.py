"""ACLs on a running broker: kept over a restart and copied to a follower; and without an authorizer nothing of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("kio")
pytest.importorskip("crc32c")

from tests.broker.admin import create, plain, say, shake
from tests.broker.full_disks import full_disk
from tests.broker.replication.pairs import Pair, until
from tests.conformance.acls import AUTHORIZED, CLUSTER, Granting, acl, filter_of
from tests.conformance.batches import batch
from tests.conformance.dialogue import Dialogue, produce_fields
from tests.conformance.test_consumer_groups import Reader
from tests.conformance.wire import Wire
from waterclock.broker import Access, Broker

USERS = Access(users=("alice:a", "bob:b"))
BY_NAME = {**AUTHORIZED, "super.users": "User:bob"}


def logged_in(broker: Broker, name: str) -> Wire:
    wire = Wire(broker.bootstrap)
    shake(wire)
    assert say(wire, plain(name, name[0])).error_code == 0
    return wire


def seen(wire: Wire) -> list[str]:
    return [topic.name for topic in wire.ask("metadata", 12, topics=None).topics]


def test_acls_are_there_after_a_restart(tmp_path: Path) -> None:
    kept = [acl("read", "topic", "t"), acl("write", "topic", 'ü*\n"', host="::1")]
    with Broker(tmp_path, access=USERS, settings=BY_NAME) as broker, logged_in(broker, "bob") as bob:
        assert Granting(bob).create(*kept, acl("read", "topic", "u")) == ["none"] * 3
        Granting(bob).delete(filter_of(name="u"))
        create(bob, "t")
        create(bob, "u")
    with Broker(tmp_path, access=USERS, settings=BY_NAME) as broker, logged_in(broker, "bob") as bob:
        assert Granting(bob).find(**filter_of()) == sorted(kept)
        with logged_in(broker, "alice") as alice:
            assert seen(alice) == ["t"]


def test_what_the_disk_refuses_is_told_and_does_not_hold(tmp_path: Path) -> None:
    with Broker(tmp_path, access=USERS, settings=BY_NAME) as broker, logged_in(broker, "bob") as bob:
        granting = Granting(bob)
        granting.create(acl("read", "topic", "t"))
        with full_disk(broker):
            creations = [acl("read", "topic", "u").creation(), acl("read", "topic", "").creation()]
            results = bob.ask("create_acls", 3, creations=creations).results
            assert [row.error_code.name for row in results] == ["kafka_storage_error", "invalid_request"]
            row = bob.ask("delete_acls", 3, filters=[filter_of()]).filter_results[0]
            assert row.error_code.name == "kafka_storage_error"
        assert granting.find(**filter_of()) == [acl("read", "topic", "t")]


def test_without_an_authorizer_everybody_may_everything_and_acls_are_disabled() -> None:
    with Broker(access=USERS) as broker, logged_in(broker, "alice") as alice:
        assert create(alice, "t").error_code == 0
        answer = alice.ask("describe_acls", 3, **filter_of())
        assert answer.error_code.name == "security_disabled"
        assert alice.ask("create_acls", 3, creations=[acl("read", "topic", "t").creation()]).results[0].error_code == 54
        assert alice.ask("delete_acls", 3, filters=[filter_of()]).filter_results[0].error_code == 54


def test_acls_that_were_kept_hold_nobody_back_once_there_is_no_authorizer(tmp_path: Path) -> None:
    with Broker(tmp_path, access=USERS, settings=BY_NAME) as broker, logged_in(broker, "bob") as bob:
        Granting(bob).create(acl("all", "topic", "t", permission=2))
    with Broker(tmp_path, access=USERS) as broker, logged_in(broker, "alice") as alice:
        assert create(alice, "t").error_code == 0


def test_whoever_has_not_logged_in_yet_keeps_no_rights_of_before() -> None:
    """What a connection asked for before it said who it is must not be answered with another's rights after."""
    with Broker(access=USERS, settings=BY_NAME) as broker, Wire(broker.bootstrap) as wire:
        wire.ask("api_versions", 3, client_software_name="a", client_software_version="1")
        shake(wire)
        assert say(wire, plain("bob", "b")).error_code == 0
        assert create(wire, "t").error_code == 0


def anonymous(settings: dict[str, str]) -> dict[str, str]:
    return {"authorizer.class.name": AUTHORIZED["authorizer.class.name"], **settings}


def test_where_nobody_has_an_acl_everybody_may(tmp_path: Path) -> None:
    settings = anonymous({"allow.everyone.if.no.acl.found": "true"})
    with Broker(settings=settings) as broker, Wire(broker.bootstrap) as wire:
        assert create(wire, "t").error_code == 0
        assert create(wire, "u").error_code == 0
        Granting(wire).create(acl("read", "topic", "t", principal="User:carol"))
        assert seen(wire) == ["u"]


@pytest.fixture
def copied(tmp_path: Path) -> Any:
    """A leader for whom everybody is a super user, and a follower for whom nobody is."""
    pair = Pair(tmp_path, anonymous({"super.users": "User:ANONYMOUS"}))
    pair.two = Broker(tmp_path / "two", settings=anonymous({}), follow=pair.one.bootstrap)
    pair.follow()
    yield pair
    pair.two.close()
    pair.one.close()


def test_a_follower_has_a_copy_of_the_acls_and_goes_by_it(copied: Pair) -> None:
    mine = {"principal": "User:ANONYMOUS"}
    with Wire(copied.one.bootstrap) as leader:
        create(leader, "t")
        create(leader, "u")
        Granting(leader).create(acl("write", "topic", "t", **mine), acl("alter", "cluster", CLUSTER, **mine))
    with Wire(copied.two.bootstrap) as wire:
        until(lambda: seen(wire) == ["t"])
        assert len(Granting(wire).find(**filter_of())) == 2
        row = wire.ask("create_acls", 3, creations=[acl("read", "topic", "t").creation()]).results[0]
        assert row.error_code.name == "none"  # the leader's answer
    copied.synced()
    copied.one.close()
    copied.two.promote()
    with Wire(copied.two.bootstrap) as wire:
        assert seen(wire) == ["t"]
        wrote = {name: wire.ask("produce", 9, **produce_fields(name, batch(b"x"))) for name in "tu"}
        errors = {name: one.responses[0].partition_responses[0].error_code.name for name, one in wrote.items()}
        assert errors["u"] == "topic_authorization_failed"
        assert errors["t"] == "none"
        assert Dialogue(wire).fetch("t").partition.error_code.name == "topic_authorization_failed"


def test_nobody_promotes_a_follower_without_the_right_to(copied: Pair) -> None:
    with Wire(copied.two.bootstrap) as wire:
        answer = wire.ask("elect_leaders", 2, election_type=0, topic_partitions=None, timeout=5000)
        assert answer.error_code.name == "cluster_authorization_failed"
    assert not copied.two.leads


def test_nobody_becomes_a_follower_or_deposes_the_leader_without_the_right_to() -> None:
    """A client that calls itself a follower, in the first epoch and in a later one, with topics and without."""
    name = "waterclock-follower@127.0.0.1:9/" + "0" * 32
    with Broker(settings=anonymous({})) as broker, Wire(broker.bootstrap, name) as wire:
        part = {"partition": 0, "current_leader_epoch": 7, "fetch_offset": 0, "partition_max_bytes": 1}
        for topics in ([], [{"topic": "__waterclock_store", "partitions": [part]}]):
            answer = wire.ask("fetch", 12, replica_id=2, max_wait=0, session_id=0, session_epoch=-1, topics=topics)
            assert [t.partitions[0].error_code.value for t in answer.responses] == [29] * len(topics)
        assert broker.call(lambda: broker.inside.leading._follower is broker.inside.leading._coming is None)
        assert broker.leads


def test_a_pattern_finds_a_topic_from_the_acl_on_that_shows_it() -> None:
    with Broker(access=USERS, settings=BY_NAME) as broker, logged_in(broker, "bob") as bob:
        granting = Granting(bob)
        topics = {name: create(bob, name).topic_id for name in ("pay-a", "pay-b")}
        granting.create(acl("read", "group", "g"), acl("read", "topic", "pay-a"))
        with logged_in(broker, "alice") as alice:
            reader = Reader(Dialogue(alice), "g", [])
            pattern = {"subscribed_topic_names": None, "subscribed_topic_regex": "pay-.*"}
            assert reader.error(**pattern) == "none"
            assert reader.owned == [(topics["pay-a"], 0)]
            granting.create(acl("read", "topic", "pay-b"))
            until(lambda: reader.error() == "none" and len(reader.owned) == 2)
            granting.delete(filter_of(name="pay-a"))
            until(lambda: reader.error() == "none" and reader.owned == [(topics["pay-b"], 0)])
