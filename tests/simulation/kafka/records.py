"""Requests about records: Produce, Fetch with its sessions, ListOffsets, DeleteRecords."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any, NamedTuple

from tests.simulation.kafka.batches import Batch, batches
from tests.simulation.kafka.codes import DELETE_RECORDS, FETCH, LIST_OFFSETS, PRODUCE
from tests.simulation.kafka.encoding import Answer, by_topic, compact, compact_array, data_of, text
from tests.simulation.kafka.requests import Place, Requests

EARLIEST, LATEST = -2, -1
Produced = tuple[str, int, int, int]  # topic, partition, error, base offset


class Fetched(NamedTuple):
    """What a fetch says of a partition."""

    error: int
    high: int
    stable: int
    aborted: list[tuple[int, int]]
    batches: list[Batch]


class FetchSession:
    """Of incremental fetches (KIP-227): what the broker remembers of what is wanted."""

    def __init__(self) -> None:
        self.id = self.epoch = 0
        self.known: dict[Place, tuple[int, int]] = {}

    def change(self, wants: list[tuple[Place, int, int]]) -> tuple[list[tuple[Place, int, int]], list[Place]]:
        """What of these the broker does not know yet, and what it is to forget."""
        now = {tp: (offset, limit) for tp, offset, limit in wants}
        if not self.epoch:
            self.known = {}
        new = [(tp, *now[tp]) for tp in now if self.known.get(tp) != now[tp]]
        gone = [tp for tp in self.known if tp not in now]
        self.known = now
        return new, gone

    def told(self, error: int, number: int) -> None:
        self.id, self.epoch = (0, 0) if error or not number else (number, self.epoch + 1)


class RecordRequests(Requests):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.starts: dict[Place, int] = {}  # the logs' starts, as fetches told them last

    def produce_request(
        self, rows: Iterable[tuple[str, int, bytes]], transactional_id: str | None = None, timeout_ms: int = 10_000
    ) -> bytes:
        """The body of Produce 7."""
        found = by_topic((topic, struct.pack(">i", partition) + data_of(data)) for topic, partition, data in rows)
        return text(transactional_id) + struct.pack(">hi", -1, timeout_ms) + found

    def produce_request_2(
        self, rows: Iterable[tuple[str, int, bytes]], transactional_id: str | None, timeout_ms: int = 10_000
    ) -> bytes:
        """The body of Produce 12."""
        topics: dict[str, list[bytes]] = {}
        for topic, partition, data in rows:
            topics.setdefault(topic, []).append(struct.pack(">i", partition) + compact(data) + b"\0")
        found = compact_array(compact(topic) + compact_array(some) + b"\0" for topic, some in topics.items())
        return compact(transactional_id) + struct.pack(">hi", -1, timeout_ms) + found + b"\0"

    @staticmethod
    def produced(answer: Answer) -> list[Produced]:
        found = []
        for _ in range(answer.take("i")):
            topic = answer.text() or ""
            for _ in range(answer.take("i")):
                partition, error, base, _, _ = answer.take("ihqqq")
                found.append((topic, partition, error, base))
        return found

    @staticmethod
    def produced_2(answer: Answer) -> list[Produced]:
        found = []
        for _ in range(answer.uvarint() - 1):
            topic = (answer.compact() or b"").decode()
            for _ in range(answer.uvarint() - 1):
                partition, error, base, _, _ = answer.take("ihqqq")
                for _ in range(answer.uvarint() - 1):
                    answer.take("i")
                    answer.compact()
                    answer.tags()
                answer.compact()
                answer.tags()
                found.append((topic, partition, error, base))
            answer.tags()
        return found

    async def produce(self, tp: Place, data: bytes) -> tuple[int, int]:
        """Error and base offset of one batch."""
        [(_, _, error, base)] = self.produced(await self.call(PRODUCE, 7, self.produce_request([(*tp, data)])))
        return error, base

    async def fetch(
        self,
        wants: list[tuple[Place, int, int]],
        committed: bool,
        wait_ms: int = 500,
        most: int = 1 << 20,
        session: FetchSession | None = None,
    ) -> dict[Place, Fetched]:
        """What there is of `wants`: (partition, offset, bytes). In a session: what changed."""
        new, gone, number, epoch = wants, [], 0, -1
        if session is not None:
            new, gone = session.change(wants)
            number, epoch = session.id, session.epoch
        rows = by_topic((tp[0], struct.pack(">iiqqi", tp[1], -1, offset, -1, limit)) for tp, offset, limit in new)
        head = struct.pack(">iiiibii", -1, wait_ms, 1, most, 1 if committed else 0, number, epoch)
        forgotten = by_topic((topic, struct.pack(">i", partition)) for topic, partition in gone)
        answer = await self.call(FETCH, 11, head + rows + forgotten + text(""), 20.0)
        _, error, number = answer.take("ihi")
        if session is not None:
            session.told(error, number)
        if error:
            return {tp: Fetched(error, -1, -1, [], []) for tp, *_ in wants}
        return self._fetched(answer)

    def _fetched(self, answer: Answer) -> dict[Place, Fetched]:
        found = {}
        for _ in range(answer.take("i")):
            topic = answer.text() or ""
            for _ in range(answer.take("i")):
                partition, error, high, stable, start = answer.take("ihqqq")
                aborted = [answer.take("qq") for _ in range(max(0, answer.take("i")))]
                answer.take("i")
                found[topic, partition] = Fetched(error, high, stable, aborted, batches(answer.bytes()))
                self.starts[topic, partition] = start
        return found

    async def list_offset(self, tp: Place, when: int, committed: bool = False) -> tuple[int, int]:
        row = struct.pack(">iiq", tp[1], -1, when)
        body = struct.pack(">ib", -1, 1 if committed else 0) + by_topic(((tp[0], row),))
        answer = await self.call(LIST_OFFSETS, 4, body)
        answer.take("i")
        answer.take("i")
        answer.text()
        answer.take("i")
        _, error, _, offset, _ = answer.take("ihqqi")
        return error, offset

    async def end_offset(self, tp: Place, committed: bool = False) -> tuple[int, int]:
        return await self.list_offset(tp, LATEST, committed)

    async def delete_records(self, tp: Place, before: int) -> tuple[int, int]:
        """Error, and the log's start."""
        body = by_topic(((tp[0], struct.pack(">iq", tp[1], before)),)) + struct.pack(">i", 10_000)
        answer = await self.call(DELETE_RECORDS, 1, body, 15.0)
        answer.take("i")
        answer.take("i")
        answer.text()
        answer.take("i")
        _, start, error = answer.take("iqh")
        return error, start
