"""A world for a test of the relay: topics, relays that can crash, what readers of committed records see.

A crash is a value: `crash` leaves a relay where it stands. Its files are let go without a checkpoint, its connections stay
open for now, as those of a process do that Kafka takes for living.
"""

from __future__ import annotations

import json
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

from tests.relay.reader import QUICK, Reader, Seen
from waterclock.clock import ManualClock, WallClock
from waterclock.errors import WaterclockError
from waterclock.kafka.admin import Admin
from waterclock.kafka.settings import base_settings
from waterclock.relay import command
from waterclock.relay.options import RelayOptions
from waterclock.relay.relay import Relay
from waterclock.relay.wire.topics import Topics, prepare
from waterclock.testing import Broker

PATIENCE_S = 30


def nobody(*arguments: Any) -> Any:
    raise AssertionError("no broker is started here, and no outbox taken")


class World:
    """`target` is the topic that messages go to, `lost` what the relays said of breaks."""

    def __init__(self, broker: Broker, folder: Path, topic: str, partitions: int = 1) -> None:
        self.broker, self.folder, self.topic, self.partitions = broker, folder, topic, partitions
        self.target = f"{topic}.to"
        self.clock = ManualClock()
        self.lost: list[WaterclockError] = []
        self._relays: list[Relay] = []
        self._producer = Producer({**base_settings(broker.bootstrap, QUICK), "linger.ms": 0})
        self.admin = Admin(base_settings(broker.bootstrap, QUICK))
        self.admin.make(self.target, 1)
        self.prepare()

    def __enter__(self) -> World:
        return self

    def __exit__(self, *_: object) -> None:
        for relay in self._relays:
            relay.close()

    # Relays

    def options(self) -> Namespace:
        """The options of `waterclock relay`, as a process of its own would have them."""
        parser = ArgumentParser()
        command.add_to(parser, nobody, nobody)
        folder = str(self.folder / "cli")
        return parser.parse_args(
            ["--bootstrap", self.broker.bootstrap, "--topic", self.topic, "--folder", folder, "--partitions", "1"]
        )

    def relay(self, place: str = "one", clock: WallClock | None = None, **options: Any) -> Relay:
        """One that has the partitions it is given; `place` is its folder, and its name in the group."""
        made = {
            "servers": self.broker.bootstrap,
            "topic": self.topic,
            "folder": self.folder / place,
            "group": self.topic,
            "settings": QUICK,
        }
        settings = RelayOptions(**{**made, "partitions": self.partitions, "name": place, **options})
        relay = Relay(settings, clock or self.clock, self.lost.append)
        self._relays.append(relay)
        return relay

    def started(self, place: str = "one", **options: Any) -> Relay:
        """One that owns all partitions, and has read what there is."""
        relay = self.relay(place, **options)
        step_until(lambda: self._is_ready(relay), relay)
        return relay

    def _is_ready(self, relay: Relay) -> bool:
        return len(relay.owners) == self.partitions and all(owner.has_caught_up for owner in relay.owners.values())

    def crash(self, relay: Relay) -> None:
        """Nothing more of it happens, but that Kafka may take it for living; not its guest in the group, which has no name
        and is forgotten after its session."""
        relay._unassigned.close()
        for owner in relay.owners.values():
            owner.store.close()
        for follower in relay.standby.followers.values():
            follower.store.close()
        relay.owners.clear()
        relay.standby.followers.clear()

    def close(self, relay: Relay) -> None:
        """End it as Ctrl-C does."""
        self._relays.remove(relay)
        relay.close()

    # Requests

    def put(self, value: bytes | None, *, key: bytes | None = None, partition: int = 0, **headers: Any) -> None:
        """A record of the input; `_` in a header's name is `-`."""
        self._give(value, _headers(headers), key, partition)
        self._flush()

    def put_raw(self, value: bytes | None, headers: Any, key: bytes | None = None, partition: int = 0) -> None:
        self._give(value, headers, key, partition)
        self._flush()

    def send(self, *values: str, in_ms: int = 1_000, id: str = "", **more: Any) -> None:
        """Messages for the target, due so many ms after the world's present."""
        named = {"delay_id": id} if id else {}
        key, partition = more.pop("key", None), more.pop("partition", 0)
        headers = _headers({"deliver_to": self.target, "deliver_at": self.now_ms + in_ms, **named, **more})
        for value in values:
            self._give(value.encode(), headers, key, partition)
        self._flush()

    def _give(self, value: bytes | None, headers: Any, key: bytes | None, partition: int) -> None:
        self._producer.produce(self.topic, value, key, partition, headers=headers)

    def _flush(self) -> None:
        assert self._producer.flush(10) == 0

    @property
    def now_ms(self) -> int:
        return self.clock.wall_ms()

    def advance_ms(self, ms: int) -> None:
        self.clock.advance_s(ms / 1000)

    # Topics

    def prepare(self) -> None:
        """The relay's topics are there."""
        prepare(self.admin, Topics.of(self.topic), self.partitions, self.broker.bootstrap)

    def alter(self, topic: str, name: str, value: object) -> None:
        """As `kafka-configs.sh --alter` does."""
        entry = ConfigEntry(name, str(value), incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
        self.admin.client.incremental_alter_configs([resource])[resource].result()

    def remove(self, topic: str) -> None:
        """Delete it."""
        self.admin.client.delete_topics([topic])[topic].result()

    def cut(self, offset: int, topic: str = "") -> None:
        """Delete what stands before the offset, of the input by default."""
        place = TopicPartition(topic or self.topic, 0, offset)
        self.admin.client.delete_records([place])[place].result(10)

    # What readers see

    def seen(self, topic: str = "") -> list[Seen]:
        """All that is committed in a topic, the target by default: partition by partition."""
        reader = Reader(self.broker, [topic or self.target])
        found = sorted(reader.news()[topic or self.target], key=lambda one: one.partition)
        reader.close()
        return found

    def values(self, topic: str = "") -> list[str]:
        return [(seen.value or b"").decode() for seen in self.seen(topic)]

    def replies(self) -> list[tuple[str, str, int]]:
        told = map(json.loads, self.values(f"{self.topic}.replies"))
        return [(one["id"], one["outcome"], one["count"]) for one in told]

    def letters(self) -> list[dict[str, bytes | None]]:
        return [dict(seen.headers) for seen in self.seen(f"{self.topic}.dead")]


def _headers(named: dict[str, Any]) -> list[tuple[str, bytes]]:
    return [(name.replace("_", "-"), str(text).encode()) for name, text in named.items()]


def step_until(condition: Callable[[], object], *relays: Relay) -> None:
    """Steps of each relay in turn, until it is so."""
    until_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < until_s, f"it took too long: {[state_of(relay) for relay in relays]}"
        for relay in relays:
            relay.step(0.01)


def state_of(relay: Relay) -> str:
    assigned = [each.partition for each in relay._member.consumer.assignment()]
    read = {number: (owner.position, owner._reached, owner.reads_to) for number, owner in relay.owners.items()}
    return f"{relay._options.name} owns {read} of {assigned}, waits for {relay._pending} {relay._member.given}"


def step_quietly(*relays: Relay) -> None:
    """Steps until the relays have read to the end of their inputs, and nothing is left to do at this moment."""
    step_until(lambda: all(map(_is_quiet, relays)) and not sum(relay.step(0.01) for relay in relays), *relays)


def _is_quiet(relay: Relay) -> bool:
    ends = {number: relay._logs.bounds(relay.topics.input, number)[1] for number in relay.owners}
    return all(
        max(owner.position, owner._reached) >= ends[number] and not owner.waiting and not owner.letters
        for number, owner in relay.owners.items()
    )
