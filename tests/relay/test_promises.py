"""The promises of docs/relay.md, one after the other, on our broker and on Apache Kafka: the same code, the same tests.

What each of them means in every case is for the other files of this folder.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import product
from typing import Any, Final

import pytest

from tests.relay.brokers import BOTH, chosen
from tests.relay.test_kills import QUICK, TAKE_OVER, TURN, WHEN, Death, dying, owner_of, run_until_death
from tests.relay.world import World, step_quietly, step_until
from waterclock.relay.owner.take_over import TakeOver
from waterclock.relay.owner.turn import Turn
from waterclock.relay.relay import Relay

HOUR_MS: Final = 3_600_000
DEATHS: Final = [(Turn, *one) for one in product(TURN, WHEN)] + [(TakeOver, *one) for one in product(TAKE_OVER, WHEN)]


@pytest.fixture(scope="module", params=BOTH)
def relay_broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Each of the two."""
    yield from chosen(request, tmp_path_factory)


def deliver(world: World, relay: Relay, in_ms: int) -> list[str]:
    """What is there so many ms later."""
    world.advance_ms(in_ms)
    step_quietly(relay)
    return world.values()


# 1. Never early


@pytest.mark.always
def test_nothing_comes_a_millisecond_before_it_is_due_and_all_of_it_when_it_is(world: World) -> None:
    relay = world.started()
    dues = (1, 999, HOUR_MS, 9 * 24 * HOUR_MS)
    for in_ms in dues:
        world.send(str(in_ms), in_ms=in_ms)
    step_quietly(relay)
    now_ms = 0
    for number, in_ms in enumerate(dues):
        assert deliver(world, relay, in_ms - 1 - now_ms) == list(map(str, dues[:number]))
        assert deliver(world, relay, 1) == list(map(str, dues[: number + 1]))
        now_ms = in_ms


# 2. Exactly once


