"""Which messages recur: told by a look at the files, whatever is delivered, cancelled or moved meanwhile."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tests.relay.test_series import HOUR_MS, cancel, hourly, turn_to
from tests.relay.world import World, step_quietly
from waterclock.relay.relay import Relay
from waterclock.relay.statistics import RecurringStatistics, SeriesStatistics
from waterclock.relay.watching import gathering as module
from waterclock.relay.watching.gathering import recurring, with_series
from waterclock.testing import Broker


def told(relay: Relay) -> RecurringStatistics:
    return recurring(relay.owners, relay.lock, relay.topics.input)


def test_each_series_is_told_with_its_next_occurrence_and_what_does_not_recur_is_not(world: World) -> None:
    relay = world.started()
    world.send("once", in_ms=HOUR_MS, id="once")
    first_ms = hourly(world, id="a")
    hourly(world, id="b", delay_zone="Asia/Kolkata", deliver_at=first_ms + 2 * HOUR_MS, delay_missed="all")
    step_quietly(relay)
    a = SeriesStatistics("a", "0 * * * *", "UTC", first_ms, world.target, 1, f"{world.topic}-0-1")
    b = SeriesStatistics(
        "b", "0 * * * *", "Asia/Kolkata", first_ms + 2 * HOUR_MS, world.target, 1, f"{world.topic}-0-2"
    )
    assert told(relay) == RecurringStatistics((a, b))
    turn_to(world, relay, first_ms)
    (found, _) = told(relay).series
    assert (found.id, found.next_due_ms, found.occurrence) == ("a", first_ms + HOUR_MS, 2)
    cancel(world, "a")
    step_quietly(relay)
    assert [one.id for one in told(relay).series] == ["b"]


def test_the_messages_of_an_id_have_the_expression_where_they_recur(world: World) -> None:
    relay = world.started()
    world.send("plain", in_ms=0, id="x")
    first_ms = hourly(world, id="x", delay_zone="Europe/Berlin")
    turn_to(world, relay, first_ms)
    found = with_series(relay.show("x"), relay.owners, relay.lock, relay.topics.input)
    assert [(one.state, one.cron, one.zone) for one in found if one.state == "pending"] == [
        ("pending", "0 * * * *", "Europe/Berlin")
    ]
    assert {one.cron for one in found if one.state == "delivered"} == {None}


def test_the_first_of_many_are_told_and_the_others_counted(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST", 2)
    monkeypatch.setattr(module, "SLICE", 2)
    relay = world.started()
    first_ms = world.now_ms // HOUR_MS * HOUR_MS + HOUR_MS
    for hours in (400, 5, 30, 1, 20_000):
        hourly(world, id=str(hours), deliver_at=first_ms + hours * HOUR_MS)
    step_quietly(relay)
    found = told(relay)
    assert ([one.id for one in found.series], found.more) == (["1", "5"], 3)


def test_what_is_filed_split_and_delivered_between_two_looks_is_told_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The relay goes on in between, as it does while another thread asks."""
    monkeypatch.setattr(module, "SLICE", 1)
    relay = world.started()
    first_ms = world.now_ms // HOUR_MS * HOUR_MS + HOUR_MS
    far_ms = first_ms + 40 * 24 * HOUR_MS
    for number in range(4):
        hourly(world, id=f"{number}", deliver_at=far_ms + number * HOUR_MS)
    step_quietly(relay)
    known: list[str] = []
    for place, found in module._slices(relay.owners, relay.lock, world.topic):
        known += [f"{place}-{one.origin}" for one in found]
        if len(known) == 2 and world.now_ms < first_ms:
            world.advance_ms(38 * 24 * HOUR_MS)
            while relay.owners[0].store.tidy():
                pass  # the span of a day becomes hours
            hourly(world, id="late", deliver_at=far_ms)
            step_quietly(relay)
    assert set(known) == {f"{world.topic}-0-{origin}" for origin in range(5)}


@pytest.mark.parametrize("which", [0, 1])
def test_a_partition_that_is_let_go_meanwhile_is_told_no_more(
    which: int, relay_broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the middle of it, or before."""
    monkeypatch.setattr(module, "SLICE", 1)
    with World(relay_broker, tmp_path, f"let-go-{which}", 2) as world:
        relay = world.started()
        for partition in (0, 0, 1, 1):
            hourly(world, id=f"{partition}", partition=partition)
        step_quietly(relay)
        places: list[str] = []
        for place, found in module._slices(relay.owners, relay.lock, world.topic):
            places += [place for _ in found]
            if found and which in relay.owners:
                relay._let_go(which, checkpoint=True)
        assert places == [f"{world.topic}-{number}" for number in ((0, 1, 1) if which == 0 else (0, 0))]


def test_it_waits_while_the_relay_works(world: World) -> None:
    relay = world.started()
    hourly(world)
    step_quietly(relay)
    found: list[RecurringStatistics] = []
    with relay.lock:
        asking = threading.Thread(target=lambda: found.append(told(relay)))
        asking.start()
        asking.join(0.05)
        assert not found
    asking.join(10)
    assert len(found[0].series) == 1
