"""Relays hear of each other beside the group: one that stops hands over as it goes on, one that died is noticed, one that
was only taken for dead goes on, and whoever comes back reads up first."""

from __future__ import annotations

import errno
import time
from concurrent.futures import Future
from itertools import count
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

from tests.relay.world import World, step_quietly, step_until
from waterclock.relay.cluster import group, signs
from waterclock.relay.options import StandsBy
from waterclock.relay.owner.take_over import PendingTakeOver, TakeOver
from waterclock.relay.relay import Relay
from waterclock.testing import Error


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signs, "EVERY_S", 0.05)


def known(world: World) -> tuple[Relay, Relay]:
    """One owns the partition, and the other has its files, and has heard of it; each knows of the other."""
    one = world.started("one")
    two = world.relay("two")
    step_until(lambda: two._member.was_given, one, two)
    step_until(lambda: world.advance_ms(group.LOOK_NS // 1_000_000) or one._unassigned.others, one, two)
    step_until(lambda: has_heard(two) and two.standby.has_read_up(0), one, two)
    assert set(one.owners) == {0}
    assert not two.owners
    return one, two


def has_heard(relay: Relay) -> bool:
    return any(heard.is_news for heard in relay._signs._heard.values())


def die(world: World, relay: Relay) -> None:
    """Its connections stay open, as if Kafka took it for living."""
    relay._signs.close()
    world.crash(relay)


def delivered(world: World, relay: Relay, *values: str) -> None:
    """What is due now comes from this relay, each once, behind what came."""
    before = world.values()
    world.send(*values, in_ms=0)
    step_until(lambda: len(world.values()) >= len(before) + len(values), relay)
    step_quietly(relay)
    assert world.values() == [*before, *values]


def test_one_that_stops_is_an_owner_until_another_is(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = known(world)
    monkeypatch.setattr(signs, "SILENT", 1_000_000)  # it is its word
    delivered(world, one, "a")
    owner = one.owners[0]
    for turn in count():
        if 0 in two.owners:
            break
        assert turn < 200
        assert one.goes_on(True)
        delivered(world, one, "still")
        assert one.owners == {0: owner}
        two.step(0)
    delivered(world, two, "b")
    step_until(lambda: not one.goes_on(True), one, two)
    world.close(one)
    step_until(lambda: not two._stands_in, two)  # the group says so too
    delivered(world, two, "c")


def test_one_that_stops_alone_ends_at_once(world: World) -> None:
    one = world.started("one")
    assert one.goes_on(False)
    assert not one.goes_on(True)


def test_one_that_gave_a_partition_away_has_an_heir_before_it_looks_again(wide: World) -> None:
    one = wide.started("one")
    two = wide.relay("two")
    step_until(lambda: len(one.owners) == len(two.owners) == 1, one, two)
    assert not one._unassigned.others
    assert one.goes_on(True)


def test_one_that_stops_where_nobody_stands_by_ends_at_once(world: World) -> None:
    """Nobody could take over before the group has heard that it is gone."""
    one = world.started("one", standby=StandsBy.NONE)
    two = world.relay("two", standby=StandsBy.NONE)
    step_until(lambda: world.advance_ms(group.LOOK_NS // 1_000_000) or one._unassigned.others, one, two)
    assert set(one.owners) == {0}
    assert not one.goes_on(True)


def test_one_that_stops_is_not_awaited_for_ever(world: World) -> None:
    one, two = known(world)
    die(world, two)
    assert one.goes_on(True)
    one.step(0)
    world.advance_ms(3_000)
    assert not one.goes_on(True)


def test_one_that_died_is_noticed_though_the_group_takes_it_for_living(world: World) -> None:
    one, two = known(world)
    world.send("a", in_ms=5_000)
    step_quietly(one)
    die(world, one)
    step_until(lambda: 0 in two.owners, two)
    assert 0 in two._stands_in
    world.advance_ms(5_000)
    step_until(world.values, two)
    assert world.values() == ["a"]
    delivered(world, two, "b", "c")


def test_one_that_takes_itself_to_be_alone_is_not_taken_for_dead(world: World) -> None:
    """The other one is in no group yet: it reads up."""
    one, two = known(world)
    one._unassigned.others, looks = 0, two._signs._looks
    step_until(lambda: two._signs._looks > looks + 3 * signs.SILENT, one, two)
    assert one._signs.is_alone
    assert 0 not in two.owners


def test_what_the_group_gives_to_one_that_stands_in_is_read_from_where_it_is(world: World) -> None:
    one, two = known(world)
    die(world, one)
    step_until(lambda: 0 in two.owners, two)
    step_quietly(two)
    owner = two.owners[0]
    world.send("a", "b", in_ms=0)  # not read yet
    two._member.on_given(two._member.consumer, [TopicPartition(world.topic, 0)])
    step_until(lambda: len(world.values()) == 2, two)
    assert (two.owners, two._stands_in) == ({0: owner}, {})


def test_what_came_and_went_while_it_was_to_be_taken_is_taken_when_it_comes_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An orphan waited behind another one's long take-over, the group gave it here and took it away. Given again, it had no
    owner, and nothing of it was delivered."""
    one, two = known(world)
    monkeypatch.setattr(signs, "SILENT", 1_000_000)  # it is the group's word
    die(world, one)
    two._signs.take(0)
    two._stands_in[0], two._pending[0] = 1 << 62, PendingTakeOver(world.clock)
    two._member.on_given(two._member.consumer, [TopicPartition(world.topic, 0)])
    two._member._on_taken(two._member.consumer, [TopicPartition(world.topic, 0)])
    two.step(0)
    assert not two._pending
    two._member.on_given(two._member.consumer, [TopicPartition(world.topic, 0)])
    step_until(lambda: 0 in two.owners, two)
    delivered(world, two, "a")


def test_one_that_was_taken_for_dead_goes_on_and_is_believed_then(world: World) -> None:
    one, two = known(world)
    said, one._signs._owned = one._signs._owned, ({}, False)
    one._signs.own = lambda *words: None  # type: ignore[method-assign]
    step_until(lambda: 0 in two.owners, two)
    del one._signs.own  # type: ignore[method-assign]
    one._signs._owned = said
    world.send("a", in_ms=0)
    step_until(lambda: world.values() and 0 not in two.owners and 0 in one.owners, one, two)
    step_until(lambda: one._signs._me in two._signs._believed_until, one, two)
    one._signs.own = lambda *words: None  # type: ignore[method-assign]
    one._signs._owned = {}, False
    looks = two._signs._looks
    step_until(lambda: two._signs._looks > looks + 3 * signs.SILENT, two)
    assert 0 not in two.owners
    delivered(world, one, "b")
    assert world.values() == ["a", "b"]


def test_two_that_stop_at_once_end_and_a_third_goes_on(world: World) -> None:
    one, two = known(world)
    world.send("a", in_ms=60_000)
    assert one.goes_on(True)
    two.goes_on(True)
    for _ in range(20):
        one.step(0.01), two.step(0.01)
    assert 0 not in two.owners
    world.close(one)
    world.close(two)
    three = world.started("three")
    world.advance_ms(60_000)
    step_until(world.values, three)
    assert world.values() == ["a"]


def test_whoever_starts_beside_others_joins_when_it_has_read_up(world: World) -> None:
    one = world.started("one")
    world.send(*map(str, range(3_000)), in_ms=60_000)
    step_until(lambda: one.owners[0].position == 3_000, one)
    two = world.relay("two")
    assert not two._member.has_joined
    step_until(lambda: two._member.has_joined, two)
    assert two.standby.followers[0].position > 1_000


def test_one_that_cannot_follow_joins_all_the_same(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.started("one")
    two = world.relay("two")
    monkeypatch.setattr(two.standby, "_is_roomy", lambda now_ns: False)
    two.standby._has_room = False
    step_until(lambda: two._member.has_joined, two)


def test_an_owner_goes_on_though_its_group_has_gone_on_without_it(world: World) -> None:
    one = world.started("one")
    owner = one.owners[0]
    one._member.consumer.unsubscribe()
    step_until(lambda: 0 in one._stands_in, one)
    delivered(world, one, "a", "b")
    assert one.owners == {0: owner}
    world.advance_ms(20_000)
    one.step(0)
    assert one.owners == {}  # the group did not give it back


def test_of_two_that_take_it_at_once_the_later_one_keeps_it(world: World) -> None:
    """Each heard the other and let go, and nobody had it until it was an orphan again."""
    one, two = known(world)
    three = world.relay("three")
    step_until(lambda: has_heard(three) and three.standby.has_read_up(0), one, two, three)
    die(world, one)
    step_until(lambda: 0 in two.owners, two)
    three._signs.take(0)  # it has not heard of two yet
    three._stands_in[0], three._pending[0] = two._stands_in[0], PendingTakeOver(world.clock)
    step_until(lambda: 0 in three.owners, three)
    owner, looks = three.owners[0], three._signs._looks
    step_until(lambda: 0 not in two.owners and three._signs._looks > looks + 2 * signs.SILENT, two, three)
    assert three.owners == {0: owner}
    delivered(world, three, "a")


def test_an_owner_goes_on_while_whom_the_group_gave_it_to_cannot_take_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its disk was full: after 15 seconds nobody delivered, for as long as it was."""
    one, two = known(world)
    real = TakeOver.lock

    def full(self: TakeOver) -> None:
        if self._context is two._context:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(self)

    with monkeypatch.context() as patch:
        patch.setattr(TakeOver, "lock", full)
        one._member.consumer.unsubscribe()
        step_until(lambda: 0 in one._stands_in and world.lost, one, two)
        for value in "abc":
            delivered(world, one, value)
            world.advance_ms(20_000)
            one.step(0), two.step(0)
        assert 0 in one._stands_in
    step_until(lambda: 0 in two.owners, two)
    monkeypatch.setattr(one._signs, "is_anothers", lambda number: False)  # of an older version nothing is heard
    world.advance_ms(20_000)
    step_until(lambda: 0 not in one.owners, one)
    assert not one._pending
    delivered(world, two, "d")


class StandingStill:
    """A Kafka that answers, to all that was asked, when it is told to: with the sign `word` of partition 0."""

    def __init__(self) -> None:
        self.asked = list[tuple[str, Future[Any]]]()

    def list_consumer_group_offsets(self, asked: list[Any], **options: Any) -> dict[str, Future[Any]]:
        return self._ask("look", asked)

    def alter_consumer_group_offsets(self, said: list[Any], **options: Any) -> dict[str, Future[Any]]:
        return self._ask("sign", said)

    def _ask(self, what: str, groups: list[Any]) -> dict[str, Future[Any]]:
        future = Future[Any]()
        self.asked.append((what, future))
        return {groups[0].group_id: future}

    def answer(self, word: str, what: tuple[str, ...] = ("look", "sign")) -> None:
        for each in [one for one in self.asked if one[0] in what]:
            self.asked.remove(each)
            each[1].set_result(ConsumerGroupTopicPartitions("g.signs", [TopicPartition("t", 0, 1, word)]))


@pytest.mark.parametrize("waits", ["look", "sign"])
def test_a_kafka_that_stood_still_makes_nobody_an_orphan(waits: str) -> None:
    """It answers all looks at once, and by all of them the owner is where it was; or it takes no sign, and says what it
    has: who takes none of this relay's takes none of others'."""
    kafka = StandingStill()
    told = signs.Signs(kafka, "g", "t", 1)  # type: ignore[arg-type]
    try:
        told.own({1: 0}, False)
        for word in ("other 1", "other 2"):
            looks = told._looks
            while told._looks == looks:
                kafka.answer(word)
                told.hear()
        until_s = time.monotonic() + 12 * signs.EVERY_S
        while time.monotonic() < until_s:
            if waits == "sign":
                kafka.answer("other 2", ("look",))
            time.sleep(signs.EVERY_S / 4)
        kafka.answer("other 2")
        time.sleep(2 * signs.EVERY_S)
        told.hear()
        assert list(told.orphans()) == []
        looks = told._looks
        while told._looks < looks + signs.SILENT:  # it goes on, and the other does not
            kafka.answer("other 2")
            told.hear()
        assert list(told.orphans()) == [(0, False)]
    finally:
        told.close()


def test_one_that_is_taken_for_dead_again_is_believed_for_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was believed for a minute from its last sign on: who was busy once, and killed then, its session told."""
    monkeypatch.setattr(signs, "EVERY_S", 0.002)
    kafka, count = StandingStill(), 0
    told = signs.Signs(kafka, "g", "t", 1)  # type: ignore[arg-type]

    def looks_until(word: str, wanted: int) -> bool:
        """Whether it was an orphan before so many looks were through."""
        end = told._looks + wanted
        while told._looks < end:
            kafka.answer(word)
            told.hear()
            if list(told.orphans()):
                return True
        return False

    try:
        looks_until("other 0", 1)
        for believed in (0, signs.BELIEVED, 2 * signs.BELIEVED):
            for _ in range(3):  # it says more than one word, and is believed from the first one on
                count += 1
                assert not looks_until(f"other {count}", 1)
            assert not looks_until(f"other {count}", believed - 5)
            assert looks_until(f"other {count}", signs.SILENT + 6)
            told.take(0)
    finally:
        told.close()


def test_a_missing_right_is_said_once_and_the_groups_session_tells(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    refused = Error.GROUP_AUTHORIZATION_FAILED
    with world.broker.faults.answer("OffsetCommit", refused, times=None) as fault:
        one = world.started("one")
        two = world.relay("two")
        later = group.LOOK_NS // 1_000_000
        step_until(lambda: world.advance_ms(later) or "refuses signs of life" in caplog.text, one, two)
        met = fault.met
        for _ in range(20):
            one.step(0.01), two.step(0.01)
        assert fault.met == met
    assert caplog.text.count("refuses signs of life") == 1
    assert "needs the right Read of that group" in caplog.text
    delivered(world, one, "a")
