"""A store that refuses what groups, their offsets and transactions have become: everything is as it was.

Each test asks for something on a full disk, looks, starts the broker again, and looks once more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("kio")
pytest.importorskip("crc32c")

from tests.broker.full_disks import full_disk, settle, slow_disk
from tests.broker.groups.clients import COMMIT, DELETE, DESCRIBE, REMOVE, Client, Person, Turned, people, stable_group
from tests.broker.groups.consumer_members import FIRST, readers
from tests.broker.transactions import client as transactional
from waterclock.broker import Broker
from waterclock.broker.wire.errors import Error
from waterclock.clock import ManualClock

MINUTE_MS = 60_000


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Turned]:
    with Turned({"offsets.retention.minutes": "60"}, tmp_path) as turned:
        yield turned


@pytest.fixture
def client(served: Turned) -> Iterator[Client]:
    client = Client(served)
    client.create_topic("t", 4)
    yield client
    client.close()


def restarted(folder: Path, look: Callable[[Client], Any]) -> Any:
    """What a client sees of a broker that begins with the folder."""
    with Turned(data=folder) as served:
        client = Client(served)
        seen = look(client)
        client.close()
        return seen


def described(client: Client) -> Any:
    """Epochs and members of the consumer group g."""
    rows = client.ask(69, 1, group_ids=["g"], include_authorized_operations=False).groups
    members = {(m.member_id, m.member_epoch, str(m.assignment), str(m.target_assignment)) for m in rows[0].members}
    return rows[0].error_code, rows[0].group_state, rows[0].group_epoch, rows[0].assignment_epoch, members


# The consumer protocol


def test_a_member_that_joins_as_the_first(served: Turned, tmp_path: Path) -> None:
    with readers(served, "ann") as (ann,):
        with full_disk(served.broker):
            assert ann.beat(**FIRST).error_code == Error.COORDINATOR_NOT_AVAILABLE
        assert described(ann)[0] == Error.GROUP_ID_NOT_FOUND
        assert ann.listed() == []
        served.advance_ms(100_000)  # nobody has a session
        served.broker.close()
        assert restarted(tmp_path, described)[0] == Error.GROUP_ID_NOT_FOUND


def test_a_member_that_joins_others(served: Turned, tmp_path: Path) -> None:
    with readers(served, "ann", "bob") as (ann, bob):
        ann.joins()
        ann.settles()
        before = described(ann)
        with full_disk(served.broker):
            assert bob.beat(**FIRST).error_code == Error.COORDINATOR_NOT_AVAILABLE
            assert described(ann) == before
        assert ann.says().assignment is None  # there is nothing to let go of
        assert described(ann) == before
        served.advance_ms(44_999)
        ann.says()
        served.advance_ms(44_999)
        assert described(ann) == before
        served.broker.close()
        assert restarted(tmp_path, described) == before


def test_a_member_that_leaves(served: Turned, tmp_path: Path) -> None:
    with readers(served, "ann", "bob") as (ann, bob):
        ann.joins()
        ann.settles()
        bob.joins()
        ann.settles()
        bob.settles()
        before = described(ann)
        with full_disk(served.broker):
            assert bob.leaves() == Error.COORDINATOR_NOT_AVAILABLE
            assert described(ann) == before
        assert bob.says().error_code == Error.NONE
        served.broker.close()
        assert restarted(tmp_path, described) == before


def test_a_member_that_leaves_and_is_never_heard_of_again_is_out_when_its_session_ends(served: Turned) -> None:
    with readers(served, "ann") as (ann,):
        ann.joins()
        with full_disk(served.broker):
            ann.leaves()
        served.advance_ms(45_000)
        assert described(ann)[1] == "Empty"


def test_two_changes_on_their_way_are_taken_back_to_what_was_before_both(served: Turned, tmp_path: Path) -> None:
    with readers(served, "ann", "bob", "cid") as (ann, bob, cid):
        ann.joins()
        ann.settles()
        before = described(ann)
        fields = {
            "group_id": "g", "member_epoch": 0, "instance_id": None, "rack_id": None, "subscribed_topic_regex": None,
            "server_assignor": None, **FIRST,
        }  # fmt: skip
        with slow_disk(served.broker, outcome=False) as go_on:
            answers = []
            for reader in (bob, cid):
                answers.append(reader.send(68, 1, member_id=reader.member, **fields))
                served.broker.call(lambda: None)
                served.broker.call(lambda: None)
            go_on.set()
            assert [answer.get().error_code for answer in answers] == [Error.COORDINATOR_NOT_AVAILABLE] * 2
        assert described(ann) == before
        served.broker.close()
        assert restarted(tmp_path, described) == before


def test_nobody_is_told_of_an_epoch_before_it_is_durable(served: Turned) -> None:
    """Another heartbeat of the same member changes nothing, and yet its answer waits for the change before it."""
    with readers(served, "ann", "bob") as (ann, bob):
        ann.joins()
        ann.settles()
        bob.joins()
        beat = {
            "group_id": "g", "member_id": ann.member, "member_epoch": ann.epoch, "instance_id": None, "rack_id": None,
            "rebalance_timeout": -1, "subscribed_topic_names": None, "subscribed_topic_regex": None,
            "server_assignor": None, "topic_partitions": None,
        }  # fmt: skip
        with slow_disk(served.broker, outcome=False) as go_on:
            first, second = ann.send(68, 1, **beat), ann.send(68, 1, **beat)
            served.broker.call(lambda: None)
            served.broker.call(lambda: None)
            go_on.set()
            codes = [first.get().error_code, second.get().error_code]
        assert codes == [Error.COORDINATOR_NOT_AVAILABLE] * 2


# The classic protocol


def test_a_static_member_that_comes_back_under_another_id(served: Turned, client: Client) -> None:
    ann, bob = Person(served, "ann", instance="desk-1"), Person(served, "bob", instance="desk-1")
    ann.takes(ann.joins())
    assert ann.syncs({ann.member: b"all"}).get().assignment == b"all"
    with full_disk(served.broker):
        assert bob.joins(session=9000).get().error_code == Error.COORDINATOR_NOT_AVAILABLE
        assert ann.beats() == Error.NONE
    rows = client.ask(DESCRIBE, 5, groups=["g"], include_authorized_operations=False).groups[0].members
    assert [row.member_id for row in rows] == [ann.member]
    assert ann.syncs().get().assignment == b"all"
    served.advance_ms(9999)
    assert ann.beats() == Error.NONE
    served.advance_ms(10_000)
    assert client.state("g") == "Empty"  # it has one session, its own
    for one in (ann, bob):
        one.close()


@pytest.mark.parametrize("came_first", ["classic", "consumer"])
def test_a_group_that_takes_the_place_of_one_of_the_other_protocol(
    served: Turned, tmp_path: Path, came_first: str
) -> None:
    def kinds(client: Client) -> list[tuple[str, str]]:
        return [(row.group_id, row.group_type) for row in client.listed()]

    with readers(served, "ann") as (ann,), people(served, "bob") as (bob,):
        if came_first == "classic":
            stable_group(bob)
            bob.leaves()
        else:
            ann.joins()
            ann.leaves()
        assert kinds(ann) == [("g", came_first)]
        with full_disk(served.broker):
            if came_first == "classic":
                assert ann.beat(**FIRST).error_code == Error.COORDINATOR_NOT_AVAILABLE
            else:
                assert bob.joins().get().error_code == Error.COORDINATOR_NOT_AVAILABLE
            assert kinds(ann) == [("g", came_first)]
        served.broker.close()
        assert restarted(tmp_path, kinds) == [("g", came_first)]


# Offsets


def offsets(client: Client) -> Any:
    return [client.fetched("g", partition=number).committed_offset for number in (0, 1)], [
        group.group_id for group in client.listed()
    ]


def test_a_first_commit_makes_no_group(served: Turned, client: Client) -> None:
    with full_disk(served.broker):
        assert client.commit("g", 5) == Error.COORDINATOR_NOT_AVAILABLE
        assert offsets(client) == ([-1, -1], [])


def test_a_deletion_of_a_group(served: Turned, client: Client, tmp_path: Path) -> None:
    client.commit("g", 5)
    before = offsets(client)
    with full_disk(served.broker):
        answer = client.ask(DELETE, 2, groups_names=["g", "nobody"])
        errors = [row.error_code for row in answer.results]
        assert errors == [Error.COORDINATOR_NOT_AVAILABLE, Error.GROUP_ID_NOT_FOUND]
        assert offsets(client) == before
    served.broker.close()
    assert restarted(tmp_path, offsets) == before


def test_a_deletion_of_offsets(served: Turned, client: Client, tmp_path: Path) -> None:
    client.commit("g", 5)
    before = offsets(client)
    rows = [{"name": "t", "partitions": [{"partition_index": 0}]}]
    with full_disk(served.broker):
        assert client.ask(REMOVE, 0, group_id="g", topics=rows).error_code == Error.COORDINATOR_NOT_AVAILABLE
        assert offsets(client) == before
    served.broker.close()
    assert restarted(tmp_path, offsets) == before


def test_offsets_that_are_too_old_stay_until_the_disk_takes_their_end(served: Turned, client: Client) -> None:
    client.commit("g", 5)
    before = offsets(client)
    with full_disk(served.broker):
        served.advance_ms(60 * MINUTE_MS)
        settle(served.broker)
        assert offsets(client) == before
    served.advance_ms(10 * MINUTE_MS)
    settle(served.broker)
    assert offsets(client) == ([-1, -1], [])


def test_an_offset_that_was_committed_when_the_one_before_grew_too_old_is_kept(
    served: Turned, client: Client, tmp_path: Path
) -> None:
    """It was on its way to the disk: what is too old must not be taken away behind it."""
    client.commit("g", 5)
    served.advance_ms(59 * MINUTE_MS)
    row = {"partition_index": 0, "committed_offset": 6, "committed_leader_epoch": 0, "committed_metadata": None}
    fields = {"group_id": "g", "generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None}
    with slow_disk(served.broker):
        answer = client.send(COMMIT, 9, **fields, topics=[{"name": "t", "partitions": [row]}])
        served.broker.call(lambda: None)
        served.broker.call(lambda: None)
        served.broker.advance_s(60)
    assert answer.get().topics[0].partitions[0].error_code == Error.NONE
    settle(served.broker)
    assert client.fetched("g").committed_offset == 6
    served.broker.close()
    assert restarted(tmp_path, lambda one: one.fetched("g").committed_offset) == 6


# Transactions


class Scene:
    """A broker in `folder` with a topic t, and a producer n."""

    def __init__(self, folder: Path) -> None:
        self.broker = Broker(folder, clock=ManualClock()).start()
        self.client = transactional.Client(self.broker.bootstrap)

    def close(self) -> None:
        self.client.close()
        self.broker.close()


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    scene = Scene(tmp_path)
    scene.client.create("t", 2)
    yield scene
    scene.close()


def seen(client: transactional.Client) -> Any:
    reply = client.describe("n")
    return reply.state, reply.producer, reply.partitions, client.offset("g", "t")


@pytest.mark.parametrize("version", [3, 4])
def test_a_first_partition_of_a_transaction(scene: Scene, version: int) -> None:
    producer = scene.client.ready("n")
    before = seen(scene.client)
    with full_disk(scene.broker):
        asked = scene.client.add("n", producer, "t", 0, version=version)
        assert asked == ["COORDINATOR_NOT_AVAILABLE"]
        assert seen(scene.client) == before
    scene.broker.advance_s(60)  # its time does not run: it has not begun
    assert seen(scene.client) == before
    assert scene.client.add("n", producer, "t", 0, version=version) == ["NONE"]
    assert seen(scene.client)[0] == "Ongoing"


def test_one_more_partition_of_a_transaction(scene: Scene) -> None:
    producer = scene.client.ready("n")
    scene.client.add("n", producer, "t", 0)
    before = seen(scene.client)
    with full_disk(scene.broker):
        assert scene.client.add("n", producer, "t", 0, 1) == ["COORDINATOR_NOT_AVAILABLE"] * 2
        assert seen(scene.client) == before


def test_offsets_of_a_transaction_that_were_refused_are_not_committed_with_it(scene: Scene) -> None:
    producer = scene.client.ready("n")
    scene.client.add_offsets("n", producer, "g")
    scene.client.commit_offset("n", producer, "g", "t", 7)
    with full_disk(scene.broker):
        error = scene.client.commit_offset("n", producer, "g", "t", 8)
        assert error == "COORDINATOR_NOT_AVAILABLE"
    assert scene.client.end("n", producer) == "NONE"
    assert scene.client.offset("g", "t") == ("NONE", 7)


def test_offsets_that_were_refused_make_nothing_unstable(scene: Scene) -> None:
    producer = scene.client.ready("n")
    with full_disk(scene.broker):
        assert scene.client.commit_offset("n", producer, "g", "t", 8, version=5) == "COORDINATOR_NOT_AVAILABLE"
        assert scene.client.state("n") == "Empty"
    assert scene.client.offset("g", "t") == ("NONE", -1)


def test_a_partition_that_has_records_of_the_transaction_stays_in_it_and_gets_its_marker(scene: Scene) -> None:
    """A producer that does not wait: its records are in the log when the store refuses the partition."""
    producer = scene.client.ready("n")
    with slow_disk(scene.broker, outcome=False) as go_on:
        rows = ({"name": "t", "partitions": (0,)},)
        scene.client.send(
            24, 3, v3_and_below_transactional_id="n", v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.epoch, v3_and_below_topics=rows,
        )  # fmt: skip
        other = transactional.Client(scene.broker.bootstrap)
        while other.state("n") != "Ongoing":
            pass
        other.produce_soon("n", "t", transactional.batch("a", producer, 0), acks=1)
        assert other.produced()[0] == "NONE"
        go_on.set()
        answer = scene.client.receive(24, 3)
    assert answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code.name == (
        "coordinator_not_available"
    )
    assert scene.client.end("n", producer) == "NONE"
    assert scene.client.committed("t") == ["a"]
    other.close()


def test_a_name_whose_first_producer_was_refused_is_not_listed(scene: Scene) -> None:
    with full_disk(scene.broker):
        assert scene.client.init("n")[0] == "COORDINATOR_NOT_AVAILABLE"
        listed = scene.client.ask(66, 0, state_filters=(), producer_id_filters=())
        assert listed.transaction_states == ()
