"""What is due next, told by a running relay: of its wheels and its files, in order, with what it waits for."""

from __future__ import annotations

import pytest

from tests.relay.test_series import HOUR_MS, cancel, hourly
from tests.relay.world import World, step_quietly
from waterclock.relay.relay import Relay
from waterclock.relay.statistics import DueStatistics
from waterclock.relay.watching import due_next as module
from waterclock.relay.watching.due_next import count_of, due_next


def told(relay: Relay, world: World, count: int = 10) -> DueStatistics:
    return due_next(count, relay.owners, relay.lock, relay.topics.input, world.now_ms)


def ids(found: DueStatistics) -> list[str]:
    return [one.id for one in found.messages]


def test_what_is_near_and_what_lies_in_files_comes_by_due_time(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SLICE", 2)
    relay = world.started()
    hours = {"month": 900, "soon": 0.1, "day": 30, "next": 5, "later": 5.5, "second": 0.2}
    for id, after in hours.items():
        world.send("x", in_ms=int(after * HOUR_MS), id=id)
    first_ms = hourly(world, id="series")
    step_quietly(relay)
    found = told(relay, world)
    expected = sorted([*hours, "series"], key=lambda id: hours.get(id, (first_ms - world.now_ms) / HOUR_MS))
    assert (ids(found), found.known_to_ms) == (expected, None)
    assert {one.id for one in found.messages if one.recurs} == {"series"}
    by_id = {one.id: one for one in found.messages}
    assert by_id["soon"].target == world.target
    assert by_id["soon"].origin == f"{world.topic}-0-1"
    assert ids(told(relay, world, 3)) == expected[:3]
    cancel(world, expected[0])
    step_quietly(relay)
    assert ids(told(relay, world, 3)) == expected[1:4]


def test_what_was_not_looked_through_is_left_out_and_said(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """With ten million pending, the files are not read to their end for a list."""
    monkeypatch.setattr(module, "SLICE", 2)
    monkeypatch.setattr(module, "LOOKED", 3)
    relay = world.started()
    world.send("x", in_ms=1_000, id="near")
    for number in range(6):
        world.send("x", in_ms=30 * HOUR_MS + number, id=f"far-{number}")
    step_quietly(relay)
    found = told(relay, world)
    assert ids(found) == ["near"]
    assert found.known_to_ms is not None
    assert world.now_ms + 1_000 < found.known_to_ms <= world.now_ms + 30 * HOUR_MS


def test_an_owner_that_is_let_go_is_not_read(world: World) -> None:
    relay = world.started()
    world.send("x", in_ms=HOUR_MS, id="a")
    step_quietly(relay)
    relay.owners.clear()
    assert told(relay, world) == DueStatistics(())


@pytest.mark.parametrize("text", ["", "0", "-1", "201", "many", "1.5"])
def test_what_is_no_count_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="ask for 1 to 200 messages"):
        count_of(text)
