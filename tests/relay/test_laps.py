"""Laps: what is pending for years is moved on to the end of the input, and delivered once, as it came."""

from __future__ import annotations

import random

import pytest

from tests.relay.lapping import LAP_BYTES, YEAR_MS, cut_off, fill, lap, lapping, owner_of, until_delivered
from tests.relay.world import World, step_quietly, step_until
from waterclock.relay.upkeep.lap import LapTurn
from waterclock.relay.watching.view import LogBounds, View

LARGE = random.Random(0).randbytes(3_000)  # it cannot be compressed


def test_a_message_due_in_three_years_is_moved_on_again_and_again_and_delivered_once(world: World) -> None:
    relay = lapping(world)
    world.send("far", in_ms=3 * YEAR_MS)
    due_ms = world.now_ms + 3 * YEAR_MS
    for _ in range(8):
        lap(world, relay)
        world.advance_ms(80 * 86_400_000)
    assert relay._counts.moved == 8
    (low, end) = relay._logs.bounds(world.topic, 0)
    assert end > 800
    assert end - low < 150
    world.advance_ms(due_ms - world.now_ms)
    until_delivered(world, relay, "far")
    (seen,) = [seen for seen in world.seen() if seen.value == b"far"]
    assert dict(seen.headers)["delayed-from"] == f"{world.topic}-0-0".encode()


@pytest.mark.long(seconds=60)
def test_hundreds_of_laps(world: World) -> None:
    relay = lapping(world)
    world.send("far", in_ms=3 * YEAR_MS, id="far")
    due_ms = world.now_ms + 3 * YEAR_MS
    for number in range(300):
        lap(world, relay)
        world.advance_ms(3 * 86_400_000)
        if number % 50 == 49:
            world.crash(relay)
            relay = lapping(world, folder=world.folder / f"life {number}")
    world.advance_ms(due_ms - world.now_ms)
    until_delivered(world, relay, "far")


def test_a_copy_asks_for_what_its_first_asked_for_when_that_came(world: World) -> None:
    """A delay counts from the first timestamp, whatever the copy's is; nothing of the message is lost."""
    relay = lapping(world)
    headers = [("b", b"\x00"), ("deliver-to", world.target.encode()), ("delay", str(YEAR_MS).encode()), ("a", None)]
    world.put_raw(None, headers, b"\xffkey")
    stamp_ms = world.seen(world.topic)[0].timestamp_ms
    world.advance_ms(stamp_ms - world.now_ms)
    lap(world, relay)
    lap(world, relay)
    world.crash(relay)
    relay = lapping(world, folder=world.folder / "empty")
    world.advance_ms(stamp_ms + YEAR_MS - 1 - world.now_ms)
    step_quietly(relay)
    assert b"\xffkey" not in [seen.key for seen in world.seen()]
    world.advance_ms(1)
    step_until(lambda: b"\xffkey" in [seen.key for seen in world.seen()], relay)
    (seen,) = [seen for seen in world.seen() if seen.key == b"\xffkey"]
    assert (seen.value, seen.headers[:2]) == (None, [("b", b"\x00"), ("a", None)])


def test_equal_due_times_keep_the_order_of_the_first_appends(world: World) -> None:
    """The copy of what came first stands behind what came later."""
    relay = lapping(world)
    world.send("first", in_ms=YEAR_MS)
    due_ms = world.now_ms + YEAR_MS
    lap(world, relay)
    world.send("second", in_ms=due_ms - world.now_ms)
    lap(world, relay)
    world.crash(relay)
    relay = lapping(world, folder=world.folder / "empty")
    world.advance_ms(due_ms - world.now_ms)
    until_delivered(world, relay, "first", "second")


@pytest.mark.parametrize("with_files", [True, False])
def test_a_message_that_was_moved_on_is_cancelled_by_its_id(with_files: bool, world: World) -> None:
    relay = lapping(world)
    world.send("gone", in_ms=YEAR_MS, id="cart-17")
    world.send("kept", in_ms=YEAR_MS)
    lap(world, relay)
    if not with_files:
        world.crash(relay)
        relay = lapping(world, folder=world.folder / "empty")
    world.put(None, delay_id="cart-17", delay_action="cancel")
    step_until(world.replies, relay)
    assert world.replies() == [("cart-17", "cancelled", 1)]
    lap(world, relay)
    world.advance_ms(YEAR_MS)
    until_delivered(world, relay, "kept")


