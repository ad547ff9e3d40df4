"""A relay as a process. Started while Kafka is away it waits, says so, and ends with the remedy when that lasts. Memory
that is free goes back to the system: after much was done, when nothing is to be done.
"""

from __future__ import annotations

import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.relay.test_rights import CAROL, SETTINGS
from tests.relay.world import World
from waterclock import cli
from waterclock.broker import Access
from waterclock.clock import ManualClock, SystemClock
from waterclock.errors import EnvironmentMissing, UsageError, WaterclockError
from waterclock.kafka.settings import base_settings
from waterclock.relay import process
from waterclock.relay.options import RelayOptions
from waterclock.relay.process import EVERY_NS, FLOOD, QUIET_S, MemoryTrim, begun
from waterclock.relay.relay import Relay
from waterclock.testing import Broker


@pytest.fixture
def broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Broker]:
    """One of the test's own; nothing pauses."""
    monkeypatch.setattr(process, "ATTEMPT_S", 0.0)
    monkeypatch.setattr(process, "AGAIN_AFTER_S", 0.01)
    with Broker(tmp_path / "broker", settings={"group.initial.rebalance.delay.ms": "0"}) as broker:
        yield broker


def test_a_relay_that_is_started_while_kafka_is_away_waits_and_says_so(broker: Broker, tmp_path: Path) -> None:
    """It ended after half a minute without a word of what to mend."""
    settings, heard = base_settings(broker.bootstrap, {}), list[str]()
    options = RelayOptions(broker.bootstrap, "delays", tmp_path / "files", "group", 1)
    broker.cut_power()

    def said(error: WaterclockError) -> None:
        if not heard:
            broker.start()
        heard.append(str(error))

    relay = begun(settings, "delays", lambda: Relay(options), said, SystemClock())
    relay.close()
    assert set(heard) == {f"Kafka at {broker.bootstrap} is away: it is waited for, for 300 seconds at most."}


def test_so_does_one_that_loses_kafka_while_it_begins(broker: Broker) -> None:
    heard, ends = list[WaterclockError](), [EnvironmentMissing("gone"), None]

    def begin() -> str:
        if (error := ends.pop(0)) is not None:
            raise error
        return "begun"

    settings = base_settings(broker.bootstrap, {})
    assert begun(settings, "delays", begin, heard.append, ManualClock()) == "begun"
    assert len(heard) == 1


@pytest.mark.long(seconds=5)
def test_when_that_lasts_it_ends_with_the_remedy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "PATIENCE_S", 0.0)
    assert cli.main(["relay", "--bootstrap", "127.0.0.1:1", "--folder", str(tmp_path)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("waterclock: no broker answers at 127.0.0.1:1 (")
    assert line.endswith("): start it, or mend --bootstrap. It was waited for, for 0 seconds.")


def test_a_refusal_ends_it_at_once() -> None:
    with (
        Broker(access=Access(users=("admin:secret", "carol:another")), settings=SETTINGS) as broker,
        pytest.raises(UsageError, match=r"refuses the client: .* Look at --kafka-config"),
    ):
        begun({**base_settings(broker.bootstrap, {}), **CAROL}, "delays", print, pytest.fail, SystemClock())


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
    assert process.serve(world.options()) == 0
    assert world.values() == ["a", "b", "c"]


class Reached(Exception):
    """As far as a test goes."""


def test_a_relays_process_may_open_as_many_files_as_the_machine_allows(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thirty partitions with messages of a day have more than the usual 1,024."""

    def reached(*arguments: object) -> None:
        raise Reached

    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    monkeypatch.setattr(process, "_servers", reached)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limits[1] - 1, limits[1]))
        with pytest.raises(Reached):
            process.serve(world.options())
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (limits[1], limits[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
