"""A take-over that lasts. A person sees how far it is, and Ctrl-C is heard. A new owner that has much to read stays in its
group: a group shuts out who asks for no records for too long.
"""

from __future__ import annotations

import io
import time
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.relay.world import World, step_quietly, step_until
from waterclock.clock import ManualClock
from waterclock.errors import ConnectionLost
from waterclock.relay import process
from waterclock.relay.owner import follow_ups, take_over, turn
from waterclock.relay.owner.take_over import Replay
from waterclock.relay.relay import Relay, RelayOptions
from waterclock.relay.statistics import PartitionStatistics, RelayStatistics
from waterclock.relay.watching.progress import Progress
from waterclock.testing import Broker


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

    def reading(shown: Any, stop: list[int], *told: Any) -> None:
        stop.append(2)  # what a signal does
        real(shown, stop, *told)

    monkeypatch.setattr(process, "_reading", reading)
    options = Namespace(
        embedded=None, bootstrap=world.broker.bootstrap, topic=world.topic, folder=str(world.folder / "cli"), json=False,
        group=None, name=None, kafka_config=None, partitions=1, lap_bytes=1 << 30, metrics=None, standby="all",
        make_targets=False,
    )  # fmt: skip
    assert process.serve(options) == 0
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


INTERVAL_MS = 1_500  # with less, librdkafka's own heartbeats come too late now and then
LONG = pytest.mark.long(seconds=8)


@pytest.fixture
def relay_broker(monkeypatch: pytest.MonkeyPatch) -> Iterator[Broker]:
    """One that takes sessions, and so intervals, that are short."""
    from waterclock.relay.cluster import group

    short = {"session.timeout.ms": INTERVAL_MS, "max.poll.interval.ms": INTERVAL_MS, "heartbeat.interval.ms": 100}
    monkeypatch.setattr(group, "_CONSUMER", {**group._CONSUMER, **short})
    settings = {"group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "100"}
    with Broker(settings=settings) as broker:
        yield broker


def slow(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> list[float]:
    """Have each call take a sixth of the interval; when they were."""
    calls, real = list[float](), getattr(owner, name)

    def slowly(*arguments: Any) -> Any:
        calls.append(time.monotonic())
        time.sleep(INTERVAL_MS / 6_000)
        return real(*arguments)

    monkeypatch.setattr(owner, name, slowly)
    return calls


def lasted_too_long(calls: list[float]) -> bool:
    return calls[-1] - calls[0] > 1.5 * INTERVAL_MS / 1000


def is_in_its_group(relay: Relay, world: World) -> bool:
    """Whether it was not shut out, which it hears some polls later."""
    for _ in range(20):
        relay.step(0.02)
    return bool(relay.owners) and not world.lost


def test_while_much_is_read_the_client_is_asked_for_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[tuple[int, int]]()

    class Client:
        def consume(self, *most: int) -> None:
            asked.append(most)  # type: ignore[arg-type]

    relay = world.relay()
    with monkeypatch.context() as patch:
        patch.setattr(relay._member, "consumer", Client())
        relay._context.reading("a log", 1, 2)
    assert asked == [(0, 0)]


@LONG
def test_one_that_reads_long_what_is_settled_stays_in_its_group(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was shut out, joined again, and read it all again, for ever."""
    monkeypatch.setattr(take_over, "REPORT_EVERY", 1)
    relay = world.started()
    for number in range(12):
        world.send(str(number), in_ms=0)
        step_quietly(relay)
    world.close(relay)
    calls = slow(monkeypatch, Replay, "apply")
    relay = world.relay(folder=world.folder / "empty")
    step_until(lambda: relay.owners, relay)
    assert lasted_too_long(calls)
    assert is_in_its_group(relay, world)
    assert len(calls) == 12  # once


@LONG
def test_and_one_that_looks_long_for_what_stands_further_on(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow_ups, "REPORT_EVERY", 1)
    monkeypatch.setattr(turn, "MOST_WAITING", 0)
    world.put(None, delay_action="cancel", delay_id="x")
    world.send(*map(str, range(12)))
    calls = slow(monkeypatch, follow_ups, "headers_of")
    monkeypatch.setattr("waterclock.relay.relay.READ", 1)  # so that the end is not reached at once
    relay = world.relay()
    step_until(lambda: world.replies(), relay)
    assert lasted_too_long(calls)
    assert is_in_its_group(relay, world)


@LONG
def test_and_one_that_loads_much(world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from waterclock.relay.owner import owner

    monkeypatch.setattr(owner, "SLICE", 1)
    relay = world.started()
    world.send(*map(str, range(12)), in_ms=3_600_000 * 3)
    step_quietly(relay)
    world.close(relay)
    world.advance_ms(3_600_000 * 3 - 1_000)
    calls = slow(monkeypatch, owner.DueSoonWheel, "add")
    relay = world.relay()
    step_until(lambda: relay.owners, relay)
    assert lasted_too_long(calls)
    assert is_in_its_group(relay, world)
