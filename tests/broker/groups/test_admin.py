"""FindCoordinator, DescribeGroups and ListGroups; and what of a group survives a restart."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("kio")
pytest.importorskip("crc32c")

from tests.broker.groups.clients import (
    DELETE,
    DELETE_TOPICS,
    DESCRIBE,
    FIND,
    LIST,
    Client,
    Person,
    Turned,
    people,
    stable_group,
)
from waterclock.broker.wire.errors import Error


@pytest.mark.parametrize("version", range(7))
@pytest.mark.parametrize("kind", [0, 1])
def test_the_coordinator_is_this_broker(served: Turned, version: int, kind: int) -> None:
    client = Client(served)
    answer = client.ask(FIND, version, key="g", key_type=kind, coordinator_keys=["g", "h"])
    rows = answer.coordinators if version >= 4 else [answer]
    assert [(row.error_code, row.host, row.port) for row in rows] == [
        (0, "127.0.0.1", int(served.bootstrap.split(":")[1]))
    ] * len(rows)
    assert len(rows) == (2 if version >= 4 else 1)
    client.close()


@pytest.mark.parametrize("version", [3, 6])
def test_nobody_coordinates_what_is_not_known_here(served: Turned, version: int) -> None:
    client = Client(served)
    answer = client.ask(FIND, version, key="g", key_type=2, coordinator_keys=["g"])
    row = answer.coordinators[0] if version >= 4 else answer
    assert (row.error_code, row.node_id, row.host, row.port) == (Error.INVALID_REQUEST, -1, "", -1)
    client.close()


@pytest.mark.parametrize("version", range(7))
def test_a_stable_group_is_described_with_everything(served: Turned, version: int) -> None:
    with people(served, "ann") as (ann,):
        stable_group(ann)
        group = ann.ask(DESCRIBE, version, groups=["g"], include_authorized_operations=False).groups[0]
        assert (group.group_state, group.protocol_type, group.protocol_data) == ("Stable", "consumer", "range")
        (member,) = group.members
        assert (member.client_id, member.client_host) == ("ann", "/127.0.0.1")
        assert (member.member_metadata, member.member_assignment) == (b"m", b"ann")


def test_a_group_in_a_rebalance_is_described_without_its_protocol(served: Turned) -> None:
    with people(served, "ann") as (ann,):
        ann.takes(ann.comes())
        group = ann.ask(DESCRIBE, 5, groups=["g"], include_authorized_operations=True).groups[0]
        assert (group.group_state, group.protocol_data, group.members[0].member_metadata) == (
            "CompletingRebalance",
            "",
            b"",
        )
        assert group.authorized_operations > 0


def test_groups_are_listed_by_state_and_by_type(served: Turned) -> None:
    client = Client(served)
    client.create_topic("t")
    client.commit("simple", 1)
    with people(served, "ann") as (ann,):
        stable_group(ann)
        rows = {row.group_id: (row.protocol_type, row.group_state, row.group_type) for row in client.listed()}
        assert rows == {"g": ("consumer", "Stable", "classic"), "simple": ("", "Empty", "classic")}
        assert [row.group_id for row in client.listed(states=["stable"])] == ["g"]
        assert [row.group_id for row in client.listed(states=["Empty", "Dead"])] == ["simple"]
        assert len(client.listed(types=["classic"])) == 2
        assert client.listed(types=["consumer"]) == []
        for version in range(5):
            assert len(client.ask(LIST, version, states_filter=[], types_filter=[]).groups) == 2
    client.close()


class TestARestart:
    """The same folder, opened again."""

    def test_keeps_offsets_of_groups_with_any_name(self, tmp_path: Path) -> None:
        with Turned(data=tmp_path) as served:
            client = Client(served)
            client.create_topic("t", 12)
            for number, group in enumerate(["", "a:b", "zwölf 時計", "t:1:2"]):
                assert client.commit(group, 10 + number, partition=11, metadata="ü") == Error.NONE
            client.close()
        with Turned(data=tmp_path) as served:
            client = Client(served)
            for number, group in enumerate(["", "a:b", "zwölf 時計", "t:1:2"]):
                row = client.fetched(group, partition=11)
                assert (row.committed_offset, row.metadata, row.committed_leader_epoch) == (10 + number, "ü", 0)
            assert {row.group_state for row in client.listed()} == {"Empty"}
            client.close()

    def test_lets_members_go_on_with_whole_sessions(self, tmp_path: Path) -> None:
        with Turned(data=tmp_path) as served, people(served, "ann", "bob") as (ann, bob):
            stable_group(ann, bob, session=10_000)
            served.advance_ms(9_000)
        with Turned(data=tmp_path) as served, people(served, "ann", "bob") as (ann2, bob2):
            resume(ann, ann2), resume(bob, bob2)
            served.advance_ms(9_999)
            assert ann2.beats() == Error.NONE
            assert ann2.syncs().get().assignment == b"ann"
            served.advance_ms(1)
            assert ann2.beats() == Error.REBALANCE_IN_PROGRESS  # bob was not heard of
            assert bob2.beats() == Error.UNKNOWN_MEMBER_ID
            assert ann2.takes(ann2.joins()).generation_id == 3

    def test_knows_a_static_member_again(self, tmp_path: Path) -> None:
        with Turned(data=tmp_path) as served:
            ann = Person(served, "ann", instance="desk-1")
            ann.takes(ann.joins())
            ann.syncs({ann.member: b"all"}).get()
            old, ann.member = ann.member, ""
            ann.takes(ann.joins())
            ann.close()
        with Turned(data=tmp_path) as served:
            again = Person(served, "ann", instance="desk-1")
            resume(ann, again)
            assert again.beats() == Error.NONE
            assert again.beats(member_id=old) == Error.FENCED_INSTANCE_ID
            again.close()

    def test_forgets_a_generation_that_nobody_divided(self, tmp_path: Path) -> None:
        with Turned(data=tmp_path) as served, people(served, "ann") as (ann,):
            stable_group(ann)
            ann.takes(ann.joins())
            assert ann.generation == 2
        with Turned(data=tmp_path) as served, people(served, "ann") as (again,):
            resume(ann, again)
            assert again.beats() == Error.ILLEGAL_GENERATION
            assert again.beats(generation_id=1) == Error.NONE

    def test_keeps_deleted_groups_deleted_and_empty_ones_empty(self, tmp_path: Path) -> None:
        with Turned(data=tmp_path) as served, people(served, "ann") as (ann,):
            ann.create_topic("t")
            stable_group(ann)
            assert ann.leaves() == Error.NONE
            ann.commit("gone", 1)
            assert ann.ask(DELETE, 2, groups_names=["gone"]).results[0].error_code == 0
        with Turned(data=tmp_path) as served:
            client = Client(served)
            assert [(row.group_id, row.group_state, row.protocol_type) for row in client.listed()] == [
                ("g", "Empty", "consumer")
            ]
            client.close()

    def test_lets_a_group_outlive_the_topic_of_its_offsets(self, tmp_path: Path) -> None:
        with Turned(data=tmp_path) as served, people(served, "ann") as (ann,):
            ann.create_topic("t")
            ann.commit("g", 1)
        with Turned(data=tmp_path) as served, people(served, "ann") as (ann,):
            ann.ask(DELETE_TOPICS, 5, topic_names=["t"], timeout=1000)
            assert [row.group_id for row in ann.listed()] == ["g"]
            assert ann.fetched("g").committed_offset == -1


def resume(before: Person, after: Person) -> None:
    """The same member, with a new connection."""
    after.member, after.generation = before.member, before.generation


class Killed:
    """A broker in a process of its own, killed with SIGKILL."""

    def __init__(self, folder: Path) -> None:
        command = [sys.executable, "-m", "waterclock.cli", "broker", "--port", "0", "--data", str(folder)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ)
        assert self.process.stdout is not None
        self.bootstrap = self.process.stdout.readline().split(",")[0].split()[-1]

    def settle(self) -> None: ...

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


def test_what_was_answered_survives_kill_9(tmp_path: Path) -> None:
    served: Any = Killed(tmp_path)
    ann = Person(served, "ann")
    ann.create_topic("t")
    ann.takes(ann.comes())
    ann.syncs({ann.member: b"all"}).get()
    for offset in range(50):
        assert ann.commits(offset) == Error.NONE
    served.kill()
    ann.close()
    served = Killed(tmp_path)
    again = Person(served, "ann")
    resume(ann, again)
    assert again.fetched("g").committed_offset == 49
    assert again.beats() == Error.NONE
    assert again.syncs().get().assignment == b"all"
    again.close()
    served.kill()


def test_an_answer_waits_for_the_disk(served: Turned) -> None:
    """A disk that refuses is told of, and nothing is shown that is not there."""
    client = Client(served)
    client.create_topic("t")
    client.commit("g", 1)
    store = served.broker.inside.store
    served.broker.call(lambda: setattr(store, "commit_group", lambda group: False))
    assert client.commit("g", 2) == Error.COORDINATOR_NOT_AVAILABLE
    assert client.fetched("g").committed_offset == 1
    with people(served, "ann") as (ann,):
        ann.takes(ann.comes())
        share = ann.syncs()
        assert share.get().error_code == Error.COORDINATOR_NOT_AVAILABLE
        assert ann.beats() == Error.REBALANCE_IN_PROGRESS
    client.close()


def test_who_joins_while_an_assignment_is_written_calls_it_off(
    served: Turned, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The leader's division becomes durable after all, and is nobody's any more."""
    store, gate = served.broker.inside.store, threading.Event()
    commit = store.commit_group
    with people(served, "ann", "bob") as (ann, bob):
        ann.takes(ann.comes())
        with monkeypatch.context() as slow:
            slow.setattr(store, "commit_group", lambda group: gate.wait(10) and commit(group))
            slow.setattr(served, "settle", lambda: [served.broker.call(lambda: None) for _ in range(3)])
            share, answer = ann.syncs({ann.member: b"all"}), bob.comes()
            assert share.get().error_code == Error.REBALANCE_IN_PROGRESS
        gate.set()
        assert answer.waiting
        assert ann.takes(ann.joins()).generation_id == bob.takes(answer).generation_id == 2
    assert caplog.records == []
