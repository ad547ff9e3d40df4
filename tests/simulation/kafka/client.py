"""`Kafka`: requests on a connection that is made anew when it is gone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tests.simulation.kafka.codes import ELSEWHERE
from tests.simulation.kafka.connection import Connection, Gone
from tests.simulation.kafka.encoding import by_topic

Place = tuple[str, int]  # a topic's partition
EARLIEST, LATEST = -2, -1
TOPIC, LITERAL, WRITE, DENY = 2, 3, 4, 2  # of ACLs: a resource, a pattern, an operation, a permission


class Kafka:
    """`where()` says to which address the next connection goes. Answers with one error have it first; nobody asks twice."""

    def __init__(self, process: Any, network: Any, where: Callable[[], tuple[str, int]]) -> None:
        self.process, self.network, self.where = process, network, where
        self._connection: Connection | None = None
        self.starts: dict[Place, int] = {}  # the logs' starts, as fetches told them last

    def connection(self) -> Connection:
        if self._connection is None or self._connection.gone:
            try:
                self._connection = Connection(self.process, self.network, self.where())
            except OSError as error:
                raise Gone(str(error)) from None
        return self._connection

    async def ask(self, name: str, *values: Any, timeout_s: float = 10.0) -> Any:
        """The answer to a message of messages.txt."""
        return await self.connection().call(name, *values, timeout_s=timeout_s)

    @property
    def fresh(self) -> bool:
        """Whether the next request goes by a new connection."""
        return self._connection is None or self._connection.gone

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def elsewhere(self, error: int) -> None:
        """This one does not lead: look for another."""
        if error in ELSEWHERE:
            self.close()

    # topics and rights

    async def create_topic(self, name: str, partitions: int, configs: Mapping[str, str]) -> int:
        topic = name, partitions, 1, [], configs.items()
        return int((await self.ask("create_topics", [topic], 10_000, 0)).topics[0].error)

    async def make_topic(self, name: str, partitions: int, configs: Mapping[str, str]) -> tuple[int, bytes]:
        """Error, and the topic's id."""
        topic = name, partitions, 1, [], configs.items()
        [made] = (await self.ask("create_topics.7", [topic], 10_000, 0)).topics
        return made.error, made.id

    async def delete_topic(self, name: str) -> int:
        return int((await self.ask("delete_topics", [name], 10_000)).topics[0].error)

    async def topic_id(self, name: str) -> tuple[int, bytes]:
        """Error and id of a topic."""
        [topic] = (await self.ask("metadata", [(bytes(16), name)], 0, 0, 0)).topics
        return topic.error, topic.id

    async def deny(self, topic: str, principal: str) -> int:
        """Forbid `principal` to write to a topic."""
        return await self._acl("create_acls", topic, principal)

    async def allow(self, topic: str, principal: str) -> int:
        """Take that back."""
        return await self._acl("delete_acls", topic, principal)

    async def _acl(self, name: str, topic: str, principal: str) -> int:
        return int((await self.ask(name, [(TOPIC, topic, LITERAL, principal, "*", WRITE, DENY)])).results[0].error)

    # records

    async def produce(
        self, tp: Place, data: bytes, transactional_id: str | None = None, second: bool = False
    ) -> tuple[int, int]:
        """Error and base offset of one batch; `second`: as who ends transactions by protocol 2 asks."""
        topics = [(tp[0], [(tp[1], data)])]
        answer = await self.ask("produce.12" if second else "produce", transactional_id, -1, 10_000, topics)
        return produced(answer)

    async def list_offset(self, tp: Place, when: int, committed: bool = False) -> tuple[int, int]:
        answer = await self.ask("list_offsets", -1, committed, [(tp[0], [(tp[1], -1, when)])])
        [found] = answer.topics[0].partitions
        return found.error, found.offset

    async def end_offset(self, tp: Place, committed: bool = False) -> tuple[int, int]:
        return await self.list_offset(tp, LATEST, committed)

    async def delete_records(self, tp: Place, before: int) -> tuple[int, int]:
        """Error, and the log's start."""
        answer = await self.ask("delete_records", [(tp[0], [(tp[1], before)])], 10_000, timeout_s=15.0)
        [found] = answer.topics[0].partitions
        return found.error, found.low

    async def fetch_offset(self, group: str, tp: Place) -> tuple[int, int]:
        """Error, and the committed offset: -1 if there is none."""
        answer = await self.ask("offset_fetch", group, [(tp[0], [tp[1]])])
        [found] = answer.topics[0].partitions
        return found.error or answer.error, found.offset

    # transactions: a group's offset, and the end, by protocol 1 or 2

    async def init(self, name: str | None, timeout_ms: int = 10_000) -> tuple[int, int, int]:
        """Error, producer id, epoch."""
        answer = await self.ask("init_producer_id", name, timeout_ms)
        return answer.error, answer.producer, answer.epoch

    async def add_partitions(self, name: str, producer: int, epoch: int, places: list[Place]) -> int:
        answer = await self.ask("add_partitions_to_txn", name, producer, epoch, by_topic(places))
        return next((one.error for topic in answer.topics for one in topic.partitions if one.error), 0)

    async def add_offsets(self, name: str, producer: int, epoch: int, group: str) -> int:
        return int((await self.ask("add_offsets_to_txn", name, producer, epoch, group)).error)

    async def txn_offsets(
        self, second: bool, name: str, producer: int, epoch: int, group: str, tp: Place, offset: int
    ) -> int:
        who, topics = (name, group, producer, epoch), [(tp[0], [(tp[1], offset, -1, "")])]
        if second:
            answer = await self.ask("txn_offset_commit.5", *who, -1, "", None, topics)
        else:
            answer = await self.ask("txn_offset_commit", *who, topics)
        return int(answer.topics[0].partitions[0].error)

    async def end(self, second: bool, name: str, producer: int, epoch: int, commit: bool) -> tuple[int, int, int]:
        """Error, and who the producer is from now on."""
        answer = await self.ask("end_txn.5" if second else "end_txn", name, producer, epoch, commit, timeout_s=15.0)
        return (answer.error, answer.producer, answer.epoch) if second else (answer.error, producer, epoch)


def produced(answer: Any) -> tuple[int, int]:
    """Error and base offset of one batch."""
    [found] = answer.topics[0].partitions
    return found.error, found.base
