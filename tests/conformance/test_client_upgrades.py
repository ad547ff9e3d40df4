"""Real consumers that change their protocol one by one, as in a rolling upgrade: nobody stands idle, nothing is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

from tests.conformance.client_rolling import Rolled, Rolling

PARTITIONS = 6
NEW: dict[str, Any] = {"group.protocol": "consumer"}
TIMES: dict[str, Any] = {"group.protocol": "classic", "heartbeat.interval.ms": 200, "session.timeout.ms": 6000}
OLD = {
    "eager": {**TIMES, "partition.assignment.strategy": "range,roundrobin"},
    "cooperative": {**TIMES, "partition.assignment.strategy": "cooperative-sticky"},
}


@pytest.fixture
def rolling(bootstrap: str, new_topic: Callable[..., str], name: str) -> Iterator[Rolling]:
    with closing(Rolling(bootstrap, new_topic(PARTITIONS), PARTITIONS, name)) as one:
        yield one


@pytest.mark.parametrize("way", list(OLD))
@pytest.mark.long(seconds=4)
def test_one_is_replaced_there_and_back(rolling: Rolling, way: str) -> None:
    first = rolling.join("old-1", **OLD[way])
    second = rolling.join("new-1", **NEW)
    rolling.leave(first)
    rolling.join("old-2", **OLD[way])
    rolling.leave(second)


@pytest.mark.long(seconds=20)
def test_three_are_replaced_one_by_one_there_and_back(rolling: Rolling) -> None:
    replaced = [rolling.join(f"old-{number}", **OLD["eager"]) for number in range(3)]
    for kind, settings in (("new", NEW), ("back", OLD["eager"])):
        replaced = [replace(rolling, before, f"{kind}-{before.name}", settings) for before in replaced]


def replace(rolling: Rolling, before: Rolled, name: str, settings: dict[str, Any]) -> Rolled:
    """One more comes, then the one before it goes; each time while there is much to read."""
    rolling.write(500)
    came = rolling.join(name, **settings)
    rolling.write(500)
    rolling.leave(before)
    return came


@pytest.mark.long(seconds=20)
def test_three_are_stopped_and_started_one_by_one_there_and_back(rolling: Rolling) -> None:
    replaced = [rolling.join(f"old-{number}", **OLD["eager"]) for number in range(3)]
    for kind, settings in (("new", NEW), ("back", OLD["eager"])):
        came = []
        for before in replaced:
            rolling.write(500)
            rolling.leave(before)
            rolling.write(500)
            came.append(rolling.join(f"{kind}-{before.name}", **settings))
        replaced = came


@pytest.mark.long(seconds=20)
def test_three_go_back_to_a_cooperative_assignor_one_by_one(rolling: Rolling) -> None:
    replaced = [rolling.join(f"new-{number}", **NEW) for number in range(3)]
    replaced = [replace(rolling, before, f"back-{before.name}", OLD["cooperative"]) for before in replaced]


@pytest.mark.long(seconds=3)
def test_an_assignor_with_bytes_of_its_own_keeps_its_group_classic(rolling: Rolling) -> None:
    # librdkafka's cooperative-sticky puts such bytes into the shares from the second division on; Java's does not.
    old = [rolling.join(f"old-{number}", **OLD["cooperative"]) for number in range(2)]
    with pytest.raises(AssertionError, match="The group id does not exist"):
        rolling.join("new", **NEW)
    rolling.consumers.pop().close()
    rolling.write(500)
    rolling.settle()
    assert rolling.consumers == old
