"""What is later than it may be is not delivered, and is put aside with the reason."""

from __future__ import annotations

import pytest

from tests.relay.test_kills import dying, run_until_death
from tests.relay.test_series import HOUR_MS, cancel, delivered, hourly, turn_to
from tests.relay.world import World, step_quietly
from waterclock.relay.owner.turn import Turn


def test_what_comes_in_time_is_delivered_and_what_does_not_is_a_letter(world: World) -> None:
    relay = world.started()
    world.send("ttl late", in_ms=1_000, delay_ttl=499, key=b"k", id="x")
    world.send("ttl in time", in_ms=1_000, delay_ttl=500)
    world.send("late", in_ms=1_000, delay_expires=world.now_ms + 1_499)
    world.send("in time", in_ms=1_000, delay_expires=world.now_ms + 1_500)
    turn_to(world, relay, world.now_ms + 1_500)
    assert world.values() == ["ttl in time", "in time"]
    assert [name for name, _ in world.seen()[0].headers] == ["delayed-from", "delayed-until"]
    letters = world.seen(f"{world.topic}.dead")
    assert [seen.value for seen in letters] == [b"ttl late", b"late"]
    assert all((dict(seen.headers)["dead-reason"] or b"").startswith(b"expired: it was due at 2") for seen in letters)
    assert relay.owners[0].store.pending == 0
    cancel(world, "x")
    step_quietly(relay)
    assert world.replies() == [("x", "cancelled", 0)]


def test_a_letter_can_be_sent_again_as_a_request(world: World) -> None:
    relay = world.started()
    due_ms = world.now_ms + 1_000
    world.put(b"v", key=b"k", trace="x", deliver_to=world.target, deliver_at=due_ms, delay_ttl=5, delay_id="id")
    step_quietly(relay)
    turn_to(world, relay, due_ms + 6)
    (letter,) = world.seen(f"{world.topic}.dead")
    headers = [(name, text) for name, text in letter.headers if not name.startswith(("dead-", "delay-ttl"))]
    world.put_raw(letter.value, headers, letter.key)
    step_quietly(relay)
    (seen,) = world.seen()
    assert (seen.key, seen.value, dict(seen.headers)["trace"]) == (b"k", b"v", b"x")
    assert dict(seen.headers)["delayed-until"] == str(due_ms).encode()


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_death_around_the_commit_leaves_one_letter(when: str, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    relay = world.started()
    world.send("late", in_ms=1_000, delay_ttl=1)
    step_quietly(relay)
    world.advance_ms(1_002)
    with monkeypatch.context() as patch:
        dying(patch, Turn, "commit", when)
        run_until_death(world, relay)
    relay = world.started()
    step_quietly(relay)
    assert (world.values(), len(world.letters()), relay.owners[0].store.pending) == ([], 1, 0)


def test_each_occurrence_expires_by_itself_and_the_series_goes_on(world: World) -> None:
    relay = world.started()
    first_ms = hourly(world, delay_ttl=1_000)
    turn_to(world, relay, first_ms + 1_001)
    turn_to(world, relay, first_ms + HOUR_MS)
    assert delivered(world) == [(first_ms + HOUR_MS, 2)]
    assert len(world.letters()) == 1


def test_a_series_ends_with_its_last_moment_without_a_letter(world: World) -> None:
    relay = world.started()
    first_ms = hourly(world, delay_expires=world.now_ms // HOUR_MS * HOUR_MS + 2 * HOUR_MS)
    for number in range(4):
        turn_to(world, relay, first_ms + number * HOUR_MS)
    assert delivered(world) == [(first_ms, 1), (first_ms + HOUR_MS, 2)]
    assert (world.letters(), relay.owners[0].store.pending) == ([], 0)


BAD = [
    (
        {"deliver_at": 5, "delay_expires": 4},
        "it would expire before it is due: delay-expires is 4, and it is due at 5.",
    ),
    ({"delay": 1, "delay_ttl": -1}, "delay-ttl must be milliseconds as decimal digits, got '-1'."),
    ({"delay": 1, "delay_expires": "soon"}, "delay-expires must be milliseconds as decimal digits, got 'soon'."),
    ({"delay": 1, "delay_ttl": 1, "delay_expires": 1}, "there are both delay-expires and delay-ttl: send one of them."),
]


def test_what_cannot_be_read_goes_aside_with_its_reason(world: World) -> None:
    relay = world.started()
    for headers, _ in BAD:
        world.put(b"value", deliver_to=world.target, **headers)
    step_quietly(relay)
    assert [(letter["dead-reason"] or b"").decode() for letter in world.letters()] == [reason for _, reason in BAD]
