"""A relay is killed and stays away: the others go on with what it had, by signs of life before its session is over, else
within the session's timeout and a second."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tests.relay.brokers import BOTH, chosen, relays
from tests.relay.reader import Seen
from tests.relay.test_process_kills import check
from tests.relay.world import World
from waterclock.clock import SystemClock
from waterclock.relay.cluster.group import SESSION_MS

PARTITIONS: Final = 4
EVERY_MS: Final = 50
LASTING_MS: Final = SESSION_MS + 4_000
WITHOUT_SIGNS: Final = """
import sys
from waterclock.relay.cluster.signs import Signs
Signs._talk = lambda self: None
from waterclock.cli import main
sys.exit(main())
"""


@pytest.fixture(scope="module", params=BOTH)
def relay_broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Each of the two."""
    yield from chosen(request, tmp_path_factory)


def shares(admin: AdminClient, group_id: str) -> dict[str, set[int]]:
    """Which partitions each relay of the group has, by its name."""
    try:
        group = admin.describe_consumer_groups([group_id], request_timeout=5)[group_id].result()
    except KafkaException:  # a broker that started just now has no coordinator yet
        return {}
    return {
        member.group_instance_id: {place.partition for place in member.assignment.topic_partitions}
        for member in group.members
    }


def wait_until_shared(world: World, *names: str) -> dict[str, set[int]]:
    admin, until_s = world.admin.client, time.monotonic() + 60
    while True:
        found = shares(admin, world.topic)
        if set(found) == set(names) and all(len(each) == PARTITIONS // len(names) for each in found.values()):
            return found
        assert time.monotonic() < until_s, found
        time.sleep(0.1)


def wait_for(world: World, count: int, seconds: float = 60) -> list[Seen]:
    until_s = time.monotonic() + seconds
    while len(seen := world.seen()) < count:
        assert time.monotonic() < until_s, f"{len(seen)} of {count} came"
        time.sleep(0.2)
    return seen


def partition_of(seen: Seen) -> int:
    """Where its request stands."""
    return int((dict(seen.headers)["delayed-from"] or b"").decode().rsplit("-", 2)[1])


@pytest.mark.long(seconds=20)
@pytest.mark.parametrize(("signs", "most_ms"), [(True, SESSION_MS - 1_000), (False, SESSION_MS + 1_000)])
def test_a_dead_owners_timers_go_on_at_another_within_the_sessions_timeout_and_a_second(
    signs: bool, most_ms: int, relay_broker: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the kill to the first delivery of each of its partitions; nothing is lost, nothing comes twice."""
    if not signs:
        monkeypatch.setattr("tests.relay.brokers.MAIN", WITHOUT_SIGNS)
    with (
        World(relay_broker, tmp_path, f"dead-{tmp_path.parent.name}-{signs}", PARTITIONS) as world,
        relays(world, tmp_path) as start,
    ):
        world.clock = SystemClock()  # type: ignore[assignment]
        dead, _ = start("dead"), start("other")
        had = wait_until_shared(world, "dead", "other")["dead"]
        values = [str(number) for number in range(LASTING_MS // EVERY_MS * PARTITIONS)]
        for number, value in enumerate(values):
            partition, in_ms = number % PARTITIONS, 500 + number // PARTITIONS * EVERY_MS
            world.send(value, in_ms=in_ms, partition=partition)
        wait_for(world, 4 * PARTITIONS)
        dead.kill()
        killed_ms = world.now_ms
        seen = wait_for(world, len(values))
        first = {number: min(later(seen, number, killed_ms)) - killed_ms for number in had}
        print(f"first deliveries, ms after the kill: {first}")
        assert max(first.values()) <= most_ms
        assert min(first.values()) > 1_000  # it was gone
        check(world, values)


def later(seen: list[Seen], partition: int, than_ms: int) -> list[int]:
    """When the messages of a partition came after that, as who delivered them says."""
    return [one.timestamp_ms for one in seen if partition_of(one) == partition and one.timestamp_ms > than_ms]
