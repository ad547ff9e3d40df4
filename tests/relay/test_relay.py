"""The relay on our broker: never early, exactly once, in order, whatever a message carries."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.relay.world import World, step_quietly, step_until
from waterclock.relay.cluster import group
from waterclock.relay.owner.pace import Pace
from waterclock.relay.relay import Relay


def test_what_is_due_already_when_it_comes_is_delivered_at_once(world: World) -> None:
    relay = world.started()
    world.send("late", in_ms=-86_400_000)
    step_until(world.values, relay)
    assert world.values() == ["late"]


def test_each_of_one_turn_says_when_it_was_due(world: World) -> None:
    relay = world.started()
    now_ms = world.now_ms
    for value, in_ms in (("c", 1_200), ("a", 1_000), ("d", 1_200), ("b", 1_100)):
        world.send(value, in_ms=in_ms)
    step_quietly(relay)
    turns = relay._counts.turns
    world.advance_ms(2_000)
    step_until(lambda: len(world.values()) == 4, relay)
    told = [(seen.value, dict(seen.headers)["delayed-until"]) for seen in world.seen()]
    dues = [(b"a", 1_000), (b"b", 1_100), (b"c", 1_200), (b"d", 1_200)]
    assert told == [(value, b"%d" % (now_ms + in_ms)) for value, in_ms in dues]
    assert relay._counts.turns == turns + 1


def test_key_value_and_headers_are_handed_on_and_it_is_said_where_they_are_from(world: World) -> None:
    relay = world.started()
    due_ms = world.now_ms + 5
    ours = [("deliver-to", world.target.encode()), ("deliver-at", str(due_ms).encode()), ("delay-id", b"an id")]
    theirs = [("b", b"\x00\xff"), ("a", None), ("b", b""), ("delayed-from", b"elsewhere-0-1")]
    world.put_raw(b"\x00value", [theirs[0], *ours, *theirs[1:]], b"\xffkey")
    world.put_raw(None, ours[:2])
    world.put_raw(b"", ours[:2], b"")
    step_quietly(relay)
    world.advance_ms(1_000)
    step_until(world.seen, relay)
    until = ("delayed-until", str(due_ms).encode())
    assert [(seen.key, seen.value, seen.headers) for seen in world.seen()] == [
        (b"\xffkey", b"\x00value", [*theirs[:3], ("delayed-from", f"{world.topic}-0-0".encode()), until]),
        (None, None, [("delayed-from", f"{world.topic}-0-1".encode()), until]),
        (b"", b"", [("delayed-from", f"{world.topic}-0-2".encode()), until]),
    ]


def test_a_delay_counts_from_the_records_timestamp(world: World) -> None:
    relay = world.started()
    world.put(b"soon", deliver_to=world.target, delay=500_000)
    step_quietly(relay)
    stamp_ms = world.seen(world.topic)[0].timestamp_ms
    world.advance_ms(stamp_ms + 499_999 - world.now_ms)
    step_quietly(relay)
    assert world.values() == []
    world.advance_ms(1)
    step_quietly(relay)
    assert world.values() == ["soon"]


def test_what_is_due_next_year_waits_on_the_disk_and_not_in_the_wheel(world: World) -> None:
    relay = world.started()
    world.send("next year", in_ms=366 * 86_400_000)
    world.send("soon", in_ms=1_000)
    step_quietly(relay)
    (owner,) = relay.owners.values()
    assert (len(owner.due_soon), owner.store.pending) == (1, 2)
    for _ in range(366 * 4 + 1):
        world.advance_ms(6 * 3_600_000)
        owner.keep_up()
    step_until(lambda: len(world.values()) == 2, relay)
    assert world.values() == ["soon", "next year"]


def started_with_turns_of(world: World, most: int, monkeypatch: pytest.MonkeyPatch) -> Relay:
    """A turn takes no more messages than that."""
    monkeypatch.setattr("waterclock.relay.owner.pace.MOST", most)
    relay = world.started()
    relay.owners[0].pace = Pace(most)
    return relay


def test_more_messages_than_a_turn_takes_go_in_order_over_several(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    relay = started_with_turns_of(world, 10, monkeypatch)
    world.send(*map(str, range(25)), in_ms=100)
    step_quietly(relay)
    world.advance_ms(100)
    step_quietly(relay)
    assert world.values() == list(map(str, range(25)))


def test_what_is_due_earlier_and_comes_between_two_turns_goes_first(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    relay = started_with_turns_of(world, 2, monkeypatch)
    world.send("a", "b", "c", "d", in_ms=1_000)
    step_quietly(relay)
    world.advance_ms(1_000)
    step_until(world.values, relay)
    assert world.values() == ["a", "b"]
    world.send("early", in_ms=-1_000)
    step_until(lambda: relay._ingest(relay._read(0.1)))
    step_quietly(relay)
    assert world.values() == ["a", "b", "early", "c", "d"]


def test_a_turn_takes_no_more_bytes_than_it_may(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("waterclock.relay.owner.owner.TURN_BYTES", 1)
    relay = world.started()
    world.send("a", "b", "c", in_ms=1_000)
    step_quietly(relay)
    turns = relay._counts.turns
    world.advance_ms(1_000)
    step_quietly(relay)
    assert (world.values(), relay._counts.turns - turns) == (["a", "b", "c"], 3)


def test_nothing_is_delivered_before_the_input_is_read_to_where_it_ended(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is due earlier may stand behind, and a turn that only answers must not deliver."""
    monkeypatch.setattr("waterclock.relay.relay.READ", 1)
    monkeypatch.setattr("waterclock.relay.owner.turn.MOST_WAITING", 0)
    world.send("c", "d", in_ms=-1_000)
    world.put(None, delay_id="x", delay_action="cancel")
    world.send("b", in_ms=-2_000)
    world.send("a", in_ms=-3_000)
    relay = world.started()
    step_quietly(relay)
    assert world.values() == ["a", "b", "c", "d"]


