"""What a user might have: a shop that sends orders, and a biller that answers each with a bill, both by aiokafka.

python -m tests.simulation.users SEED...    the hash of each universe, and whether each order has its bill
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
import uuid
from collections.abc import Iterable
from typing import TYPE_CHECKING

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from waterclock.testing import universe

if TYPE_CHECKING:
    from waterclock.simulation.universe import Table, Universe

ORDERS = 60


async def shop(bootstrap: str, sent: Table) -> None:
    """Goes on where it was; what it does not know whether it sent it sends again."""
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True) as producer:
        for number in range(sent.get("next", 0), ORDERS):
            order = f"{number} {uuid.uuid4()} {time.time()}".encode()
            await producer.send_and_wait(random.choice(("orders", "returns")), order, key=b"%d" % number)
            await sent.write({"next": number + 1})
            await asyncio.sleep(random.random() / 10)


async def biller(bootstrap: str) -> None:
    """The bill and how far orders were read are one transaction: each order has one bill."""
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id="biller")
    async with (
        producer,
        AIOKafkaConsumer(
            "orders", "returns", bootstrap_servers=bootstrap, group_id="biller", enable_auto_commit=False,
            auto_offset_reset="earliest", isolation_level="read_committed",
        ) as consumer,
    ):  # fmt: skip
        while True:
            found = await consumer.getmany(timeout_ms=500, max_records=5)
            for part, orders in found.items():
                async with producer.transaction():
                    for order in orders:
                        await producer.send("bills", order.value, key=order.key)
                    await producer.send_offsets_to_transaction({part: orders[-1].offset + 1}, "biller")


async def reader(bootstrap: str) -> None:
    """One of a group of two, which share three topics anew whenever one of them is away."""
    consumer = AIOKafkaConsumer("orders", "returns", "bills", bootstrap_servers=bootstrap, group_id="readers")
    async with consumer:
        async for _ in consumer:
            await asyncio.to_thread(time.sleep, 0.001)


def history(seed: int, faults: Iterable[str] | None = None, seconds: float = 20) -> Universe:
    """A universe in which both have worked, and every order has its bill."""
    with universe(seed, faults) as world:
        for topic in ("orders", "returns", "bills"):
            world.topic(topic, partitions=2)
        sent = world.table()
        world.process("shop", shop, world.bootstrap, sent)
        world.process("biller", biller, world.bootstrap)
        for name in ("reader-a", "reader-b"):
            world.process(name, reader, world.bootstrap)
        world.run(seconds)
        world.settle(lambda: sent.get("next") == ORDERS)
        world.settle(seconds=60)
        orders, bills = (
            sorted(one.value for topic in some for one in world.records(topic))
            for some in (("orders", "returns"), ("bills",))
        )
        assert len(orders) >= ORDERS
        assert bills == orders
    return world


if __name__ == "__main__":
    for seed in map(int, sys.argv[1:]):
        print(seed, history(seed).digest)