def test_a_replace_that_was_moved_on_replaces_nothing_again(world: World) -> None:
    relay = lapping(world)
    world.send("old", in_ms=YEAR_MS, id="cart-17")
    world.send("new", in_ms=YEAR_MS, id="cart-17", delay_action="replace")
    world.send("beside it", in_ms=YEAR_MS, id="cart-17")
    step_until(world.replies, relay)
    lap(world, relay)
    world.crash(relay)
    relay = lapping(world, folder=world.folder / "empty")
    lap(world, relay)
    assert world.replies() == [("cart-17", "replaced", 1)]
    world.advance_ms(YEAR_MS)
    until_delivered(world, relay, "new", "beside it")


@pytest.mark.parametrize("header", [b"0 0", b"", b"nonsense", b"-1 5", None])
def test_a_copy_that_the_relay_did_not_make_goes_aside(header: bytes | None, world: World) -> None:
    relay = lapping(world)
    world.send("far", in_ms=YEAR_MS)
    asked = [("deliver-to", world.target.encode()), ("deliver-at", b"0"), ("delay-origin", header)]
    world.put_raw(b"forged", asked)
    step_until(world.letters, relay)
    assert b"the header delay-origin is the relay's own" in (world.letters()[0]["dead-reason"] or b"")
    world.advance_ms(YEAR_MS)
    until_delivered(world, relay, "far")


