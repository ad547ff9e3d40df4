"""Who writes, and who reads everything: `python -m waterclock.bench.damage.clients KIND ADDRESS write|read|checking`.

Rule 1: in a process of its own, since librdkafka ends the process that reads certain garbage.
Rule 2: what a message holds is made of its number, which is its place in the log too: the reader knows what must be there.
Rule 3: written is what was acknowledged, a reader's position after `TAKEN` messages too.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from collections.abc import Iterable
from typing import Any, Final

TOPIC, GROUP = "plain", "readers"
MANY, TAKEN, AT_ONCE, SINGLY = 2200, 100, 50, 100  # messages; of the last ones each is acknowledged before the next
BYTES: Final = 2500
STUCK_S: Final = 10.0  # nothing comes any more
Found = Iterable[tuple[int, bytes]]


def value(number: int) -> bytes:
    return random.Random(number).randbytes(BYTES)


def written_at_once() -> list[range]:
    """The messages by what is acknowledged together."""
    many = [range(first, first + AT_ONCE) for first in range(0, MANY - SINGLY, AT_ONCE)]
    return [*many, *(range(number, number + 1) for number in range(MANY - SINGLY, MANY))]


def view(found: Found, errors: list[str], taken: int, stuck: bool) -> dict[str, Any]:
    """What a reader has; `stuck`: it came not to what the server calls the end, and was told nothing."""
    right, wrong = set[int](), 0
    for number, body in found:
        if number not in right and 0 <= number < MANY and body == value(number):
            right.add(number)
        else:
            wrong += 1
    return {"right": len(right), "wrong": wrong, "errors": errors, "taken": taken, "stuck": stuck}


def kafka_write(address: str) -> None:
    from confluent_kafka import Consumer, Producer, TopicPartition
    from confluent_kafka.admin import AdminClient, NewTopic

    topic = NewTopic(TOPIC, 1, 1, config={"segment.bytes": str(1 << 20)})
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([topic])[TOPIC].result()
    producer = Producer({"bootstrap.servers": address, "acks": "all", "enable.idempotence": True})
    refused: list[Any] = []
    for numbers in written_at_once():
        for number in numbers:
            producer.produce(TOPIC, value(number), str(number), 0, lambda error, _: refused.append(error))
        assert producer.flush(30) == 0
    assert refused == [None] * MANY
    reader = Consumer({"bootstrap.servers": address, "group.id": GROUP})
    reader.commit(offsets=[TopicPartition(TOPIC, 0, TAKEN)], asynchronous=False)
    reader.close()


def kafka_read(address: str, checking: bool) -> dict[str, Any]:
    from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, TopicPartition

    settings = {"bootstrap.servers": address, "group.id": GROUP, "enable.auto.commit": False, "check.crcs": checking}
    reader = Consumer({**settings, "auto.offset.reset": "earliest", "enable.partition.eof": True})
    found, errors, taken, stuck = dict[int, bytes](), list[str](), -1, False
    try:
        reader.assign([TopicPartition(TOPIC, 0, OFFSET_BEGINNING)])
        last_s, at_end = time.monotonic(), False
        while not (errors or at_end or stuck):
            for message in reader.consume(500, 0.5):
                last_s = time.monotonic()
                if not message.error():
                    found[message.offset()] = message.value() or b""
                elif message.error().name() == "_PARTITION_EOF":
                    at_end = True
                else:
                    errors.append(str(message.error()))
            stuck = time.monotonic() - last_s > STUCK_S
        taken = reader.committed([TopicPartition(TOPIC, 0)], timeout=STUCK_S)[0].offset
    except KafkaException as error:
        errors.append(str(error))
    return view(found.items(), errors, taken, stuck)


async def nats_write(address: str) -> None:
    import nats

    client = await nats.connect(address)
    stream = client.jetstream(timeout=30)
    await stream.add_stream(name=TOPIC, subjects=[TOPIC], max_bytes=8 << 20, storage="file")
    for numbers in written_at_once():
        answers = [await stream.publish_async(TOPIC, value(number)) for number in numbers]
        assert [(await answer).seq for answer in answers] == [number + 1 for number in numbers]
    reader = await stream.pull_subscribe(TOPIC, durable=GROUP)
    for message in await reader.fetch(TAKEN, timeout=30):
        await message.ack_sync(timeout=30)
    await asyncio.sleep(2)  # a kill before that takes the acknowledged position along, without any damage
    await client.close()


async def nats_read(address: str) -> dict[str, Any]:
    import nats
    from nats.js.api import ConsumerConfig

    found, errors, taken, stuck = dict[int, bytes](), list[str](), -1, False
    try:
        client = await nats.connect(address, connect_timeout=10, max_reconnect_attempts=2)
        stream = client.jetstream(timeout=STUCK_S)
        last = (await stream.stream_info(TOPIC)).state.last_seq - 1
        reader = await stream.pull_subscribe(TOPIC, config=ConsumerConfig(max_ack_pending=-1))
        try:
            while last >= 0 and last not in found:
                for message in await reader.fetch(500, timeout=STUCK_S):
                    found[message.metadata.sequence.stream - 1] = message.data
        except nats.errors.TimeoutError:
            stuck = True
        taken = (await stream.consumer_info(TOPIC, GROUP)).ack_floor.stream_seq
    except nats.errors.Error as error:
        errors.append(str(error))
    return view(found.items(), errors, taken, stuck)


def redis_write(address: str) -> None:
    import redis

    client = redis.Redis.from_url(f"redis://{address}")
    for numbers in written_at_once():
        pipe = client.pipeline(transaction=False)
        for number in numbers:
            pipe.xadd(TOPIC, {"v": value(number)}, id=f"{number + 1}-0")
        pipe.execute()
        if numbers[0] == MANY // 2:
            client.bgrewriteaof()
            while client.info("persistence")["aof_rewrite_in_progress"]:
                time.sleep(0.1)
    client.xgroup_create(TOPIC, GROUP, id="0")
    taken = client.xreadgroup(GROUP, "one", {TOPIC: ">"}, count=TAKEN)
    client.xack(TOPIC, GROUP, *(place for place, _ in taken[0][1]))


def redis_read(address: str) -> dict[str, Any]:
    import redis

    client, found, errors, taken = redis.Redis.from_url(f"redis://{address}"), dict[int, bytes](), list[str](), -1
    try:
        for place, fields in client.xrange(TOPIC):
            found[int(place.split(b"-")[0]) - 1] = fields.get(b"v", b"")
        for group in client.xinfo_groups(TOPIC):
            taken = int(group["last-delivered-id"].split(b"-")[0]) - group["pending"]
    except redis.RedisError as error:
        errors.append(str(error))
    return view(found.items(), errors, taken, False)


def main(kind: str, address: str, what: str) -> None:
    """The reader's view goes to stdout, as JSON."""
    if kind == "kafka":
        told = kafka_write(address) if what == "write" else kafka_read(address, what == "checking")
    elif kind == "nats":
        told = asyncio.run(nats_write(address) if what == "write" else nats_read(address))
    else:
        told = redis_write(address) if what == "write" else redis_read(address)
    print(json.dumps(told))


if __name__ == "__main__":
    main(*sys.argv[1:])
