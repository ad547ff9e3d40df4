"""Two broker processes under load, killed over and over, with a promotion where the leader died; and what must be true.

    min.insync.replicas=2: what acks=all acknowledged is on both disks, whoever dies next

1. Load: an idempotent producer's batches with acks=all, sent again until they are acknowledged; others with acks=1, which
   may be lost; offsets of a group, and topics.
2. A kill, by the seed: of the leader, of the follower, of the leader while the follower stands still; or none, and the
   follower is promoted while the leader lives.
3. Where the leader died: the other is promoted, or the leader itself comes back. Whoever is down comes back.

Rule 1: a run is a function of its seed, the machine's moments aside.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sys
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

from tests.broker.consistency.node import Node
from tests.broker.raw_client import RawClient
from tests.broker.record_batches import Rec, batch
from tests.broker.replication.pairs import until
from waterclock.broker.log.batch import header_of
from waterclock.broker.log.records import records
from waterclock.broker.replication.promoting import promote
from waterclock.broker.wire.errors import Error
from waterclock.errors import WaterclockError

IN_FLIGHT = 5
SETTINGS = {"min.insync.replicas": "2", "replica.lag.time.max.ms": "3000", "auto.create.topics.enable": "false"}
GONE = (OSError, ValueError, IndexError)
GROUP = "g"
FETCHED = {"group_id": GROUP, "topics": [{"name": "t", "partition_indexes": (0,)}], "require_stable": False}


def commit_of(offset: int) -> dict[str, Any]:
    """OffsetCommit of the group for t-0."""
    row = {"partition_index": 0, "committed_offset": offset, "committed_leader_epoch": -1, "committed_metadata": ""}
    given = {"group_id": GROUP, "generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None}
    return {**given, "topics": [{"name": "t", "partitions": [row]}]}


class Load:
    """A producer's batches, one record each: record n has sequence n and the value n. `acked` of them were acknowledged."""

    def __init__(self, nodes: list[Node]) -> None:
        self.nodes = nodes
        self.client: RawClient | None = None
        self.total = self.acked = self._sent = 0
        self.risky = 0
        self.committed = -1
        self.producer_id = -1

    def leader(self) -> RawClient:
        """A connection to who leads, by its own account."""
        if self.client is None:
            until(self._connect, "somebody leads")
        assert self.client is not None
        return self.client

    def _connect(self) -> bool:
        for node in self.nodes:
            with contextlib.suppress(*GONE):
                client = RawClient(node.address)
                if self._leads(client, node.port):
                    self.client = client
                    return True
        return False

    @staticmethod
    def _leads(client: RawClient, port: int) -> bool:
        """Whether the broker at the other end leads; where it does not, or does not say, the connection is closed."""
        with contextlib.suppress(*GONE):
            said = client.ask("Metadata", 4, topics=[{"name": "t"}], allow_auto_topic_creation=False)
            if port in (broker.port for broker in said.brokers if broker.node_id == said.controller_id):
                return True
        client.close()
        return False

    def drop(self) -> None:
        if self.client is not None:
            self.client.close()
        self.client, self._sent = None, self.acked

    def begin(self) -> None:
        topics: list[dict[str, Any]] = [
            {"name": name, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
            for name in ("t", "risky")
        ]
        rows = self.leader().ask("CreateTopics", 4, topics=topics, timeout=timedelta(seconds=20), validate_only=False)
        assert {row.error_code.value for row in rows.topics} == {Error.NONE}
        given = self.leader().ask("InitProducerId", 2, transactional_id=None, transaction_timeout=timedelta(seconds=60))
        self.producer_id = given.producer_id

    def push(self, count: int) -> None:
        """So many more, sent as far as five in flight allow, and not waited for."""
        self.total += count
        with contextlib.suppress(*GONE):
            self._send()

    def _send(self) -> None:
        while self._sent < self.total and self._sent - self.acked < IN_FLIGHT:
            number = self._sent
            data = batch([Rec(None, b"%d" % number, 0)], producer=(self.producer_id, 0, number))
            self._produce("t", data, -1)
            self._sent += 1

    def _produce(self, topic: str, data: bytes, acks: int) -> None:
        topics = [{"name": topic, "partition_data": [{"index": 0, "records": data}]}]
        fields = {"acks": acks, "timeout": timedelta(seconds=20), "topic_data": topics}
        self.leader().send("Produce", 9, answered=acks != 0, **fields)

    def settle(self) -> None:
        """Send and wait until everything is acknowledged."""

        def all_acked() -> bool:
            try:
                while self.acked < self.total:
                    self._send()
                    error, _ = self.leader().produced()
                    if error:
                        raise ConnectionError(f"refused: {error}")
                    self.acked += 1
            except GONE:
                self.drop()
            return self.acked == self.total

        until(all_acked, "everything is acknowledged")

    def risk(self, count: int) -> None:
        """Records with acks=1, acknowledged by the leader alone."""
        with contextlib.suppress(*GONE):
            for _ in range(count):
                error, _ = self.leader().produce("risky", b"%d" % self.risky, acks=1)
                self.risky += not error

    def commit(self) -> None:
        """The group's offset is how many records were acknowledged."""
        with contextlib.suppress(*GONE):
            answer = self.leader().ask("OffsetCommit", 8, **commit_of(self.acked))
            if not answer.topics[0].partitions[0].error_code.value:
                self.committed = self.acked

    def fetched_commit(self) -> int:
        answer = self.leader().ask("OffsetFetch", 7, **FETCHED)
        return int(answer.topics[0].partitions[0].committed_offset)


class Campaign:
    """`kills` kills by `seed`, in `folder`."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.one, self.two = Node(folder / "one", SETTINGS), Node(folder / "two", SETTINGS)
        self.load = Load([self.one, self.two])
        self.leader, self.follower = self.one, self.two
        self.done: list[str] = []

    def run(self, kills: int) -> None:
        try:
            self.one.start()
            self.two.start(follow=self.one.address)
            self.load.begin()
            for _ in range(kills):
                self._work()
                self._kill()
                self.load.drop()
                self.load.settle()
            self._check_running()
        finally:
            self.one.end()
            self.two.end()
        self.load.drop()

    def _work(self) -> None:
        for _ in range(self.random.randint(1, 4)):
            self.load.push(self.random.randint(1, 20))
            self.load.settle()
            self.load.risk(self.random.randint(0, 3))
            self.load.commit()
        self.load.push(self.random.randint(0, 10))

    def _kill(self) -> None:
        kind = self.random.choice(("leader", "leader", "frozen", "follower", "none"))
        self.done.append(kind)
        if kind == "frozen":
            self.load.drop()
            self.follower.send(signal.SIGSTOP)
            self.load.risk(5)
        threading.Event().wait(self.random.random() * 0.02)  # by then some of what is in flight is half done
        if kind == "follower":
            self.follower.end()
            self._back(self.follower)
            return
        if kind != "none":
            self.leader.end()
        if kind == "frozen":
            self.follower.send(signal.SIGCONT)
        if self._promoted() and kind != "none":
            self._back(self.follower)
        elif kind != "none":
            self._back(self.leader)

    def _promoted(self) -> bool:
        """Whether the follower leads now; it cannot where it has copied nothing yet, and sometimes it is not asked."""
        if self.random.random() < 0.2:
            return False
        try:
            promote(self.follower.address, False)
        except WaterclockError:
            return False
        self.leader, self.follower = self.follower, self.leader
        self.done.append("promoted")
        return True

    def _back(self, node: Node) -> None:
        follow = self.leader.address if node is self.follower and self.random.random() < 0.5 else None
        node.start(follow)

    def _check_running(self) -> None:
        self.load.push(1)
        self.load.settle()  # acks=all: the follower has everything before it
        assert self.load.fetched_commit() >= self.load.committed


def log_of(node: Node, topic: str) -> bytes:
    """The whole log of a topic's partition 0, byte for byte."""
    folder = next(path for path in (node.data / "topics").iterdir() if path.name.startswith(f"{topic}-0."))
    return b"".join(path.read_bytes() for path in sorted(folder.glob("*.log")))


def numbers(log: bytes) -> list[int]:
    """The numbers that stand in a log."""
    found, at = [], 0
    while at < len(log):
        size = 12 + header_of(log, at).length
        found += [int(record.value or b"-1") for record in records(log[at : at + size])]
        at += size
    return found


def check(folder: Path, seed: int, kills: int) -> str:
    """Run a campaign and look at what it left; a line that says what happened."""
    campaign = Campaign(folder, seed)
    campaign.run(kills)
    story = f"seed {seed}: {' '.join(campaign.done)}"
    logs = [log_of(node, "t") for node in (campaign.leader, campaign.follower)]
    found, wanted = numbers(logs[0]), list(range(campaign.load.total))
    wrong = f"lost {sorted({*wanted} - {*found})}, there {found}" if found != wanted else ""
    assert not wrong, f"{story}: {wrong}"  # nothing lost, nothing twice, all in order
    assert logs[0] == logs[1], story
    risky = [log_of(node, "risky") for node in (campaign.leader, campaign.follower)]
    shorter = min(len(log) for log in risky)
    assert risky[0][:shorter] == risky[1][:shorter], story  # the follower may be a round behind with these
    there = len(set(numbers(risky[0])))
    return f"{story}; {campaign.load.total} acknowledged by both, {campaign.load.risky - there} of the others lost"


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as place:
        print(check(Path(place), int(sys.argv[1]), int(sys.argv[2])), os.getpid())
