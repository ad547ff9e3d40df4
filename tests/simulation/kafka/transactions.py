"""Requests of transactional producers, by protocol 1 and, where a name ends in _2, by protocol 2."""

from __future__ import annotations

import struct
from collections.abc import Iterable

from tests.simulation.kafka.codes import ADD_OFFSETS, ADD_PARTITIONS, END, INIT, TXN_OFFSETS
from tests.simulation.kafka.encoding import array, by_topic, compact, text, uvarint
from tests.simulation.kafka.requests import Place, Requests


class TransactionRequests(Requests):
    async def init(self, name: str | None, timeout_ms: int = 10_000) -> tuple[int, int, int]:
        """Error, producer id, epoch."""
        answer = await self.call(INIT, 1, text(name) + struct.pack(">i", timeout_ms))
        _, error, producer, epoch = answer.take("ihqh")
        return error, producer, epoch

    async def add_partitions(self, name: str, producer: int, epoch: int, places: Iterable[Place]) -> int:
        rows = by_topic((topic, struct.pack(">i", partition)) for topic, partition in places)
        answer = await self.call(ADD_PARTITIONS, 2, text(name) + struct.pack(">qh", producer, epoch) + rows)
        answer.take("i")
        errors = []
        for _ in range(answer.take("i")):
            answer.text()
            errors += [answer.take("ih")[1] for _ in range(answer.take("i"))]
        return next((error for error in errors if error), 0)

    async def add_offsets(self, name: str, producer: int, epoch: int, group: str) -> int:
        body = text(name) + struct.pack(">qh", producer, epoch) + text(group)
        return (await self.call(ADD_OFFSETS, 2, body)).take("ih")[1]

    async def txn_offsets(self, name: str, producer: int, epoch: int, group: str, tp: Place, offset: int) -> int:
        row = struct.pack(">iqi", tp[1], offset, -1) + text("")
        body = text(name) + text(group) + struct.pack(">qh", producer, epoch) + array((text(tp[0]) + array((row,)),))
        return (await self.call(TXN_OFFSETS, 2, body)).first_error("i")

    async def txn_offsets_2(self, name: str, producer: int, epoch: int, group: str, tp: Place, offset: int) -> int:
        row = struct.pack(">iqi", tp[1], offset, -1) + compact("") + b"\0"
        topic = compact(tp[0]) + uvarint(2) + row + b"\0"
        body = compact(name) + compact(group) + struct.pack(">qhi", producer, epoch, -1) + compact("") + b"\0"
        answer = await self.call(TXN_OFFSETS, 5, body + uvarint(2) + topic + b"\0", flexible=True)
        answer.take("i")
        answer.uvarint()
        answer.compact()
        answer.uvarint()
        return answer.take("ih")[1]

    async def end(self, name: str, producer: int, epoch: int, commit: bool) -> tuple[int, int, int]:
        body = text(name) + struct.pack(">qhb", producer, epoch, commit)
        return (await self.call(END, 2, body, 15.0)).take("ih")[1], producer, epoch

    async def end_2(self, name: str, producer: int, epoch: int, commit: bool) -> tuple[int, int, int]:
        body = compact(name) + struct.pack(">qhb", producer, epoch, commit) + b"\0"
        _, error, producer, epoch = (await self.call(END, 5, body, 15.0, True)).take("ihqh")
        return error, producer, epoch
