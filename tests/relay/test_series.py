"""Recurring schedules: each occurrence once, the next one with it, whoever dies and whatever is asked meanwhile."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.relay.test_kills import TURN, WHEN, dying, run_until_death
from tests.relay.world import World, step_quietly, step_until
from waterclock.relay.owner.turn import Turn
from waterclock.relay.relay import Relay
from waterclock.relay.store import State
from waterclock.relay.wire.letters import Command
from waterclock.relay.wire.request import Action
from waterclock.testing import Broker

HOUR_MS = 3_600_000
HOURLY = "0 * * * *"


def hourly(world: World, value: str = "tick", id: str = "series", **headers: Any) -> int:
    """A series that occurs at each full hour; when it does first."""
    first_ms = world.now_ms // HOUR_MS * HOUR_MS + HOUR_MS
    headers = {"deliver_to": world.target, "delay_id": id, "delay_cron": HOURLY, "deliver_at": first_ms, **headers}
    world.put(value.encode(), **headers)
    return first_ms


def turn_to(world: World, relay: Relay, ms: int) -> None:
    step_quietly(relay)
    world.advance_ms(ms - world.now_ms)
    for owner in relay.owners.values():
        owner.keep_up()  # what has come near is loaded
    step_quietly(relay)


def cancel(world: World, id: str = "series") -> None:
    world.put(None, delay_id=id, delay_action="cancel")


def delivered(world: World) -> list[tuple[int, int]]:
    """Due times and numbers of what was delivered."""
    headers = [dict(seen.headers) for seen in world.seen()]
    return [(int(each["delayed-until"] or 0), int(each["delayed-occurrence"] or 0)) for each in headers]


def test_each_occurrence_is_delivered_and_the_next_one_is_pending(world: World) -> None:
    relay = world.started()
    first_ms = hourly(world, key=b"k", trace="x")
    for number in range(5):
        turn_to(world, relay, first_ms + number * HOUR_MS - 1)
        assert len(world.values()) == number
        turn_to(world, relay, first_ms + number * HOUR_MS)
        assert relay.owners[0].store.pending == 1
    assert delivered(world) == [(first_ms + number * HOUR_MS, number + 1) for number in range(5)]
    assert {seen.key for seen in world.seen()} == {b"k"}
    names = [name for name, _ in world.seen()[-1].headers]
    assert names == ["trace", "delayed-occurrence", "delayed-from", "delayed-until"]
    assert len({dict(seen.headers)["delayed-from"] for seen in world.seen()}) == 5


def test_without_a_first_time_it_is_the_next_one_after_the_records_timestamp_in_its_zone(world: World) -> None:
    relay = world.started()
    series = {"delay_cron": "30 9 * * *", "delay_zone": "Asia/Kolkata", "delay_id": "x"}
    world.put(b"tick", deliver_to=world.target, **series)
    step_quietly(relay)
    (due_ms,) = [found.due for found in relay.owners[0].store.find(b"x")]
    due = datetime.fromtimestamp(due_ms / 1000, UTC)
    assert (due.hour, due.minute) == (4, 0)
    assert 0 < due_ms - world.seen(world.topic)[0].timestamp_ms <= 24 * HOUR_MS


@pytest.mark.parametrize(
    ("way", "hoped"),
    [
        ({}, [(0, 1), (4, 2)]),
        pytest.param({"delay_missed": "once"}, [(0, 1), (4, 2)], marks=pytest.mark.long(seconds=2)),
        ({"delay_missed": "all"}, [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)]),
        ({"delay_missed": "skip"}, [(4, 2)]),
    ],
)
def test_occurrences_that_nobody_was_there_to_deliver_are_treated_as_is_asked(
    way: dict[str, str], hoped: list[tuple[int, int]], world: World
) -> None:
    relay = world.started()
    first_ms = hourly(world, **way)
    step_quietly(relay)
    world.close(relay)
    world.advance_ms(first_ms + 3 * HOUR_MS + HOUR_MS // 2 - world.now_ms)
    relay = world.started()
    turn_to(world, relay, first_ms + 4 * HOUR_MS)
    assert delivered(world) == [(first_ms + hours * HOUR_MS, number) for hours, number in hoped]
    relay._gather(now=True)
    assert relay.statistics().missed == (1 if "skip" in way.values() else 0)


def test_to_skip_what_was_missed_does_not_mean_what_is_a_few_seconds_late(world: World) -> None:
    relay = world.started()
    first_ms = hourly(world, delay_missed="skip")
    turn_to(world, relay, first_ms + 59_000)
    assert delivered(world) == [(first_ms, 1)]


def test_a_cancel_ends_the_series(world: World) -> None:
    relay = world.started()
    first_ms = hourly(world)
    turn_to(world, relay, first_ms)
    cancel(world)
    turn_to(world, relay, first_ms + 5 * HOUR_MS)
    assert (len(world.values()), world.replies()) == (1, [("series", "cancelled", 1)])
    assert relay.owners[0].store.pending == 0


def test_a_replace_takes_the_place_of_the_series(world: World) -> None:
    relay = world.started()
    first_ms = hourly(world, "old")
    turn_to(world, relay, first_ms)
    hourly(world, "new", delay_action="replace")
    turn_to(world, relay, first_ms + HOUR_MS)
    turn_to(world, relay, first_ms + 2 * HOUR_MS)
    assert (world.values(), world.replies()) == (["old", "new", "new"], [("series", "replaced", 1)])


# Commands that come while an occurrence is delivered


def command_in_the_middle(world: World, monkeypatch: pytest.MonkeyPatch, command: Any) -> None:
    """Write a command after a turn has answered what it read, and before it writes the next occurrence."""
    real = Turn.deliver

    def deliver(turn: Turn) -> None:
        if len(turn._rows):
            monkeypatch.setattr(Turn, "deliver", real)
            command()
        real(turn)

    monkeypatch.setattr(Turn, "deliver", deliver)


@pytest.mark.parametrize("more", [0, 10_000])
def test_a_cancel_that_stands_before_the_next_occurrence_and_was_not_read_ends_the_series_too(
    more: int, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is answered before the next occurrence is read, or with it."""
    monkeypatch.setattr("waterclock.relay.relay.READ", more)
    relay = world.started()
    first_ms = hourly(world)
    command_in_the_middle(world, monkeypatch, lambda: cancel(world))
    turn_to(world, relay, first_ms)
    assert world.replies() == [("series", "cancelled", 1)]
    cancel(world)
    turn_to(world, relay, first_ms + 3 * HOUR_MS)
    assert (len(world.values()), world.replies()[1:]) == (1, [("series", "already delivered", 0)])
    assert relay.owners[0].store.pending == 0


