"""Whose messages wait, told of a running relay: keys, what is not delivered and why, the last dead letters."""

from __future__ import annotations

import pytest

from tests.relay.test_refusals import due_for_both, other_topic, passes
from tests.relay.test_series import HOUR_MS
from tests.relay.world import World, step_quietly, step_until
from waterclock.broker import Error
from waterclock.clock import ManualClock
from waterclock.letters import HIDDEN, LETTERS, LetterStatistics
from waterclock.relay.owner.owner import Owner
from waterclock.relay.owner.pace import Doubts
from waterclock.relay.relay import Relay
from waterclock.relay.statistics import Counts, RelayStatistics
from waterclock.relay.watching import fullest as module
from waterclock.relay.watching.due_next import due_next
from waterclock.relay.watching.fullest import EVERY_S, Fullest
from waterclock.relay.wire.letters import Letter


def looked(relay: Relay, hides: bool = False) -> RelayStatistics:
    return Fullest(relay.statistics, relay.owners, relay.lock, ManualClock(), hides).seen()


def sent(world: World, relay: Relay) -> None:
    for number in range(6):
        world.send("x", in_ms=60_000 + number, key=b"ann" if number < 4 else b"bob")
    world.send("x", in_ms=60_000)
    world.send("x", in_ms=900 * HOUR_MS, key=b"far")
    step_quietly(relay)


def test_the_fullest_keys_are_those_of_what_is_near(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    relay = world.started()
    sent(world, relay)
    found = looked(relay)
    assert (list(found.fullest.items()), found.waits) == ([("ann", 4), ("bob", 2)], ())
    assert looked(relay, hides=True).fullest == {f"{HIDDEN} 1": 4, f"{HIDDEN} 2": 2}
    where = relay.owners, relay.lock, relay.topics.input, world.now_ms
    assert {one.key for one in due_next(20, *where, hides=True).messages} == {HIDDEN, ""}
    monkeypatch.setattr(module, "LOOKED", 3)
    assert sum(looked(relay).fullest.values()) <= 3


def test_it_is_looked_for_once_in_a_while_and_a_relay_that_is_busy_keeps_nobody_waiting(world: World) -> None:
    relay, clock = world.started(), ManualClock()
    seen = Fullest(relay.statistics, relay.owners, relay.lock, clock, False).seen
    assert seen().fullest == {}
    sent(world, relay)
    assert seen().fullest == {}
    clock.advance_s(EVERY_S)
    with relay.lock:
        assert seen().fullest == {}
    assert seen().fullest == {"ann": 4, "bob": 2}


def test_what_is_due_and_not_delivered_says_why_and_whose_it_is(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    relay, refusing = world.started(), other_topic(world)
    with world.broker.faults.answer("Produce", Error.TOPIC_AUTHORIZATION_FAILED, times=None, topic=refusing):
        due_for_both(world, relay, refusing)
        with monkeypatch.context() as patched:  # what is refused becomes no dead letter yet, by neither way
            patched.setattr(Doubts, "to_put_aside", lambda self: self._refused[:0])
            none = property(lambda owner: 0, lambda owner, value: vars(owner).update(most_letters=max(1, value)))
            patched.setattr(Owner, "most_letters", none, raising=False)
            step_until(lambda: passes(world) or refusing in {one.target for one in looked(relay).waits}, relay)
            found = {one.target: one for one in looked(relay).waits}
        assert found[refusing].pending >= 1
        assert found[refusing].why
        step_until(lambda: passes(world) or len(world.letters()) == 3, relay)
    assert looked(relay).waits == ()


def test_a_letter_stands_in_the_statistics_with_its_reason(world: World) -> None:
    relay, refusing = world.started(), other_topic(world)
    with world.broker.faults.answer("Produce", Error.TOPIC_AUTHORIZATION_FAILED, times=None, topic=refusing):
        due_for_both(world, relay, refusing)
        step_until(lambda: passes(world) or len(world.letters()) == 3, relay)
    step_until(lambda: passes(world) or relay.statistics().letters, relay)
    letters = relay.statistics().letters
    assert sorted(one.value for one in letters) == ["0", "1", "2"]
    assert all(one.reason.startswith(f"{refusing} does not take it: ") for one in letters)
    assert all(one.place.startswith(f"{world.topic}-0-") for one in letters)


def test_the_last_letters_are_kept_and_a_word_hides_what_somebody_sent() -> None:
    letters = [Letter(n, "delay-ms is no number: 'a\"b' and 'c'", b"secret", None, [], False) for n in range(50)]
    for hides, value, reason in ((False, "secret", letters[0].reason), (True, HIDDEN, "delay-ms is no number: …")):
        counts = Counts(hides)
        counts.turn(7, [], [], letters, 0, "delays-1")  # type: ignore[arg-type]
        assert len(counts.letters) == LETTERS
        assert counts.letters[0] == LetterStatistics("delays-1-49", 7, reason, value)
        assert counts.dead_letters == 50
