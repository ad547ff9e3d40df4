"""Rounds of: the leader's process is stopped, the other is promoted, more is committed there, the old one goes on. What it
says in its first moments must not be from before.

1. Through the leader: a group's offset, and records. Then it is stopped (SIGSTOP).
2. The follower is promoted; a later offset is acknowledged there. It is alone then: its min.insync.replicas is lowered for
   that, and raised when both are in sync again.
3. Questions are put into the old leader's sockets, before it goes on and right after: OffsetFetch (stable), ListOffsets and
   Fetch. Each is answered as of now, with an error, or by the end of the connection.
4. It follows; the roles have changed, and the next round begins.

Rule 1: a run is a function of its seed, the machine's moments aside.
"""

from __future__ import annotations

import random
import signal
import sys
import threading
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

from tests.broker.consistency.node import Node
from tests.broker.raw_client import RawClient
from tests.broker.replication.pairs import FETCHED, GONE, commit_of, until
from waterclock.broker.replication.promoting import promote
from waterclock.errors import WaterclockError

SETTINGS = {"min.insync.replicas": "2", "replica.lag.time.max.ms": "3000", "auto.create.topics.enable": "false"}


def committed(raw: RawClient, offset: int) -> None:
    """Commit the group's offset of t-0, and see that it was acknowledged."""
    answer = raw.ask("OffsetCommit", 8, **commit_of(offset))
    assert answer.topics[0].partitions[0].error_code.value == 0


def replicas_needed(raw: RawClient, count: int) -> bool:
    """Whether min.insync.replicas is `count` from now on."""
    config = {"name": "min.insync.replicas", "config_operation": 0, "value": str(count)}
    resource = {"resource_type": 4, "resource_name": "", "configs": [config]}
    answer = raw.ask("IncrementalAlterConfigs", 0, resources=[resource], validate_only=False)
    return not answer.responses[0].error_code.value


class Asker:
    """Asks for the group's offset at once, and tells later what was answered."""

    def __init__(self, raw: RawClient, stable: bool = True) -> None:
        self._raw = raw
        self._refused = False
        try:
            raw.send("OffsetFetch", 7, **FETCHED | {"require_stable": stable})
        except OSError:
            self._refused = True

    def answer(self) -> int | None:
        """The offset; None for an error or the connection's end."""
        if self._refused:
            return None
        try:
            said = self._raw.receive()
        except OSError:
            return None
        if said.error_code.value:
            return None
        return int(said.topics[0].partitions[0].committed_offset)


def ended(raw: RawClient) -> int | None:
    """Where readers are told that t-0 ends; None for an error or the connection's end."""
    rows = [{"partition_index": 0, "timestamp": -1, "current_leader_epoch": -1}]
    try:
        said = raw.ask("ListOffsets", 5, replica_id=-1, isolation_level=0, topics=[{"name": "t", "partitions": rows}])
    except OSError:
        return None
    row = said.topics[0].partitions[0]
    return None if row.error_code.value else int(row.offset)


def readable(raw: RawClient) -> int | None:
    """The high watermark that a reader is given with what it fetches; None for an error or the connection's end."""
    rows = [{"partition": 0, "current_leader_epoch": -1, "fetch_offset": 0, "partition_max_bytes": 1 << 20}]
    try:
        said = raw.ask(
            "Fetch", 11, replica_id=-1, max_wait=timedelta(0), min_bytes=1, rack_id="", isolation_level=0, session_id=0,
            topics=[{"topic": "t", "partitions": rows}], session_epoch=-1, max_bytes=1 << 20, forgotten_topics_data=[],
        )  # fmt: skip
    except OSError:
        return None
    row = said.responses[0].partitions[0]
    return None if row.error_code.value else int(row.high_watermark)


class Rounds:
    """So many rounds in `folder` by `seed`; `stale` is what was answered from before."""

    def __init__(self, folder: Path, seed: int) -> None:
        self._random = random.Random(seed)
        self._nodes = [Node(folder / "one", SETTINGS), Node(folder / "two", SETTINGS)]
        self.stale: list[str] = []
        self._offset = self._end = 0

    def run(self, rounds: int) -> None:
        one, two = self._nodes
        try:
            one.start()
            two.start(follow=one.address)
            self._begin(one)
            for count in range(rounds):
                self._round(count, *((one, two) if count % 2 == 0 else (two, one)))
        finally:
            for node in self._nodes:
                node.end()

    @staticmethod
    def _begin(leader: Node) -> None:
        row: dict[str, Any] = {"num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
        with RawClient(leader.address) as raw:
            until(lambda: len(raw.ask("Metadata", 4, topics=[], allow_auto_topic_creation=False).brokers) == 2)
            raw.ask(
                "CreateTopics", 4, topics=[{"name": "t", **row}], timeout=timedelta(seconds=20), validate_only=False
            )

    def _write(self, node: Node) -> None:
        """One more record, and an offset: acknowledged, or it is asked for again."""

        def written() -> bool:
            try:
                with RawClient(node.address) as raw:
                    if not replicas_needed(raw, 2) or raw.produce("t", b"x")[0]:
                        return False
                    self._end = raw.end("t")
                    committed(raw, self._offset + 1)
                    self._offset += 1
                    return True
            except (*GONE, AssertionError):
                return False

        until(written, "it is written")

    def _round(self, count: int, leader: Node, follower: Node) -> None:
        self._write(leader)  # with acks=all, min.insync.replicas=2: the follower has it
        with ExitStack() as open_ones:
            clients = [open_ones.enter_context(RawClient(leader.address)) for _ in range(4)]
            for raw in clients:
                raw.ask("ApiVersions", 0)
            self._freeze(count, leader, follower, clients)

    def _freeze(self, count: int, leader: Node, follower: Node, clients: list[RawClient]) -> None:
        threading.Event().wait(self._random.random() * 0.6)
        leader.send(signal.SIGSTOP)
        threading.Event().wait(self._random.choice((0.0, 0.1, 3.0)))
        self._promote(follower)
        self._commit_alone(follower)
        asked = Asker(clients[0])  # it lies in the socket
        leader.send(signal.SIGCONT)
        self._hold(count, "OffsetFetch that lay there", asked.answer(), self._offset)
        self._hold(count, "OffsetFetch", Asker(clients[1]).answer(), self._offset)
        self._hold(count, "ListOffsets", ended(clients[2]), self._end)
        self._hold(count, "Fetch", readable(clients[3]), self._end)

    @staticmethod
    def _promote(node: Node) -> None:
        def promoted() -> bool:
            try:
                promote(node.address, False)
            except WaterclockError:
                return False
            return True

        until(promoted, "it is promoted")

    def _commit_alone(self, node: Node) -> None:
        """The new leader alone acknowledges an offset."""

        def written() -> bool:
            try:
                with RawClient(node.address) as raw:
                    self._offset += 100
                    if not replicas_needed(raw, 1):
                        return False
                    committed(raw, self._offset)
                    return True
            except (*GONE, AssertionError):
                return False

        until(written, "an offset is committed at the new leader")

    def _hold(self, count: int, what: str, said: int | None, least: int) -> None:
        if said is not None and said < least:
            self.stale.append(f"round {count}: {what} said {said}, {least} was acknowledged")


def check(folder: Path, seed: int, rounds: int) -> str:
    """Run them; a line that says how many."""
    run = Rounds(folder, seed)
    run.run(rounds)
    assert run.stale == [], f"seed {seed}: {run.stale}"
    return f"seed {seed}: {rounds} rounds, nothing from before"


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as place:
        print(check(Path(place), int(sys.argv[1]), int(sys.argv[2])))