def deliver_and_die(world: World, relay: Relay, due_ms: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is due is delivered, and the relay knows nothing of it any more."""
    step_quietly(relay)
    world.advance_ms(due_ms - world.now_ms)
    for owner in relay.owners.values():
        owner.keep_up()
    with monkeypatch.context() as patch:
        dying(patch, Turn, "commit", "after")
        run_until_death(world, relay)
    assert len(world.values()) == 1


def test_and_so_does_one_that_another_owner_answers(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    relay = world.started()
    first_ms = hourly(world)
    command_in_the_middle(world, monkeypatch, lambda: cancel(world))
    deliver_and_die(world, relay, first_ms, monkeypatch)
    relay = world.started()
    turn_to(world, relay, first_ms + 3 * HOUR_MS)
    assert (len(world.values()), world.replies()) == (1, [("series", "cancelled", 1)])


@pytest.mark.parametrize("letters", [False, True])
@pytest.mark.parametrize("replaces", [False, True])
def test_and_so_does_one_with_more_behind_it_than_wait_for_the_end_of_the_input(
    replaces: bool, letters: bool, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are answered before the next occurrence, which stands behind them, is read: of a cancel the series would go on,
    and beside what replaces it there would be two."""

    def commands() -> None:
        if replaces:
            hourly(world, "new", delay_action="replace", deliver_at=first_ms + HOUR_MS)
        else:
            cancel(world)
        for number in range(3):
            world.put(None, delay_action="what") if letters else cancel(world, f"other-{number}")

    monkeypatch.setattr("waterclock.relay.relay.READ", 0)
    monkeypatch.setattr(
        "waterclock.relay.owner.turn.MOST_LETTERS" if letters else "waterclock.relay.owner.turn.MOST_WAITING", 2
    )
    relay = world.started()
    first_ms = hourly(world, "old")
    command_in_the_middle(world, monkeypatch, commands)
    deliver_and_die(world, relay, first_ms, monkeypatch)
    early: list[bool] = []
    real = Turn.answer
    monkeypatch.setattr(Turn, "answer", lambda turn: (early.append(not turn.owner.has_caught_up), real(turn)))
    relay = world.started()
    assert any(early)
    turn_to(world, relay, first_ms + HOUR_MS)
    turn_to(world, relay, first_ms + 2 * HOUR_MS)
    assert world.values() == (["old", "new", "new"] if replaces else ["old"])
    assert world.replies()[0] == ("series", "replaced" if replaces else "cancelled", 1)


def test_a_replace_in_the_middle_leaves_one_series_and_not_two(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    relay = world.started()
    first_ms = hourly(world, "old")
    command_in_the_middle(
        world, monkeypatch, lambda: hourly(world, "new", delay_action="replace", deliver_at=first_ms + HOUR_MS)
    )
    turn_to(world, relay, first_ms)
    turn_to(world, relay, first_ms + HOUR_MS)
    assert (world.values(), world.replies()) == (["old", "new"], [("series", "replaced", 1)])


def test_what_is_sent_anew_under_the_id_behind_a_cancel_is_not_cancelled(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def anew() -> None:
        cancel(world)
        hourly(world, "new", deliver_at=first_ms + HOUR_MS)

    relay = world.started()
    first_ms = hourly(world, "old")
    command_in_the_middle(world, monkeypatch, anew)
    turn_to(world, relay, first_ms)
    turn_to(world, relay, first_ms + HOUR_MS)
    turn_to(world, relay, first_ms + 2 * HOUR_MS)
    assert (world.values(), world.replies()) == (["old", "new", "new"], [("series", "cancelled", 1)])


# Crashes

EACH = [
    pytest.param(step, when, marks=() if (step, when) == ("commit", "after") else pytest.mark.long(seconds=4))
    for step in TURN
    for when in WHEN
]


@pytest.mark.parametrize(("step", "when"), EACH)
def test_a_death_at_each_step_of_a_turn_leaves_each_occurrence_once_and_one_next(
    step: str, when: str, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    relay = world.started()
    first_ms = hourly(world)
    for number in range(3):
        step_quietly(relay)
        world.advance_ms(first_ms + number * HOUR_MS - world.now_ms)
        with monkeypatch.context() as patch:
            dying(patch, Turn, step, when)
            run_until_death(world, relay)
        relay = world.started(folder=world.folder / ("one" if number < 2 else "empty"))
    turn_to(world, relay, first_ms + 3 * HOUR_MS)
    assert delivered(world) == [(first_ms + number * HOUR_MS, number + 1) for number in range(4)]
    assert relay.owners[0].store.pending == 1
    cancel(world)
    step_quietly(relay)
    assert world.replies() == [("series", "cancelled", 1)]


@pytest.mark.parametrize("way", [{}, {"delay_ttl": 1}, {"delay_missed": "skip"}], ids=["due", "expired", "skipped"])
def test_a_series_whose_next_one_the_input_refuses_ends_with_a_letter(world: World, way: dict[str, Any]) -> None:
    import os

    relay = world.started()
    first_ms = world.now_ms + 1_000
    series = {"delay_cron": HOURLY, "delay_id": "x", "deliver_at": first_ms, **way}
    world.put(os.urandom(20_000), deliver_to=world.target, **series)
    world.send("good", in_ms=300_000)
    step_quietly(relay)
    world.alter(world.topic, "max.message.bytes", 5_000)
    world.advance_ms(300_000 if way else 1_000)
    for _ in range(40):
        world.advance_ms(50)
        step_quietly(relay)
    world.advance_ms(300_000)
    step_until(world.values, relay)
    assert world.values() == ["good"]
    assert b"Message size too large" in (world.letters()[0]["dead-reason"] or b"")


def test_several_series_that_have_expired_and_whose_next_ones_are_refused_hold_nobody_up(world: World) -> None:
    import os

    relay = world.started()
    for number in range(5):
        world.put(os.urandom(20_000), deliver_to=world.target, delay_cron=HOURLY, delay_id=f"x{number}",
                  deliver_at=world.now_ms + 1_000, delay_ttl=1)  # fmt: skip
    world.send("good", in_ms=1_000)
    step_quietly(relay)
    world.alter(world.topic, "max.message.bytes", 5_000)
    world.advance_ms(300_000)
    step_until(lambda: world.advance_ms(50) or (world.values() and len(world.letters()) == 5), relay)
    assert world.values() == ["good"]
    assert all(b"Message size too large" in (letter["dead-reason"] or b"") for letter in world.letters())


# What cannot be read

BAD = [
    ({"delay_cron": "0 9 * *"}, "delay-cron must be five fields such as 0 9 * * MON-FRI, got '0 9 * *'."),
    ({"delay_cron": "0 0 9 * * *"}, "must be five fields"),
    ({"delay_cron": "0 25 * * *"}, "got '0 25 * * *': bad hour."),
    ({"delay_cron": ""}, "must be five fields"),
    ({"delay_cron": HOURLY, "delay_zone": "Mars/Town"}, "delay-zone must be a time zone such as Europe/Berlin, got 'Ma"),
    ({"delay_cron": HOURLY, "delay_zone": "../../etc/passwd"}, "delay-zone must be a time zone"),
    ({"delay_cron": HOURLY, "delay_missed": "some"}, "delay-missed must be once, all or skip, got 'some'."),
    ({"delay_cron": HOURLY, "delay": 5}, "there are both delay-cron and delay: the first one says when"),
    ({"delay_cron": HOURLY, "delay_id": None}, "there is delay-cron and no delay-id"),
    ({"delay": 5, "delay_zone": "UTC"}, "there is delay-zone and no delay-cron: it is for those that recur."),
    ({"delay": 5, "delay_missed": "all"}, "there is delay-missed and no delay-cron"),
    ({"delay": 5, "delay_occurrence": "2"}, "there is delay-occurrence and no delay-cron"),
    ({"delay_cron": HOURLY, "delay_occurrence": "2"}, "delay-occurrence is for the relay to write, got '2': leave it out."),
]  # fmt: skip


def test_each_series_that_cannot_be_read_goes_aside_with_its_reason(world: World) -> None:
    relay = world.started()
    for headers, _ in BAD:
        made = {"deliver_to": world.target, "delay_id": "x", **headers}
        world.put(b"value", **{name: text for name, text in made.items() if text is not None})
    step_quietly(relay)
    reasons = [(letter["dead-reason"] or b"").decode() for letter in world.letters()]
    assert [hope for (_, hope), reason in zip(BAD, reasons, strict=True) if hope not in reason] == []


def test_a_command_is_for_a_series_that_began_before_it(world: World) -> None:
    """Whenever it is answered: one that waited while a series began behind it, and went on, leaves that alone."""
    relay = world.started()
    first_ms = hourly(world)
    turn_to(world, relay, first_ms)
    owner = relay.owners[0]
    ((next_one, began),) = owner.nexts[b"series"].items()
    assert (began, next_one > began) == (0, True)
    command = Command(next_one, Action.CANCEL, b"series")
    assert owner.nexts_of(command) == {next_one: State.PENDING}
    owner.nexts = {b"series": {next_one: next_one}}
    assert owner.nexts_of(command) == {}


def test_the_next_one_stands_in_the_partition_of_the_one_before(relay_broker: Broker, tmp_path: Path) -> None:
    """Where the commands of its id go, whatever its key is."""
    with World(relay_broker, tmp_path, "two-partitions", 2) as world:
        relay = world.started()
        first_ms = hourly(world, partition=0, key=b"a")
        hourly(world, partition=1, key=b"a")
        for hours in range(3):
            turn_to(world, relay, first_ms + hours * HOUR_MS)
        assert [seen.partition for seen in world.seen(world.topic)] == [0] * 4 + [1] * 4
