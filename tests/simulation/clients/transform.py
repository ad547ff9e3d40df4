"""Consume, transform, produce: each input has one output, whatever happens."""

from __future__ import annotations

from typing import Any

from tests.simulation.clients.places import INPUT, OUTPUT
from tests.simulation.clients.transactions import Transactions
from tests.simulation.kafka.batches import Record, read, value_of
from tests.simulation.kafka.fetching import fetch
from tests.simulation.promises import Txn, Write


class Transformer(Transactions):
    """`position` is where it reads on; None if the group has to be asked."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args, id="transform")
        self.position: int | None = None

    async def work(self) -> None:
        if self.owner is None:
            self.position = None
            await self.init()
        if self.position is None:
            error, offset = await self.kafka.fetch_offset("transform", INPUT)
            if error:
                return await self.go_elsewhere("offset", error)
            self.position = max(0, offset)
        found = (await fetch(self.kafka, [(INPUT, self.position, 1 << 20)], True, 200))[INPUT]
        if found.error:
            return await self.go_elsewhere("fetch", found.error)
        records = [one for one in read(found.batches, found.aborted) if one.offset >= self.position][:3]
        if not records:
            if found.batches:
                self.position = max(self.position, found.batches[-1].last + 1)
            return await self.pause(0.01, 0.1)
        txn = self.history.txn(self.id, self.owner)
        await self.whole(txn, lambda: self.pass_on(txn, records))
        return None

    def outputs(self, txn: Txn, records: list[Record]) -> list[Write]:
        writes = []
        for record in records:
            write = self.history.write(OUTPUT, f"{self.id}/{self.producer}/{self.epoch}", txn)
            self.history.sources[write.value] = value_of(record)
            writes.append(write)
        return writes

    async def pass_on(self, txn: Txn, records: list[Record]) -> bool:
        writes, key, after = self.outputs(txn, records), (self.producer, self.epoch), records[-1].offset + 1
        sequence = self.next.get(key, 0)
        self.history.asks_offset("transform", INPUT, after)
        if not await self.add([OUTPUT]) or not await self.sent(OUTPUT, writes, sequence):
            await self.end(txn, False)
            return False
        self.next[key] = sequence + len(writes)
        if not await self.offsets("transform", INPUT, after):
            await self.end(txn, False)
            return False
        if not await self.end(txn, True):
            return False
        self.position = after
        if self.universe.ends_rise:  # who asks from now on finds it: nobody else writes there
            for write in writes:
                if write.offset is not None:
                    self.history.at_least(OUTPUT, "stable", write.offset + 1)
        self.history.told_offset("transform", INPUT, after)
        if self.universe.ends_rise and self.rng.random() < 0.4:
            await self.look(self.history.highs.get((OUTPUT, "stable"), 0))
        return True

    async def look(self, floor: int) -> None:
        """A reader that asks after the answer finds the records, whoever else is slow."""
        error, end = await self.kafka.end_offset(OUTPUT, True)
        if not error:
            self.history.told_end(OUTPUT, "stable", end, floor)
