"""What a person sees of a take-over that lasts: how far it is, and Ctrl-C is heard."""

from __future__ import annotations

import io
import signal
from dataclasses import replace
from typing import Any

import pytest

from tests.relay.world import World, step_quietly, step_until
from waterclock.clock import ManualClock
from waterclock.errors import ConnectionLost
from waterclock.relay import process
from waterclock.relay.options import RelayOptions
from waterclock.relay.relay import Relay
from waterclock.relay.statistics import PartitionStatistics, RelayStatistics
from waterclock.relay.watching.progress import Progress


class Terminal(io.StringIO):
    """A stderr that a person looks at."""

    def isatty(self) -> bool:
        return True


def settle_some(world: World) -> None:
    """Several records in TOPIC.settled."""
    relay = world.started()
    for number in range(5):
        world.send(str(number), in_ms=0)
        step_quietly(relay)
    world.close(relay)


def test_a_take_over_tells_how_far_it_has_read_what_is_settled(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("waterclock.relay.owner.take_over.REPORT_EVERY", 1)
    settle_some(world)
    heard: list[tuple[str, int, int]] = []
    made = RelayOptions(world.broker.bootstrap, world.topic, world.folder / "empty", world.topic)
    relay = Relay(made, world.clock, world.lost.append, lambda *told: heard.append(told))
    world._relays.append(relay)
    step_until(lambda: relay.owners, relay)
    logs, count, ends = zip(*heard, strict=True)
    assert set(logs) == {f"{world.topic}.settled-0"}
    assert len(count) >= 5
    assert list(count) == sorted(set(count))
    assert set(ends) == {relay._logs.bounds(f"{world.topic}.settled", 0)[1]}


def test_it_tells_so_wherever_the_records_stand(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """With one turn after another every second offset is that of a marker: the others may all be odd. Nothing was told."""
    monkeypatch.setattr("waterclock.relay.owner.take_over.REPORT_EVERY", 2)
    world._producer.produce(f"{world.topic}.settled", b"nothing of ours", partition=0)
    world._flush()
    settle_some(world)
    heard: list[int] = []
    made = RelayOptions(world.broker.bootstrap, world.topic, world.folder / "empty", world.topic)
    relay = Relay(made, world.clock, world.lost.append, lambda log, done, all: heard.append(done))
    world._relays.append(relay)
    step_until(lambda: relay.owners, relay)
    assert len(heard) >= 3


def test_on_a_terminal_it_is_one_line_twice_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", err := Terminal())
    clock = ManualClock()
    shown = Progress(clock, False)
    for done in range(0, 4_000, 1_000):
        shown.reading("delays.settled-0", done, 3_000_000)
        clock.advance_s(0.25)
    assert err.getvalue().split("\r\x1b[K")[1:] == [
        "reading delays.settled-0: 2,000 of 3,000,000 records   Ctrl-C ends"
    ]


def test_elsewhere_it_is_a_line_every_ten_seconds_and_none_of_what_is_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", err := io.StringIO())
    clock = ManualClock()
    shown = Progress(clock, False)
    reading = PartitionStatistics(0, 0, None, 1_000, 0, False, reads_to=3_001_000)
    for second in range(21):
        shown.reading("delays.settled-0", second, 3_000_000)
        clock.advance_s(1)
    shown.report(RelayStatistics(partitions={0: reading}))
    clock.advance_s(10)
    shown.report(RelayStatistics(partitions={0: reading}))
    for _ in range(30):
        shown.report(RelayStatistics(partitions={0: replace(reading, caught_up=True)}))
        clock.advance_s(1)
    shown.reading("delays.settled-1", 1, 2)
    assert err.getvalue().splitlines() == [
        "waterclock: reading delays.settled-0: 10 of 3,000,000 records",
        "waterclock: reading delays.settled-0: 20 of 3,000,000 records",
        "waterclock: 3,000,000 requests are to be read before anything is delivered",
    ]


def test_the_line_of_a_relay_that_still_reads_its_input_says_how_much_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", err := Terminal())
    clock = ManualClock()
    shown = Progress(clock, False)
    clock.advance_s(1)
    reading = PartitionStatistics(0, 0, None, 1_000, 0, False, reads_to=3_001_000)
    shown.report(RelayStatistics(partitions={0: reading, 1: replace(reading, caught_up=True)}))
    assert "3,000,000 requests to be read first" in err.getvalue()


def test_ctrl_c_while_a_log_is_read_ends_the_relay_and_the_next_start_goes_on(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("waterclock.relay.owner.take_over.REPORT_EVERY", 1)
    settle_some(world)
    world.send("later")
    real = process._reading

    def reading(shown: Any, stop: object, *told: Any) -> None:
        signal.raise_signal(signal.SIGINT)
        real(shown, stop, *told)

    monkeypatch.setattr(process, "_reading", reading)
    assert process.serve(world.options()) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("0 delivered, 0 pending in 0 partitions")
    relay = world.started()
    world.advance_ms(1_000)
    step_until(lambda: len(world.values()) == 6, relay)


def test_the_same_trouble_is_not_said_again_and_again(capsys: pytest.CaptureFixture[str]) -> None:
    clock = ManualClock()
    shown = Progress(clock, False)
    for second in range(60):
        shown.lost(ConnectionLost("Kafka is away: 1/1 brokers are down." if second != 20 else "It is slow."))
        clock.advance_s(1)
    away, slow = (
        "waterclock: Kafka is away: 1/1 brokers are down. Trying again.",
        "waterclock: It is slow. Trying again.",
    )
    assert capsys.readouterr().err.splitlines() == [away, slow, away, away]
