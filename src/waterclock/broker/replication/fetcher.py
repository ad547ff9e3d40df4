"""The follower's copying: everything the leader has, in rounds, each durable here before the next is asked for.

1. After each connection: is it a leader that can be followed here?
2. Agree on the journal: where this log and the leader's part, by epochs, the tail here is cut; if they part before
   this log's start it begins anew. Copy it to its end, and do what it says: then the topics here are the leader's.
3. Agree on every partition.
4. Fetch from the end of every partition; append the batches as they are, put them onto the disk; do what the journal
   says. The next fetch, from the new ends, is what the leader learns it by. And again.

Rule 1: nothing is asked for from an offset before everything below it is durable.
Rule 2: a follower believes its leader but for one thing: a leader of an older epoch than its own is none.
Rule 3: if the disk is full it waits for room, connects anew and goes on. Cutting and copying anew are the exception:
    they end the broker, and the next start makes good what they had begun.
Rule 4: partitions are named by their topics' ids: one of the same name may be another by now.
Source: KIP-101, KIP-279 (epochs that one of the two has never heard of).
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from crc32c import crc32c

from waterclock.broker.folder.identity import beside
from waterclock.broker.log.batch import CHECKED, HEADER, PREFIX, header_of
from waterclock.broker.log.partition import Partition
from waterclock.broker.log.removal import begin_anew, begin_at, cut
from waterclock.broker.replication.leader import JOURNAL_KEYS
from waterclock.broker.replication.link import CannotFollow, LastSentence, Link, LinkLost
from waterclock.broker.replication.replica import FollowerReplica, NoRoom, room_awaited
from waterclock.broker.store import Entry
from waterclock.broker.wire import client as asking
from waterclock.broker.wire.errors import Error

if TYPE_CHECKING:
    from waterclock.broker.folder.identity import Identity

WAIT_MS: Final = 500
MOST: Final = 16 << 20
AGAIN_S: Final = 0.1
NO_ROOM_S: Final = 1.0
WHY: Final = {
    Error.DUPLICATE_BROKER_REGISTRATION: "another broker follows it already, or it leads under the same number as this one",
    Error.CLUSTER_AUTHORIZATION_FAILED: "its --link-login is another than this one's, or missing",
}
# its topic is about to go; and the leader has logged the others
PASSING: Final = {Error.UNKNOWN_TOPIC_ID, Error.KAFKA_STORAGE_ERROR, Error.CORRUPT_MESSAGE}
log = logging.getLogger("waterclock.broker")


class ReplicaFetcher:
    """Keeps `replica` the same as what the broker at the other end of `link` has, as the replica that `identity` names.

    `chosen`: its id was chosen, and is not given up for another if the leader has it too.
    """

    def __init__(self, replica: FollowerReplica, link: Link, identity: Identity, *, chosen: bool = False) -> None:
        self._replica = replica
        self._link = link
        self._identity = identity
        self._chosen = chosen
        self.rounds = 0
        self.says = LastSentence()
        """Whom it follows, or why it cannot."""
        self._no_room = False
        self._thawed = asyncio.Event()
        self._thawed.set()

    async def run(self) -> None:
        """Copy until it is cancelled; CannotFollow if that is impossible."""
        while True:
            await self._thawed.wait()
            try:
                await self._replica.catch_up()
                await self._link.connect()
                await self._introduce()  # 1
                await self._agree([self._replica.journal])  # 2
                await self._replica.begin_copying()
                while await self._round([self._replica.journal], 0):
                    pass
                await self._agree(list(self._replica.topics.partitions()))  # 3
                self.says.log(f"following {self._link.address}")
                while True:
                    await self._round(self._replica.partitions(), WAIT_MS)  # 4
            except LinkLost as lost:
                self.says.log(str(lost))
                self._link.close()
                await asyncio.sleep(AGAIN_S)
            except NoRoom as full:
                self._say_room(str(full))
                self._link.close()
                await asyncio.sleep(NO_ROOM_S)

    def freeze(self, frozen: bool) -> None:
        """Ask for nothing more until it is thawed; what is on its way is dropped, and asked for again then."""
        if frozen:
            self._thawed.clear()
        else:
            self._thawed.set()

    def close(self) -> None:
        """Drop the connection."""
        self._link.close()

    def _say_room(self, lacks: str = "") -> None:
        if bool(lacks) != self._no_room:
            self._no_room = bool(lacks)
            why = f"{lacks}. Nothing is copied until there is room: that is tried every {NO_ROOM_S:.0f} s"
            log.error("%s", why if lacks else "there is room again: what the leader has is copied")

    # 1

    async def _introduce(self) -> None:
        """Whether the other leads, and leads this cluster."""
        cluster, leader = await self._link.leader()
        us, address, empty = self._identity, self._link.address, not self._replica.topics.by_name
        if cluster != us.cluster and not empty:
            raise CannotFollow(
                f"the data here is of another cluster than {address}'s: give the follower a folder of its own"
            )
        if leader == us.node:  # one that has nothing yet, and was given no id, takes another
            if not empty or self._replica.applied is not None:
                raise CannotFollow(
                    f"for {address}, broker {us.node} leads, which is this one: promote the other first "
                    f"(waterclock broker promote --at {address})"
                )
            if self._chosen:
                raise CannotFollow(
                    f"{address} is broker {us.node} too: give this one another node.id and an empty folder"
                )
            node = beside(us.node)
            await self._replica.keep([Entry("self", "node", node)])
            us.node = node
        await self._fetch(asking.fetch(us.node, 0, 1, ()))  # once that is answered it has its journal
        if us.peer != leader:
            await self._replica.keep([Entry("self", "peer", leader)])
        us.peer = us.leader = leader

    # 2 and 3

    async def _agree(self, partitions: list[Partition]) -> None:
        """Cut what the leader does not have; of a log without records too: its end says that all before it was here."""
        for partition in partitions:
            while partition.end > partition.memo.epochs[0][1]:
                end = await self._common_end(partition)
                if end >= partition.end:
                    break
                log.warning("%s-%d: cut from %d to %d", partition.topic, partition.number, partition.end, end)
                new = cut(partition, end)
                self._replica.replace(partition, new)
                partition = new

    async def _common_end(self, partition: Partition) -> int:
        """Up to where this log and the leader's are the same, which may lie before this one's start."""
        epoch, end = partition.memo.epoch, partition.end
        node, topic, number = self._identity.node, partition.topic, partition.number
        while True:
            error, theirs, their_end = await self._link.end_of_epoch(node, topic, number, epoch)
            if error == Error.UNKNOWN_TOPIC_OR_PARTITION and partition is not self._replica.journal:
                return partition.end  # it is being deleted
            if error:
                raise LinkLost(f"{self._link.address} refuses to be followed: {error.name}")
            if theirs < 0:
                error, *_ = await self._link.end_of_epoch(node, topic, number, epoch, epoch)
                if error == Error.UNKNOWN_LEADER_EPOCH:  # all that the other knows is older
                    raise CannotFollow(
                        f"{self._link.address} has never heard of epoch {epoch}, which this broker has: it is no leader "
                        f"any more. Follow the one that is"
                    )
                return 0
            ours, our_end = partition.memo.end_of(theirs, partition.end)
            end = min(end, their_end, our_end)
            if ours in (theirs, -1):
                return max(end, 0)
            epoch = ours  # they never had the epoch asked for, nor is theirs here: the same question of the one before

    # 4

    async def _round(self, partitions: list[Partition], wait_ms: int) -> bool:
        """One fetch, and what it brings; False if that was nothing."""
        await self._thawed.wait()
        turn = self.rounds % len(partitions)  # a batch larger than the limits comes only if nothing came before it
        partitions = partitions[turn:] + partitions[:turn]
        topics, journal = self._replica.topics, self._replica.journal
        keys = (JOURNAL_KEYS[1] if p is journal else topics.by_name[p.topic].id.bytes for p in partitions)
        rows = [
            asking.PartitionFetch(key, p.number, -1, p.durable, p.start)
            for key, p in zip(keys, partitions, strict=True)
        ]
        body = asking.fetch(self._identity.node, wait_ms, MOST, rows)
        by_place = {(row.topic, row.partition): p for row, p in zip(rows, partitions, strict=True)}
        taken = [(by_place[row.topic, row.partition], row) for row in await self._fetch(body)]
        if not self._thawed.is_set():
            return True  # frozen meanwhile
        await self._take([(p, row) for p, row in taken if not row.error])
        for partition, row in taken:
            if row.error:
                await self._refused(partition, row)
        self.rounds += 1
        return any(len(row.records) for _, row in taken)

    async def _fetch(self, body: bytes) -> list[asking.PartitionCopy]:
        while True:
            error, rows = await self._link.fetch(body)
            if not error:
                return rows
            if error != Error.REPLICA_NOT_AVAILABLE:  # it is making this follower's acquaintance
                why = WHY.get(error, error.name)
                raise LinkLost(f"{self._link.address} refuses to be followed: {why}")
            await asyncio.sleep(AGAIN_S)

    async def _refused(self, partition: Partition, row: asking.PartitionCopy) -> None:
        if row.error == Error.OFFSET_OUT_OF_RANGE and row.start > partition.end:
            log.warning("%s-%d: copied anew from %d", partition.topic, partition.number, row.start)
            self._replica.replace(partition, begin_anew(partition, row.start))
        elif (
            row.error == Error.OFFSET_OUT_OF_RANGE and row.high > partition.end
        ):  # api/fetch.py: the rest is lost there
            log.warning(
                "%s-%d: the leader has lost its records from offset %d on, and goes on at %d",
                partition.topic, partition.number, partition.end, row.high,
            )  # fmt: skip
            partition.resume(row.high)
        elif row.error in PASSING:
            await asyncio.sleep(AGAIN_S)
        else:
            raise LinkLost(f"{self._link.address} refuses {partition.topic}-{partition.number}: {row.error.name}")

    async def _take(self, rows: list[tuple[Partition, asking.PartitionCopy]]) -> None:
        with room_awaited():
            for partition, row in rows:
                for batch in _batches(row.records):
                    _append(partition, batch)
            await self._replica.flush()
            for partition, row in rows:
                partition.high = max(partition.high, min(row.high, partition.durable))
                if row.start > partition.start:
                    begin_at(partition, row.start)
        await self._replica.catch_up()
        self._say_room()


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
    if crc32c(data[CHECKED:]) != batch.crc:
        raise LinkLost(f"the leader's {partition.topic}-{partition.number} is damaged at offset {batch.base}")
    if batch.base < partition.end:
        return
    if batch.leader_epoch > partition.memo.epoch:  # remembered durably, or not at all
        partition.memo.epochs.append((batch.leader_epoch, batch.base))
        try:
            partition.memo.save()
        except OSError:
            partition.memo.epochs.pop()
            raise
    partition.copy(data, batch)
