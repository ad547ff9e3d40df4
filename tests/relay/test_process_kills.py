"""Relays as processes that are killed with SIGKILL, or paused: nothing lost, nothing twice, nothing early."""

from __future__ import annotations

import os
import random
import resource
import signal
import time
from pathlib import Path

import pytest

from tests.relay.brokers import Start
from tests.relay.world import World


def wait_for(real: World, count: int, seconds: float = 60) -> None:
    until_s = time.monotonic() + seconds
    while len(real.seen()) < count:
        assert time.monotonic() < until_s, f"{len(real.seen())} of {count} came"
        time.sleep(0.05)


def check(real: World, values: list[str]) -> None:
    """Each once, none early, and of one partition in the order of due times."""
    seen = real.seen()
    assert sorted(one.value.decode() for one in seen if one.value) == sorted(values)
    dues: dict[str, int] = {}
    for one in seen:
        headers = dict(one.headers)
        origin, due_ms = (headers["delayed-from"] or b"").decode(), int(headers["delayed-until"] or b"")
        assert one.timestamp_ms >= due_ms
        partition = origin.rsplit("-", 1)[0]
        assert due_ms >= dues.get(partition, 0)
        dues[partition] = due_ms


def send(real: World, first: int, count: int, within_ms: int, chance: random.Random) -> list[str]:
    values = [str(number) for number in range(first, first + count)]
    due_ms = sorted(chance.randrange(within_ms) for _ in values)
    for value, ms in zip(values, due_ms, strict=True):
        real.send(value, in_ms=ms, partition=int(value) % 2)
    return values


def test_a_relay_that_is_killed_goes_on_where_it_was(real: World, start: Start) -> None:
    values = send(real, 0, 200, 1_500, random.Random(1))
    relay = start("one")
    wait_for(real, 20)
    relay.kill()
    relay.wait(10)
    start("one")
    wait_for(real, len(values))
    check(real, values)


@pytest.mark.long(seconds=20)
def test_one_that_is_paused_and_wakes_as_a_zombie_doubles_nothing(real: World, start: Start) -> None:
    one = start("one")
    values = send(real, 0, 100, 500, random.Random(4))
    wait_for(real, len(values))
    more = send(real, 100, 200, 1_000, random.Random(5))
    os.kill(one.pid, signal.SIGSTOP)
    start("two")
    wait_for(real, len(values) + len(more))
    os.kill(one.pid, signal.SIGCONT)
    last = send(real, 300, 100, 1_000, random.Random(6))
    wait_for(real, len(values) + len(more) + len(last))
    check(real, [*values, *more, *last])


@pytest.mark.long(seconds=15)
def test_one_whose_disk_is_full_lives_and_goes_on_when_there_is_room(real: World, start: Start, tmp_path: Path) -> None:
    """A limit on the size of files: a write fails in part or as a whole, as on a full disk."""
    relay = start("one")
    values = send(real, 0, 20, 100, random.Random(7))
    wait_for(real, len(values))
    resource.prlimit(relay.pid, resource.RLIMIT_FSIZE, (8_000, resource.RLIM_INFINITY))
    values += send(real, 20, 600, 100, random.Random(8))
    said, until_s = tmp_path / "one.txt", time.monotonic() + 30
    while "the disk does not take" not in said.read_text():
        assert time.monotonic() < until_s
        time.sleep(0.05)
    assert relay.poll() is None
    resource.prlimit(relay.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    wait_for(real, len(values))
    seen = [one.value.decode() for one in real.seen() if one.value]
    assert sorted(seen) == sorted(values)


@pytest.mark.long(seconds=60)
def test_many_kills_at_random_moments_under_load(real: World, start: Start, campaign_seed: int) -> None:
    chance = random.Random(campaign_seed)
    values: list[str] = []
    until_s = time.monotonic() + 30
    while time.monotonic() < until_s:
        relay = start("one")
        values += send(real, len(values), 200, 2_000, chance)
        time.sleep(chance.uniform(0.2, 3.0))
        relay.kill()
        relay.wait(10)
    start("one")
    wait_for(real, len(values))
    check(real, values)