def test_a_forged_copy_amid_real_ones_is_told_from_them(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It stands before copies that the relay made, and asks to be delivered at once, in the name of what is pending."""
    relay = lapping(world)
    world.send("far", "too", in_ms=YEAR_MS)
    forged = [("deliver-to", world.target.encode()), ("deliver-at", b"0"), ("delay-origin", b"0 0")]
    copy = LapTurn.copy

    def forged_meanwhile(self: LapTurn) -> None:
        world.put_raw(b"forged", forged)
        copy(self)

    with monkeypatch.context() as patch:
        patch.setattr(LapTurn, "copy", forged_meanwhile)
        fill(world, relay)
        step_until(world.letters, relay)
    world.crash(relay)
    relay = lapping(world, folder=world.folder / "empty")
    step_quietly(relay)
    assert len(world.letters()) == 1
    world.advance_ms(YEAR_MS)
    until_delivered(world, relay, "far", "too")


def test_nothing_is_moved_while_something_is_due(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    relay = lapping(world)
    world.send("far", in_ms=60_000)
    with monkeypatch.context() as patch:
        patch.setattr("waterclock.relay.upkeep.upkeep.QUIET_MS", 60_000)
        fill(world, relay)
        for _ in range(20):
            relay.step(0.01)
        assert relay._counts.moved == relay._counts.laps == 0
    step_until(lambda: relay._counts.moved == 1, relay)


def test_where_something_is_always_due_a_log_that_is_twice_too_long_is_swept_all_the_same(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("waterclock.relay.upkeep.upkeep.QUIET_MS", 60_000)
    relay = lapping(world)
    world.send("far", in_ms=60_000)
    fill(world, relay, 200)
    for _ in range(20):
        relay.step(0.01)
    assert relay._counts.moved == 0
    world.advance_ms(500)
    step_until(lambda: relay._counts.moved == 1, relay)


def test_a_lap_goes_in_turns_of_few_messages_and_what_is_due_between_them_is_delivered(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("waterclock.relay.upkeep.lap.MOST", 3)
    relay = lapping(world)
    values = [f"far {n}" for n in range(10)]
    world.send(*values, in_ms=YEAR_MS)
    fill(world, relay, 150)
    step_until(lambda: relay._counts.moved, relay)
    assert relay._counts.moved == 3
    world.send("short now", in_ms=0)
    step_until(lambda: "short now" in world.values(), relay)
    step_until(lambda: relay._counts.laps, relay)
    assert relay._counts.moved == 10
    world.advance_ms(YEAR_MS)
    until_delivered(world, relay, *values)


def test_what_is_pending_alone_is_never_moved_however_much_it_is(world: World) -> None:
    relay = lapping(world)
    world.send(*(f"far {n}" for n in range(300)), in_ms=YEAR_MS)
    step_quietly(relay)
    for _ in range(10):
        relay.step(0.01)
    assert owner_of(relay).log_span.volume.since(0) > 3 * LAP_BYTES
    assert (relay._counts.moved, relay._counts.laps) == (0, 0)


def test_what_is_pending_and_was_taken_for_less_is_not_moved_round_and_round(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    relay = lapping(world)
    owner = owner_of(relay)
    monkeypatch.setattr(type(owner.store), "pending_bytes", 0)
    monkeypatch.setattr("waterclock.relay.upkeep.lap.EACH", 0)
    world.send(*(f"far {n}" for n in range(100)), in_ms=YEAR_MS)
    step_until(lambda: relay._counts.laps, relay)
    step_quietly(relay)
    for _ in range(30):
        relay.step(0.01)
    assert relay._counts.laps == 1
    assert relay._counts.moved <= 100
    world.advance_ms(YEAR_MS)
    until_delivered(world, relay, *(f"far {n}" for n in range(100)))


def test_a_log_in_which_nothing_is_pending_is_swept_without_being_read(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    relay = lapping(world)
    monkeypatch.setattr(relay._logs, "reading", None)
    lap(world, relay)
    assert (relay._counts.moved, relay._counts.laps) == (0, 1)


def test_a_copy_that_kafka_does_not_take_stays_where_it_is_and_the_log_from_there_on(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    relay = lapping(world)
    world.send("far", in_ms=YEAR_MS)
    world.put(LARGE, deliver_to=world.target, deliver_at=world.now_ms + YEAR_MS)
    step_quietly(relay)
    world.alter(world.topic, "max.message.bytes", 2_000)
    for _ in range(15):
        fill(world, relay, 10)
    step_until(lambda: "stays where it is" in caplog.text, relay)
    step_until(lambda: relay.owners and owner_of(relay).has_caught_up, relay)
    step_quietly(relay)
    assert owner_of(relay).log_span.moves.swept <= 1
    world.advance_ms(YEAR_MS)
    step_until(lambda: LARGE in [seen.value for seen in world.seen()], relay)
    assert relay._counts.breaks == 0


def test_a_dead_letter_of_what_was_cut_off_holds_what_the_files_have(world: World) -> None:
    relay = lapping(world)
    target = f"{world.topic}.other"
    world.broker.create_topic(target)
    headers = [("deliver-to", target.encode()), ("deliver-at", str(world.now_ms + YEAR_MS).encode()), ("trace", b"x")]
    world.put_raw(b"value", [*headers, ("delay-id", b"an id")], b"key")
    step_quietly(relay)
    cut_off(world, relay)
    world.remove(target)
    world.advance_ms(YEAR_MS)
    step_until(world.letters, relay)
    (seen,) = world.seen(f"{world.topic}.dead")
    assert (seen.key, seen.value, seen.headers[:4]) == (
        b"key",
        b"value",
        [*headers[:2], ("delay-id", b"an id"), headers[2]],
    )


def test_the_view_of_what_is_pending_has_what_was_moved_on_once(world: World) -> None:
    relay = lapping(world)
    world.send("far", "farther", in_ms=YEAR_MS, id="x")
    lap(world, relay)
    lap(world, relay)
    world.put(None, delay_id="y", delay_action="cancel")
    logs, topics = relay._logs, relay.topics
    assert logs.bounds(topics.input, 0)[0] > 2
    settled = 0, logs.bounds(topics.settled, 0)[1]
    bounds = LogBounds(0, logs.bounds(topics.input, 0), settled, relay._context.input_hash)
    seen = [(one.origin, one.message.value(), one.request.id) for one in View(logs, topics, bounds).pending()]
    assert seen == [(0, b"far", b"x"), (1, b"farther", b"x")]
