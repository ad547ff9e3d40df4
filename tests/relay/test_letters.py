"""Dead letters: what cannot be done is put aside with the reason, and everything else goes on."""

from __future__ import annotations

import os

import pytest

from tests.relay.world import World, step_quietly, step_until
from waterclock.relay.owner.turn import Turn

BAD = [
    ({"deliver_at": 5}, "there is no deliver-to: it names the topic that the message goes to."),
    ({"deliver_to": "a b", "delay": 1}, "deliver-to must be the name of a topic, got 'a b'."),
    ({"deliver_to": "t"}, "there is neither deliver-at nor delay: one of them says when."),
    ({"deliver_to": "t", "delay": 1, "deliver_at": 1}, "there are both deliver-at and delay: send one of them."),
    ({"deliver_to": "t", "delay": -1}, "delay must be milliseconds as decimal digits, got '-1'."),
    ({"deliver_to": "t", "deliver_at": "soon"}, "deliver-at must be milliseconds as decimal digits, got 'soon'."),
    ({"delay_action": "cancel"}, "there is no delay-id: it says what to cancel."),
    ({"delay_action": "undo", "delay_id": "x"}, "delay-action must be cancel or replace, got 'undo'"),
    ({"deliver_to": "t", "delay": 1, "delay_id": ""}, "delay-id must have 1 to 255 bytes, got 0."),
    ({"deliver_to": "t", "delay": 1, "delay_id": "x" * 256}, "delay-id must have 1 to 255 bytes, got 256."),
    ({"deliver_to": "nobody", "delay": 1}, "there is no topic nobody to deliver to."),
]


def test_each_bad_request_goes_aside_with_its_reason_and_the_good_ones_are_delivered(world: World) -> None:
    relay = world.started()
    for headers, _ in BAD:
        world.put(b"value", key=b"key", **headers)
        world.send("good", in_ms=0)
    world.put_raw(b"value", None)
    world.put_raw(b"value", [("deliver-to", b"t"), ("deliver-to", b"t"), ("delay", b"1")])
    world.put_raw(b"value", [("deliver-to", b"t"), ("delay", b"1"), ("delay-id", b"\xff")])
    step_until(lambda: len(world.values()) == len(BAD), relay)
    step_quietly(relay)
    hoped = [reason for _, reason in BAD] + ["there is no deliver-to", "deliver-to stands there twice", "must be UTF-8"]
    reasons = [(letter["dead-reason"] or b"").decode() for letter in world.letters()]
    assert [hope for hope, reason in zip(hoped, reasons, strict=True) if hope not in reason] == []


def test_a_letter_is_the_record_as_it_came(world: World) -> None:
    relay = world.started()
    headers = [("b", b"\x00"), ("deliver-to", b"nobody"), ("delay", b"1"), ("a", None)]
    world.put_raw(b"\x00value", headers, b"\xffkey")
    step_quietly(relay)
    (seen,) = world.seen(f"{world.topic}.dead")
    reason = [("dead-reason", b"there is no topic nobody to deliver to."), ("dead-from", f"{world.topic}-0-0".encode())]
    assert (seen.key, seen.value, seen.headers) == (b"\xffkey", b"\x00value", [*headers, *reason])


def test_a_request_without_a_target_stays_put_aside_when_there_is_such_a_topic_later(world: World) -> None:
    relay = world.started()
    later = f"{world.topic}.later"
    world.put(b"value", deliver_to=later, deliver_at=world.now_ms + 1_000)
    step_quietly(relay)
    world.crash(relay)
    world.broker.create_topic(later)
    relay = world.started(folder=world.folder / "empty")
    world.advance_ms(1_000)
    step_quietly(relay)
    assert (len(world.letters()), world.values(later)) == (1, [])


def test_a_replace_without_a_target_replaces_nothing(world: World) -> None:
    """Found by the model: the old one was cancelled, and the new one put aside."""
    relay = world.started()
    world.send("old", in_ms=1_000, id="x")
    world.put(b"new", deliver_to="nobody", delay=1, delay_id="x", delay_action="replace")
    step_quietly(relay)
    world.advance_ms(1_000)
    step_quietly(relay)
    assert (world.values(), world.replies(), len(world.letters())) == (["old"], [], 1)


def test_a_target_that_is_gone_when_the_message_is_due_makes_a_letter_of_it(world: World) -> None:
    relay = world.started()
    gone = f"{world.topic}.gone"
    world.broker.create_topic(gone)
    world.put(b"value", deliver_to=gone, deliver_at=world.now_ms + 5_000)
    world.send("good", in_ms=5_000)
    step_quietly(relay)
    world.remove(gone)
    relay._context.targets.forget([gone])  # five seconds later
    world.advance_ms(5_000)
    step_until(world.values, relay)
    assert [letter["dead-reason"] for letter in world.letters()] == [
        f"there is no topic {gone} to deliver to.".encode()
    ]


