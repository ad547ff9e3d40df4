"""A producer of transactions: what librdkafka does with records and with Kafka's answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from tests.simulation.confluent.requests import AWAY, Gone, raised
from tests.simulation.confluent.sending import DELAY, SLOW, UNKNOWN, Sending
from tests.simulation.kafka.encoding import by_topic

CONCURRENT = KafkaError.CONCURRENT_TRANSACTIONS


class Producer(Sending):
    """Of transactions. A process drops the one of a name before it uses the next; librdkafka's ends with that."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        super().__init__(settings)
        self._is_being_aborted = self._is_dropped = False
        made: dict[str, Producer] = vars(self._process).setdefault("producers", {})
        if (old := made.get(self._name)) is not None:
            old._is_dropped = True
        made[self._name] = self

    def _refuse(self) -> None:
        if self._state == "fatal":
            raise raised(self._why, fatal=True)
        if self._state == "abortable":
            raise raised(self._why, txn_requires_abort=True)
        if self._state != "open":
            raise raised(KafkaError._STATE)

    def init_transactions(self, timeout: float = -1.0) -> None:
        try:
            self._calls.wait("init", self._init, timeout)
        except KafkaException:
            if self._is_being_aborted:  # what was answered last is the error of a call whose time is over
                raise raised(CONCURRENT, retriable=True) from None
            raise
        self._state = "ready"

    async def _init(self) -> None:
        """With an id it is its next epoch, and the transaction that was open is aborted."""
        pause = DELAY
        while not self._is_dropped:
            try:
                timeout_ms = int(self._settings["transaction.timeout.ms"])
                asked = (self._name, timeout_ms, self._id, self._epoch)
                answer = await self._kafka.ask("init_producer_id.4", *asked)
                code = answer.error
            except Gone:
                code = 7
            if not code:
                self._id, self._epoch, self._bumps = answer.producer, answer.epoch, False
                self._sequences.clear()
                return
            if code not in AWAY:
                self._judge(code)
                raise raised(self._why, fatal=True)
            self._kafka.elsewhere(code)
            self._is_being_aborted = code == CONCURRENT
            await asyncio.sleep(0.5 if self._is_being_aborted else pause)  # librdkafka's own number
            pause = min(SLOW, 2 * pause)

    def begin_transaction(self) -> None:
        if self._state == "fatal":
            raise raised(self._why, fatal=True)
        if self._state != "ready":
            raise raised(KafkaError._STATE)
        self._state = "open"
        self._added.clear()
        self._is_offsets = False

    def send_offsets_to_transaction(self, places: Sequence[TopicPartition], group: Any, timeout: float = -1.0) -> None:
        self._refuse()
        self._calls.wait("offsets", lambda: self._offsets(places, group), timeout)

    async def _offsets(self, places: Sequence[TopicPartition], group: Any) -> None:
        who = (self._id, self._epoch)
        await self._until_taken("add_offsets_to_txn", _only, self._name, *who, group.group)
        self._is_offsets = True
        rows = by_topic((one.topic, (one.partition, one.offset, -1, one.metadata or "")) for one in places)
        await self._until_taken(
            "txn_offset_commit.3", lambda answer: [p.error for t in answer.topics for p in t.partitions],
            self._name, group.group, *who, group.generation, group.member, group.instance, rows,
        )  # fmt: skip

    async def _until_taken(self, name: str, codes: Callable[[Any], list[int]], *asked: Any) -> None:
        pause = DELAY
        while self._state in ("open", "ending"):
            try:
                code = next((c for c in codes(await self._kafka.ask(name, *asked, timeout_s=15.0)) if c), 0)
            except Gone:
                code = 7
            if not code:
                return
            if code not in (*AWAY, UNKNOWN):
                self._state = "open" if self._state == "ending" else self._state
                self._judge(code)
                break
            self._kafka.elsewhere(code)
            await asyncio.sleep(pause)
            pause = min(SLOW, 2 * pause)
        self._refuse()

    def commit_transaction(self, timeout: float = -1.0) -> None:
        if not self._calls.has("commit"):
            self._refuse()
            if self.flush(timeout):
                self._refuse()
                raise raised(KafkaError._TIMED_OUT, retriable=True)
            self._refuse()
            self._state = "ending"
        self._calls.wait("commit", lambda: self._end(True), timeout)
        self._state = "ready"

    async def _end(self, commits: bool) -> None:
        if self._added or self._is_offsets:
            await self._until_taken("end_txn", _only, self._name, self._id, self._epoch, commits)

    def abort_transaction(self, timeout: float = -1.0) -> None:
        if not self._calls.has("abort"):
            if self._state == "fatal" or self._state not in ("open", "abortable"):
                self._refuse()
            self._state = "ending"
            for queue in self._queue.values():
                self._report(list(queue), KafkaError._PURGE_QUEUE)
            for place, batch in self._batches.items():
                self._bumps = True
                self._report(batch.some, KafkaError._PURGE_INFLIGHT, place=place)
            self._queue.clear(), self._batches.clear()
        self._tell()
        self._calls.wait("abort", self._abort, timeout)
        self._state = "ready"

    async def _abort(self) -> None:
        await (self._init() if self._bumps else self._end(False))


def _only(answer: Any) -> list[int]:
    return [answer.error]


class GroupMetadata(NamedTuple):
    """What `consumer_group_metadata` says."""

    group: str
    member: str
    generation: int
    instance: str | None
