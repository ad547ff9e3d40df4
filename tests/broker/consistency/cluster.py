"""One broker, or a leader and its follower, with what can be done to them from outside.

Rule 1: what is done is what docs/replication.md allows: a promotion of the follower, dead leader or not; a restart by the
    same command. A broker that is down comes back.
Rule 2: with two brokers min.insync.replicas is 2: what acks=all acknowledged is on both disks.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from tests.broker.consistency.node import ROOT, Node
from tests.broker.consistency.worker import PARTITIONS, QUICK

SETTINGS = {
    "auto.create.topics.enable": "false",
    "log.segment.bytes": "60000",
    "log.retention.ms": "-1",
    "log.message.timestamp.after.max.ms": "9223372036854775807",  # the date is stepped, the clients' is not
}
PAIR = {"min.insync.replicas": "2", "replica.lag.time.max.ms": "4000"}


class Cluster:
    """`count` brokers, 1 or 2, with their data in `folder`."""

    def __init__(self, folder: Path, count: int) -> None:
        settings = SETTINGS | (PAIR if count == 2 else {})
        self.nodes = [Node(folder / name, settings) for name in ("one", "two")[:count]]
        self.leader = self.nodes[0]

    @property
    def follower(self) -> Node | None:
        return next((node for node in self.nodes if node is not self.leader), None)

    @property
    def bootstrap(self) -> str:
        return ",".join(node.address for node in self.nodes)

    def begin(self) -> None:
        """All run, and the topics are there."""
        self.leader.start()
        if self.follower is not None:
            self.follower.start(follow=self.leader.address)
        admin = AdminClient({"bootstrap.servers": self.leader.address, **QUICK})
        for made in admin.create_topics([NewTopic(name, count, 1) for name, count in PARTITIONS.items()]).values():
            made.result(30)

    def heal(self) -> None:
        """Whatever was done to them, all run, with the machine's date: by a later or an earlier one a transaction's timeout
        comes as much sooner or later at a promoted broker, here as in Kafka."""
        for node in (self.leader, self.follower):
            if node is not None:
                node.step_clock(0)
                node.fill_disk(None)
                node.send(signal.SIGCONT)
                self.back(node)

    def back(self, node: Node) -> None:
        """Start it where it does not run, by the command it had from the beginning."""
        if not node.runs:
            node.end()
            node.start()

    def promote(self) -> str:
        """The follower leads from now on; a word where it refused, and everything is as it was."""
        follower = self.follower
        assert follower is not None
        command = [sys.executable, "-m", "waterclock.cli", "broker", "promote", "--at", follower.address]
        try:
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
        except subprocess.TimeoutExpired:
            return "no answer within 60 s"
        if done.returncode == 0:
            self.leader = follower
        return "" if done.returncode == 0 else done.stderr or f"exit {done.returncode}"

    def answers(self) -> bool:
        """Whether the leader serves."""
        try:
            return bool(AdminClient({"bootstrap.servers": self.leader.address, **QUICK}).list_topics(timeout=5).topics)
        except KafkaException:
            return False
