"""What a relay costs while Kafka is away, and how many clients it has at all."""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, ConfigResource

from tests.relay.lapping import cut_off, lapping
from tests.relay.world import World, step_until
from waterclock.kafka.admin import Admin
from waterclock.kafka.settings import base_settings
from waterclock.relay.owner.context import staying
from waterclock.testing import Broker

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at threads in /proc")
TASKS = Path("/proc/self/task")


@pytest.fixture
def relay_broker(tmp_path: Path) -> Iterator[Broker]:
    """One of the test's own, which can be away."""
    with Broker(tmp_path / "broker", settings={"group.initial.rebalance.delay.ms": "0"}) as broker:
        yield broker


def threads() -> dict[str, str]:
    """librdkafka's threads of this process: id -> name."""
    found = {}
    for task in TASKS.iterdir():
        with suppress(OSError):  # it has just ended
            found[task.name] = (task / "comm").read_text().strip()
    return {task: name for task, name in found.items() if name.startswith("rdk:")}


def processor_s(tasks: set[str]) -> float:
    """Processor time of these, in s."""
    ticks = 0
    for task in tasks:
        with suppress(OSError):
            user, system = (TASKS / task / "stat").read_text().rpartition(")")[2].split()[11:13]
            ticks += int(user) + int(system)
    return ticks / os.sysconf("SC_CLK_TCK")


def test_a_relay_has_one_client_that_asks_and_four_in_all(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one partition, alone in its group: the group's, the one that asks, the logs', the partition's producer. It had six
    that ask, each with threads and connections of its own."""
    made: list[AdminClient] = []
    real = AdminClient.__init__

    def counted(self: AdminClient, *arguments: Any, **named: Any) -> None:
        made.append(self)
        real(self, *arguments, **named)

    before = set(threads())
    monkeypatch.setattr(AdminClient, "__init__", counted)
    relay = lapping(world)
    step_until(lambda: [name for task, name in threads().items() if task not in before].count("rdk:main") == 4, relay)
    cut_off(world, relay)  # targets, laps, snapshots and trims
    world.advance_ms(600_000)
    for _ in range(3):  # the group, the topics and their settings
        relay.step(0.1)
    assert made == [relay._watcher.client]


def test_a_question_that_waits_for_kafka_uses_no_processor(world: World) -> None:
    """The story: 4:22 minutes of processor time in 6:44, of a relay that had nothing to do. Two threads of librdkafka spin
    while a question waits for a controller that is known and away. Processor time: a machine that is busy makes it less."""
    before = set(threads())
    client = Admin(staying(base_settings(world.broker.bootstrap, {}))).client
    topic = ConfigResource(ConfigResource.Type.TOPIC, world.topic)

    def ask() -> list[Any]:
        described = client.describe_topics(TopicCollection([world.topic]), request_timeout=4)
        return [*described.values(), *client.describe_configs([topic], request_timeout=4).values()]

    for one in ask():
        one.result()
    world.broker.cut_power()
    own = set(threads()) - before
    used_s = processor_s(own)
    for one in ask():
        with pytest.raises(KafkaException):
            one.result()
    assert processor_s(own) - used_s < 0.5
    world.broker.start()


@pytest.mark.parametrize("kind", ["reads", "asks"])
def test_the_pause_between_two_attempts_to_connect_grows_to_seconds(kind: str) -> None:
    """A machine that is busy makes the pauses longer, not more. What stands in the way accepts, and hangs up at once."""
    with socket.create_server(("127.0.0.1", 0)) as door:
        door.settimeout(30)
        settings = staying(base_settings(f"127.0.0.1:{door.getsockname()[1]}", {}))
        client: Any = Admin(settings) if kind == "asks" else Consumer({**settings, "group.id": "g"})
        moments: list[float] = []
        while len(moments) < 2 or moments[-1] - moments[-2] < 1:
            door.accept()[0].close()
            moments.append(time.monotonic())
            assert len(moments) <= 9, "50 ms, and twice as long each time, are a second after five of them"
        del client