def die(world: World, owner: Any, step: str, when: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relay dies there."""
    with monkeypatch.context() as patch:
        dying(patch, owner, step, when)
        if owner is TakeOver:
            patch.setattr(TakeOver, "give_up", lambda self: self._store and self._store.close())
        run_until_death(world, world.relay())


def kept_through(deaths: list[tuple[Any, str, str]], world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A death after the other, and between them new requests: all of it comes once."""
    for number, death in enumerate(deaths):
        world.send(f"{number} a", f"{number} b", in_ms=1_000)
        world.send("never", in_ms=HOUR_MS, id=f"cart-{number}")
        world.put(None, delay_id=f"cart-{number}", delay_action="cancel")
        world.put(b"bad")
        world.advance_ms(1_000)
        die(world, *death, monkeypatch)
    relay = world.started()
    step_quietly(relay)
    deliver(world, relay, HOUR_MS)
    numbers = range(len(deaths))
    assert world.values() == [f"{number} {which}" for number in numbers for which in "ab"]
    assert sorted(world.replies()) == sorted((f"cart-{number}", "cancelled", 1) for number in numbers)
    assert len(world.letters()) == len(deaths)


def test_a_relay_that_dies_at_a_step_delivers_everything_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    kept_through([death for death in DEATHS if death[1:] in QUICK], world, monkeypatch)


@pytest.mark.long(seconds=25)
def test_and_so_does_one_that_dies_at_each_step_in_turn(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    kept_through(DEATHS, world, monkeypatch)


# 3. In order


@pytest.mark.always
def test_of_a_partition_everything_comes_by_due_time_then_in_the_order_of_the_input(
    wide: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A death in the middle changes nothing."""
    dice = random.Random(3)
    sent: dict[int, list[tuple[int, int]]] = {0: [], 1: []}
    for number in range(200):
        partition, in_ms = dice.randrange(2), dice.randrange(0, 1_000, 50)
        wide.send(f"{partition} {number}", in_ms=in_ms, partition=partition)
        sent[partition].append((in_ms, number))
    relay = wide.started()
    step_quietly(relay)
    deliver(wide, relay, 300)
    with monkeypatch.context() as patch:
        dying(patch, Turn, "commit", "after")
        wide.advance_ms(300)
        with pytest.raises(Death):
            step_until(lambda: False, relay)
        wide.crash(relay)
    came = deliver(wide, wide.started(), 400)
    for partition, rows in sent.items():
        hoped = [f"{partition} {number}" for _, number in sorted(rows)]
        assert [value for value in came if value.startswith(f"{partition} ")] == hoped


# 4. On the disk


def test_what_is_due_later_is_on_the_disk_and_a_new_start_reads_none_of_it(world: World) -> None:
    relay, days = world.started(), 20
    world.send("soon", in_ms=1_000)
    for day in range(1, days + 1):
        world.send(*(f"{day}-{number}" for number in range(50)), in_ms=day * 24 * HOUR_MS)
    step_quietly(relay)
    assert (len(owner_of(relay).due_soon), owner_of(relay).store.pending) == (1, 1 + 50 * days)
    world.close(relay)
    relay = world.started()
    assert (relay._counts.requests, len(owner_of(relay).due_soon), owner_of(relay).store.pending) == (
        0,
        1,
        1 + 50 * days,
    )
    most = 0
    while owner_of(relay).store.pending:
        world.advance_ms(HOUR_MS)
        step_until(lambda: not relay.step(0), relay)
        most = max(most, len(owner_of(relay).due_soon))
    assert most <= 50
    hoped = ["soon", *(f"{day}-{number}" for day in range(1, days + 1) for number in range(50))]
    step_quietly(relay)
    assert world.values() == hoped


# 5. Cancel and replace


def test_a_cancel_and_a_replace_hear_what_became_of_the_message_though_the_relay_dies_over_the_answer(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    relay = world.started()
    world.send("came", in_ms=0, id="came")
    world.send("gone", "gone too", in_ms=5_000, id="gone")
    world.send("old", in_ms=5_000, id="changed")
    step_until(world.values, relay)
    for id in ("came", "gone", "gone", "nobody's"):
        world.put(None, delay_id=id, delay_action="cancel")
    world.send("new", in_ms=4_000, id="changed", delay_action="replace")
    world.send("again", in_ms=4_000, id="came", delay_action="replace")
    world.crash(relay)
    for when in WHEN:
        die(world, Turn, "commit", when, monkeypatch)
    relay = world.started()
    world.put(None, delay_id="late", delay_action="cancel")
    step_quietly(relay)
    assert world.replies() == [
        ("came", "already delivered", 0),
        ("gone", "cancelled", 2),
        ("gone", "cancelled", 0),
        ("nobody's", "unknown", 0),
        ("changed", "replaced", 1),
        ("came", "already delivered", 0),
        ("late", "unknown", 0),
    ]
    assert deliver(world, relay, 5_000) == ["came", "new", "again"]


# 6. What is pending can be seen


def test_what_is_pending_is_counted_by_hour_and_topic_and_shown_by_its_id(world: World) -> None:
    relay = world.started()
    world.send("a", "b", in_ms=2 * 24 * HOUR_MS)
    world.send("c", in_ms=5_000, id="c")
    world.send("d", in_ms=0, id="d")
    world.send("e", in_ms=HOUR_MS, id="e")
    world.put(None, delay_id="e", delay_action="cancel")
    step_until(world.values, relay)
    due_ms = world.now_ms + 5_000
    step_quietly(relay)
    world.advance_ms(1_000)
    step_quietly(relay)
    seen = relay.statistics()
    (partition,) = seen.partitions.values()
    assert (seen.pending, partition.next_due_ms, seen.delivered) == (3, due_ms, 1)
    assert sum(seen.lateness_ms.values()) == 1
    counted = {(span.target, span.pending) for span in seen.spans if span.start_ms <= due_ms < span.end_ms}
    assert counted == {(world.target, 1)}
    assert sum(span.pending for span in seen.spans) == 3
    states = {id: [one.state for one in relay.show(id)] for id in ("c", "d", "e", "f")}
    assert states == {"c": ["pending"], "d": ["delivered"], "e": ["cancelled"], "f": []}


# 7. What cannot be done


def test_what_cannot_be_done_is_put_aside_with_the_reason_and_everything_else_goes_on(world: World) -> None:
    relay, now = world.started(), world.now_ms
    world.put(b"0", deliver_at=now)
    world.put(b"1", deliver_to=world.target)
    world.put(b"2", deliver_to=world.target, deliver_at="tomorrow")
    world.put(b"3", deliver_to="nobody-has-it", deliver_at=now)
    world.put(b"4", deliver_to=world.topic, deliver_at=now)
    world.put(b"5", delay_action="cancel")
    world.put_raw(None, None)
    world.send("good", in_ms=0)
    step_until(lambda: world.advance_ms(50) or (len(world.letters()) == 7 and world.values()), relay)
    step_quietly(relay)
    assert world.values() == ["good"]
    letters = {letter["dead-from"]: (letter["dead-reason"] or b"").decode() for letter in world.letters()}
    words = (
        "deliver-to",
        "deliver-at",
        "decimal digits",
        "there is no topic",
        "the relay's own",
        "delay-id",
        "deliver",
    )
    assert set(letters) == {f"{world.topic}-0-{number}".encode() for number in range(7)}
    told = [letters[f"{world.topic}-0-{number}".encode()] for number in range(7)]
    assert [word for word, reason in zip(words, told, strict=True) if word not in reason] == []
