"""Memory that is free goes back to the system: after much was done, when nothing is to be done."""

from __future__ import annotations

import signal
import subprocess
import sys
from argparse import Namespace

import pytest

from tests.relay.world import World
from waterclock.clock import ManualClock
from waterclock.relay import process
from waterclock.relay.process import EVERY_NS, FLOOD, QUIET_S, MemoryTrim

FRAGMENTS = """
from pathlib import Path
from waterclock.relay.process import give_back

def resident_mb():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6

many = [bytes(600) for _ in range(200_000)]
some = many[::1_000]  # so that no end of the heap is free
del many
before = resident_mb()
give_back()
print(before - resident_mb())
"""


@pytest.mark.skipif(process._trim is None, reason="this allocator cannot be asked")
def test_what_is_free_between_what_is_in_use_goes_back() -> None:
    out = subprocess.run([sys.executable, "-c", FRAGMENTS], capture_output=True, text=True, check=True).stdout
    assert float(out) > 80


def test_it_is_asked_for_after_a_flood_when_there_is_nothing_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[int]()
    monkeypatch.setattr(process, "give_back", lambda: asked.append(clock.monotonic_ns()))
    clock = ManualClock()
    kept = MemoryTrim(clock)
    kept.step(FLOOD - 1, QUIET_S)
    assert not asked
    kept.step(1, 0.0)
    assert not asked  # something is due
    kept.step(0, QUIET_S)
    assert len(asked) == 1
    kept.step(0, QUIET_S)
    kept.step(FLOOD, QUIET_S)
    assert len(asked) == 1
    clock.advance_s(EVERY_NS / 1e9)
    kept.step(0, QUIET_S)
    assert len(asked) == 2


def test_a_relays_process_says_what_it_read_and_delivered(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its deliveries, or without what it read, it would go on for ever."""
    monkeypatch.setattr(process, "FLOOD", 6)
    monkeypatch.setattr(process, "give_back", lambda: signal.raise_signal(signal.SIGINT))
    for value in (b"a", b"b", b"c"):
        world.put(value, deliver_to=world.target, deliver_at=1)
    options = Namespace(
        embedded=None, bootstrap=world.broker.bootstrap, topic=world.topic, folder=str(world.folder / "cli"), json=False,
        group=None, name=None, kafka_config=None, partitions=1, lap_bytes=1 << 30, metrics=None, standby="all",
        make_targets=False,
    )  # fmt: skip
    assert process.serve(options) == 0
    assert world.values() == ["a", "b", "c"]
