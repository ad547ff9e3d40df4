"""Orders come from a topic and go to a table; Kafka keeps how far they were read. A kill may come between the two.

This is a program as it would be without waterclock: aiokafka's consumer, and a table with `write`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from aiokafka import AIOKafkaConsumer


class Table(Protocol):
    """The database: a row of a key that is there already is replaced."""

    async def write(self, rows: Mapping[bytes, int]) -> None: ...


def orders(bootstrap: str) -> AIOKafkaConsumer:
    return AIOKafkaConsumer(
        "orders", bootstrap_servers=bootstrap, group_id="booker", enable_auto_commit=False, auto_offset_reset="earliest"
    )


async def commit_first(bootstrap: str, table: Table) -> None:
    """Wrong: killed between its two steps, it has said that it booked what it did not."""
    async with orders(bootstrap) as consumer:
        async for order in consumer:
            await consumer.commit()
            await table.write({order.value: order.offset})


async def write_first(bootstrap: str, table: Table) -> None:
    """Right: killed between its two steps, it reads the order again, and writes the same row again."""
    async with orders(bootstrap) as consumer:
        async for order in consumer:
            await table.write({order.value: order.offset})
            await consumer.commit()
