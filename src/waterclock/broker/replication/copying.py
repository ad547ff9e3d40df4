"""The follower's copying: everything the leader has, in rounds, each durable here before the next is asked for.

1. After each connection: agree. Where this log and the leader's part, by epochs, the tail here is cut. KIP-101.
2. Fetch from the end of every partition, the journal of the store first.
3. Append the batches as they are; the journal's changes go to the store and to the topics.
4. Put all of it onto the disk. The next fetch, from the new ends, is what tells the leader.

Rule 1: nothing is asked for from an offset before everything below it is durable.
Rule 2: a follower believes its leader but for one thing: a leader of an older epoch than its own is none.
"""

from __future__ import annotations

import asyncio
import logging
import os
from typing import TYPE_CHECKING, Final

from waterclock.broker.log.batch import HEADER, PREFIX, header_of
from waterclock.broker.log.partition import Partition
from waterclock.broker.log.segment import Segment
from waterclock.broker.log.truncation import cut
from waterclock.broker.replication.journal import TOPIC, read
from waterclock.broker.replication.link import Link, LinkLost
from waterclock.broker.store import Change
from waterclock.broker.wire import asking
from waterclock.broker.wire.errors import Error
from waterclock.errors import WaterclockError

if TYPE_CHECKING:
    from waterclock.broker.replication.following import Copy

WAIT_MS: Final = 500
MOST: Final = 16 << 20
EACH: Final = 1 << 20
AGAIN_S: Final = 0.1
LEADER_EPOCH, LEADER_EPOCH_VERSION = 23, 3
log = logging.getLogger("waterclock.broker")


class Deposed(WaterclockError):
    """Who was to be followed is of an older epoch: it is no leader any more."""


class Copying:
    """Keeps `copy` the same as what the broker at the other end of `link` has, as replica `node`."""

    def __init__(self, copy: Copy, link: Link, node: int) -> None:
        self._copy, self._link, self._node = copy, link, node
        self.rounds = 0
        self.connected = False

    async def run(self) -> None:
        """Copy until it is cancelled."""
        while True:
            try:
                await self._link.connect()
                await self._agree([self._copy.journal])
                self.connected = True
                await self._round([self._copy.journal])
                await self._agree(list(self._copy.topics.partitions()))
                while True:
                    await self._round([self._copy.journal, *self._copy.topics.partitions()])
            except LinkLost as lost:
                if self.connected:
                    log.warning("lost the leader: %s", lost)
                self.connected = False
                self._link.close()
                await asyncio.sleep(AGAIN_S)

    # 1

    async def _agree(self, partitions: list[Partition]) -> None:
        """Cut what the leader does not have."""
        for partition in [p for p in partitions if p.end > 0]:
            end = await self._end_at_leader(partition)
            if end < partition.end:
                log.warning("%s-%d: cut from %d to %d", partition.topic, partition.number, partition.end, end)
                self._copy.replace(partition, cut(partition, end))

    async def _end_at_leader(self, partition: Partition) -> int:
        """Where the epoch of this log's last record ends in the leader's log."""
        epoch = partition.memo.epoch
        row = asking.part(
            LEADER_EPOCH, LEADER_EPOCH_VERSION, "OffsetForLeaderPartition",
            partition=partition.number, current_leader_epoch=-1, leader_epoch=epoch,
        )  # fmt: skip
        topic = asking.part(
            LEADER_EPOCH, LEADER_EPOCH_VERSION, "OffsetForLeaderTopic", topic=partition.topic, partitions=(row,)
        )
        answer = await self._link.ask(LEADER_EPOCH, LEADER_EPOCH_VERSION, replica_id=self._node, topics=(topic,))
        said = answer.topics[0].partitions[0]
        if said.error_code.value == Error.UNKNOWN_TOPIC_OR_PARTITION:
            return partition.end  # it is being deleted
        if said.leader_epoch < 0:
            raise Deposed(
                f"{self._link.address} does not know epoch {epoch}: it is no leader any more. Follow the other"
            )
        return min(partition.end, int(said.end_offset))

    # 2

    async def _round(self, partitions: list[Partition]) -> None:
        rows = [asking.Copying(p.topic, p.number, -1, p.durable) for p in partitions]
        error, answered = await self._link.fetch(asking.fetch(self._node, WAIT_MS, MOST, EACH, rows))
        if error:
            raise LinkLost(f"{self._link.address} refuses to be followed: {error.name}")
        by_place = {(p.topic, p.number): p for p in partitions}
        taken = [(by_place[row.topic, row.partition], row) for row in answered]
        await self._take([(p, row) for p, row in taken if not row.error])
        for partition, row in taken:
            if row.error == Error.OFFSET_OUT_OF_RANGE:
                raise LinkLost(f"{partition.topic}-{partition.number} from {partition.end} is gone at the leader")
        self.rounds += 1

    # 3 and 4

    async def _take(self, rows: list[tuple[Partition, asking.Copied]]) -> None:
        changes: list[tuple[bool, list[Change]]] = []
        for partition, row in rows:
            for batch in _batches(row.records):
                _append(partition, batch)
                if partition.topic == TOPIC:
                    changes += read(bytes(batch))
        await self._flush([partition for partition, _ in rows if partition.durable < partition.end])
        for partition, row in rows:
            partition.high = max(partition.high, min(row.high, partition.durable))
        for reset, some in changes:
            await self._copy.apply(reset, some)

    async def _flush(self, partitions: list[Partition]) -> None:
        work = [(p, p.end, p.unflushed()) for p in partitions]
        files = [segment for _, _, some in work for segment, _ in some]
        if files:
            await asyncio.get_running_loop().run_in_executor(None, _flush_all, files)
        for partition, end, some in work:
            partition.flushed(end, some)


def _flush_all(files: list[Segment]) -> None:
    try:
        for segment in files:
            segment.flush()
    except OSError as error:  # the cache may be clean and the disk not: nothing this process says counts any more
        os.write(2, f"waterclock broker: a flush failed, the process ends: {error}\n".encode())
        os._exit(1)


def _batches(data: memoryview) -> list[memoryview]:
    """The whole batches of an answer."""
    found, at = [], 0
    while at + HEADER <= len(data):
        size = PREFIX + header_of(data, at).length
        if size < HEADER or at + size > len(data):
            break
        found.append(data[at : at + size])
        at += size
    return found


def _append(partition: Partition, data: memoryview) -> None:
    """Append a leader's batch; one that overlaps what is here already is left out."""
    batch = header_of(data)
    if batch.base < partition.end:
        return
    if batch.leader_epoch > partition.memo.epoch:
        partition.memo.epochs.append((batch.leader_epoch, batch.base))
        partition.memo.save()
    partition.copy(data, batch)