def test_many_whose_target_is_gone_are_put_aside_in_parts_and_read_together(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One by one and in one turn, ten thousand would keep the relay from its group for minutes, and then the next one."""
    monkeypatch.setattr("waterclock.relay.owner.refusals.TOGETHER", 20)
    relay = world.started()
    gone = f"{world.topic}.gone"
    world.broker.create_topic(gone)
    for n in range(50):
        world.put(b"%d" % n, deliver_to=gone, deliver_at=world.now_ms + 5_000)
        if n == 30:
            world.send("good", in_ms=5_000)
    step_quietly(relay)
    world.remove(gone)
    relay._context.targets.forget([gone])  # five seconds later
    real, readings = relay._logs.read, []
    monkeypatch.setattr(relay._logs, "read", lambda *where: readings.append(where) or real(*where))
    turns = relay._counts.turns
    world.advance_ms(5_000)
    step_until(lambda: len(world.letters()) == 50, relay)
    step_quietly(relay)
    assert world.values(f"{world.topic}.dead") == [str(n) for n in range(50)]
    assert (world.values(), relay._counts.turns - turns) == (["good"], 3)
    assert len(readings) == 3


def test_a_message_that_its_target_refuses_is_put_aside_alone(world: World) -> None:
    relay = world.started()
    world.alter(world.target, "max.message.bytes", 5_000)
    world.send("before", in_ms=1_000)
    world.put(os.urandom(20_000), deliver_to=world.target, deliver_at=world.now_ms + 1_000)
    world.put(os.urandom(20_000), deliver_to=world.target, deliver_at=world.now_ms + 1_000)
    world.send("after", in_ms=1_000)
    step_quietly(relay)
    world.advance_ms(1_000)
    step_until(lambda: turned(world) and len(world.letters()) == 2, relay)
    assert world.values() == ["before", "after"]
    letters = world.seen(f"{world.topic}.dead")
    assert [len(seen.value or b"") for seen in letters] == [20_000, 20_000]
    assert b"Message size too large" in (dict(letters[0].headers)["dead-reason"] or b"")
    assert relay._counts.breaks == 0


def turned(world: World) -> bool:
    """Time goes on, so that pauses pass."""
    world.advance_ms(50)
    return len(world.values()) == 2


def test_a_letter_that_is_too_large_itself_is_written_without_the_record(world: World) -> None:
    relay = world.started()
    world.alter(f"{world.topic}.dead", "max.message.bytes", 5_000)
    world.put(os.urandom(20_000), no_target=1)
    world.send("good", in_ms=0)
    step_until(lambda: world.advance_ms(50) or world.letters(), relay)
    step_quietly(relay)
    (letter,) = world.letters()
    assert letter["dead-record"] == f"too much for this topic: it stands at {world.topic}-0-0".encode()
    assert world.values() == ["good"]


@pytest.mark.long(seconds=15)
def test_a_kafka_that_is_slow_while_a_record_is_looked_for_has_nothing_else_put_aside(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("waterclock.relay.owner.context._PRODUCER", {"transaction.timeout.ms": 1_000})
    relay = world.started()
    world.alter(world.target, "max.message.bytes", 5_000)
    world.send("before", in_ms=1_000)
    world.put(os.urandom(20_000), deliver_to=world.target, deliver_at=world.now_ms + 1_000)
    world.send("after", in_ms=1_000)
    step_quietly(relay)
    real, slow = Turn.deliver, []

    def deliver(self: Turn) -> None:
        if self._has_reports and len(slow) < 2:
            slow.append(world.broker.faults.delay("Produce", 3_000, times=1))
        real(self)

    monkeypatch.setattr(Turn, "deliver", deliver)
    world.advance_ms(1_000)
    step_until(lambda: turned(world) and world.letters(), relay)
    assert world.values() == ["before", "after"]
    assert [len(seen.value or b"") for seen in world.seen(f"{world.topic}.dead")] == [20_000]
    assert len(slow) == 2


@pytest.mark.parametrize("value", [b"wcsettle" + bytes(40), pytest.param(b"else", marks=pytest.mark.long(seconds=1))])
def test_what_strangers_write_beside_the_settlements_is_passed_over_and_said(
    value: bytes, world: World, caplog: pytest.LogCaptureFixture
) -> None:
    relay = world.started()
    world.send("a", in_ms=1_000)
    step_quietly(relay)
    world.crash(relay)
    world._producer.produce(f"{world.topic}.settled", value, partition=0)
    world._producer.flush(10)
    relay = world.started()
    world.advance_ms(1_000)
    step_quietly(relay)
    assert world.values() == ["a"]
    assert f"{world.topic}.settled-0-" in caplog.text
    assert "passed over" in caplog.text