def reads_in_parts(relay: Relay, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The client hands over two at once, of those that have come, whatever it was asked for: all but the last go on waiting
    with it."""
    monkeypatch.setattr("waterclock.relay.relay.READ", 1)
    came, read = list[Any](), relay._member.read

    def handed(wait_s: float, most: int) -> list[Any]:
        came.extend(read(wait_s, 1_000))
        given = came[:2]
        del came[:2]
        return given

    monkeypatch.setattr(relay._member, "read", handed)
    return came


def test_a_relay_that_more_comes_to_than_it_takes_at_once_delivers_in_order(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    relay = world.started()
    step_quietly(relay)
    read = relay._member.read
    came = reads_in_parts(relay, monkeypatch)
    for value, in_ms in (("d", -1_000), ("c", -2_000), ("b", -3_000), ("a", -4_000)):
        world.send(value, in_ms=in_ms)
    while sum(one.error() is None for one in came) < 4:
        came += read(0.1, 9)
    step_until(lambda: len(world.values()) >= 4, relay)
    assert world.values() == ["a", "b", "c", "d"]


def test_a_relay_whose_client_has_no_room_for_all_that_comes_delivers_in_order(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are few, and large: the relay takes all that the client has, and more stands in the log."""
    for name, room in (("queued.max.messages.kbytes", 64), ("fetch.message.max.bytes", 16 << 10)):
        monkeypatch.setitem(group._CONSUMER, name, room)
    relay = world.started()
    step_quietly(relay)
    world.send(*("x" * 10_000 for _ in range(40)), in_ms=-1_000)
    world.send("early", in_ms=-2_000)
    time.sleep(0.5)  # until its room is full
    step_until(lambda: len(world.values()) == 41, relay)
    assert world.values()[0] == "early"


def test_a_relay_that_more_comes_to_than_it_can_take_delivers_all_the_same(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    relay = world.started()
    step_quietly(relay)
    came = reads_in_parts(relay, monkeypatch)
    for turn in range(50):
        world.send(*(f"{turn}.{each}" for each in range(3)), in_ms=-1_000)
        relay.step(0.01)
    assert came
    assert world.values()


def answers_slowly(world: World, relay: Relay, monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    """Kafka takes more than a second to say of a target whether it is there; meanwhile something comes that is due earlier
    than all before."""
    targets, left = relay._context.targets, [*range(-times, 0)]
    asked = targets.refusing

    def refusing(topics: Any) -> dict[str, str]:
        if left:
            world.send(f"early {len(left)}", in_ms=1_000 * left.pop() - 100_000)
            world.advance_ms(1_001)
        return asked(topics)

    monkeypatch.setattr(targets, "refusing", refusing)


def test_what_is_due_earlier_and_comes_while_kafka_keeps_a_turn_waiting_goes_first(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    relay = world.started()
    world.send("a", "b", in_ms=1_000)
    step_quietly(relay)
    answers_slowly(world, relay, monkeypatch, times=1)
    world.advance_ms(1_000)
    step_until(lambda: len(world.values()) == 3, relay)
    assert world.values() == ["early 1", "a", "b"]


def test_a_relay_whose_turns_kafka_always_keeps_waiting_delivers_all_the_same(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    relay = world.started()
    world.send("a", in_ms=1_000)
    step_quietly(relay)
    answers_slowly(world, relay, monkeypatch, times=1_000)
    world.advance_ms(1_000)
    step_until(lambda: "a" in world.values(), relay)


@pytest.mark.long(seconds=2)
def test_an_idle_relay_hardly_uses_the_processor(world: World) -> None:
    from waterclock.clock import SystemClock

    relay = world.started(clock=SystemClock())
    step_quietly(relay)
    before_s, until_s = time.thread_time(), time.monotonic() + 1
    while time.monotonic() < until_s:
        relay.step(0.25)
    assert time.thread_time() - before_s < 0.05
