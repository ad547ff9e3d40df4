"""Snapshots and trims: what was settled stays known when the logs that said so are cut off; else nobody starts."""

from __future__ import annotations

from concurrent.futures import Future

import numpy as np
import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from hypothesis import given
from hypothesis import strategies as st

from tests.relay.lapping import (
    YEAR_MS,
    all_once,
    cut_off,
    fill,
    lap,
    lapping,
    long_ones,
    owner_of,
    saved,
    until_delivered,
)
from tests.relay.world import World, step_quietly, step_until
from waterclock.errors import UsageError
from waterclock.kafka.admin import Admin
from waterclock.kafka.settings import base_settings
from waterclock.relay.relay import Relay
from waterclock.relay.wire.settlement import Assembly, Move, NoSettlement, SettledSnapshot, mark_of, move_of, part_of
from waterclock.relay.wire.topics import Topics, prepare

MARK = mark_of("an id")
STRETCHES = st.lists(st.tuples(st.integers(0, 2**62), st.integers(0, 2**62)), max_size=5)


def made(chunks: dict[int, bytes], stretches: list[tuple[int, int]]) -> SettledSnapshot:
    return SettledSnapshot(5, 12, 70_000, 3, stretches, chunks)


@given(st.dictionaries(st.integers(0, 2**40), st.binary(max_size=40), max_size=4), STRETCHES)
def test_what_is_written_is_read(chunks: dict[int, bytes], stretches: list[tuple[int, int]]) -> None:
    (value,) = made(chunks, stretches).parts(MARK)
    part = part_of(value)
    assert part.mark == MARK
    assert Assembly().take(part) == made(chunks, stretches)


def test_a_large_one_is_several_records_and_one_that_lacks_any_is_none() -> None:
    snapshot = made({7: np.random.default_rng(0).bytes(1_700_000)}, [])
    parts = [part_of(value) for value in snapshot.parts(MARK)]
    assert len(parts) == 4
    whole, broken = Assembly(), Assembly()
    assert [whole.take(part) for part in parts] == [None, None, None, snapshot]
    assert [broken.take(part) for part in (parts[0], parts[2], parts[3])] == [None, None, None]
    assert [broken.take(part) for part in parts] == [None, None, None, snapshot]


@given(st.data())
def test_a_single_wrong_byte_of_either_kind_of_record_is_noticed(data: st.DataObject) -> None:
    for value, read in (
        (made({7: b"abc"}, [(3, 9)]).parts(MARK)[0], part_of),
        (Move(12, 9, MARK, [(20, 23)]).packed(), move_of),
    ):
        wrong = bytearray(value)
        wrong[data.draw(st.integers(0, len(value) - 1))] ^= data.draw(st.integers(1, 255))
        with pytest.raises(NoSettlement):
            read(bytes(wrong))


def far(world: World, relay: Relay) -> None:
    """Some that are settled, some for next year, and both logs cut off."""
    world.send("far", "gone", in_ms=YEAR_MS, id="cart-17")
    world.send("too", in_ms=YEAR_MS)
    step_quietly(relay)
    cut_off(world, relay)


def empty(world: World, relay: Relay, name: str = "empty") -> Relay:
    """Another relay in its place, without its files."""
    world.crash(relay)
    return lapping(world, folder=world.folder / name)


def test_files_that_are_lost_when_both_logs_are_cut_off_are_made_again_of_them(world: World) -> None:
    relay = lapping(world)
    far(world, relay)
    delivered = world.values()
    relay = empty(world, relay)
    step_quietly(relay)
    assert owner_of(relay).store.pending == 3
    assert world.values() == delivered
    assert owner_of(relay).log_span.low > 3
    world.advance_ms(YEAR_MS)
    until_delivered(world, relay, "far", "gone", "too")


def test_a_cancel_reaches_what_only_a_snapshot_and_a_copy_tell_of(world: World) -> None:
    relay = lapping(world)
    far(world, relay)
    relay = empty(world, relay)
    world.put(None, delay_id="cart-17", delay_action="cancel")
    step_until(world.replies, relay)
    assert world.replies() == [("cart-17", "cancelled", 2)]
    cut_off(world, relay)
    relay = empty(world, relay, "again")
    world.advance_ms(YEAR_MS)
    until_delivered(world, relay, "too")


def test_what_was_settled_after_it_was_moved_on_stays_settled(world: World) -> None:
    """Its copy stands in the log, its origin was cut off, and so was its settlement: the snapshot alone knows it."""
    relay = lapping(world)
    world.send("soon", in_ms=3_600_000)
    world.send("far", in_ms=YEAR_MS)
    step_quietly(relay)
    cut_off(world, relay)
    world.advance_ms(3_600_000)
    step_until(lambda: "soon" in world.values(), relay)
    low = owner_of(relay).log_span.settled_low
    saved(world, relay, 2)
    step_until(lambda: world.advance_ms(1_000) or owner_of(relay).log_span.settled_low > low, relay)
    relay = empty(world, relay)
    step_quietly(relay)
    assert long_ones(world) == ["soon"]
    assert owner_of(relay).store.pending == 1
    assert all_once(world)


def test_files_that_are_kept_need_no_snapshot(world: World) -> None:
    relay = lapping(world)
    far(world, relay)
    step_quietly(relay)
    world.close(relay)
    relay = lapping(world)
    assert owner_of(relay).store.rebuilt is None
    assert relay._counts.requests == 0
    world.advance_ms(YEAR_MS)
    until_delivered(world, relay, "far", "gone", "too")


def test_files_are_kept_though_all_of_the_input_was_swept(world: World) -> None:
    """The record that they are compared by stays."""
    relay = lapping(world)
    lap(world, relay)
    assert owner_of(relay).log_span.moves.swept == owner_of(relay).position
    for _ in range(3):
        world.advance_ms(1_000)
        step_quietly(relay)
    world.close(relay)
    assert owner_of(lapping(world)).store.rebuilt is None


def damaged(monkeypatch: pytest.MonkeyPatch, which: set[int]) -> None:
    """Have the snapshots of these numbers be read damaged."""
    seen: list[int] = []

    def read(value: bytes) -> object:
        seen.append(len(seen))
        if seen[-1] in which:
            raise NoSettlement("its checksum is wrong")
        return part_of(value)

    monkeypatch.setattr("waterclock.relay.wire.settlement.part_of", read)


@pytest.mark.parametrize("which", [{1}, pytest.param({0}, marks=pytest.mark.long(seconds=2))])
def test_where_one_snapshot_is_damaged_the_other_holds(
    which: set[int], world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    relay = lapping(world)
    far(world, relay)
    for _ in range(3):  # what is to be cut off is cut off
        world.advance_ms(1_000)
        step_quietly(relay)
    damaged(monkeypatch, which)
    relay = empty(world, relay)
    assert "is no settlement, and is passed over: its checksum is wrong" in caplog.text
    world.advance_ms(YEAR_MS)
    until_delivered(world, relay, "far", "gone", "too")


def test_without_any_snapshot_that_can_be_read_nobody_starts_and_nothing_is_delivered_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    relay = lapping(world)
    far(world, relay)
    delivered = world.values()
    damaged(monkeypatch, set(range(100)))
    world.crash(relay)
    with pytest.raises(UsageError, match="no snapshot of what was settled before can be read"):
        lapping(world, folder=world.folder / "empty")
    assert world.values() == delivered


def answer_of_trims(monkeypatch: pytest.MonkeyPatch, answer: Future[object]) -> None:
    """It is what Kafka says of each."""
    monkeypatch.setattr(AdminClient, "delete_records", lambda _, places: dict.fromkeys(places, answer))


def test_where_nothing_is_cut_off_a_damaged_snapshot_costs_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    relay = lapping(world)
    world.send("far", in_ms=YEAR_MS)
    answer_of_trims(monkeypatch, Future())
    saved(world, relay)
    damaged(monkeypatch, {0})
    relay = empty(world, relay)
    world.advance_ms(YEAR_MS)
    until_delivered(world, relay, "far")


def test_a_log_that_kafka_does_not_cut_off_is_said_and_grows(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    refused: Future[object] = Future()
    refused.set_exception(KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)))
    relay = lapping(world)
    answer_of_trims(monkeypatch, refused)
    world.send("far", in_ms=YEAR_MS)
    fill(world, relay)
    step_until(lambda: world.advance_ms(1_000) or "is not cut off, and grows" in caplog.text, relay)
    assert "needs the right Delete" in caplog.text
    assert owner_of(relay).log_span.low == 0
    world.advance_ms(YEAR_MS)
    until_delivered(world, relay, "far")


def test_what_was_deleted_by_hand_is_said(world: World, caplog: pytest.LogCaptureFixture) -> None:
    relay = lapping(world)
    world.send("far", in_ms=YEAR_MS)
    fill(world, relay, 10)
    world.cut(5)
    empty(world, relay)
    assert "begins at offset 5: nothing is known of what was before" in caplog.text


def test_a_topic_that_was_made_again_is_not_held_up_by_what_was_cut_off_for_the_old_one(world: World) -> None:
    relay = lapping(world)
    far(world, relay)
    world.close(relay)
    settings = base_settings(world.broker.bootstrap, {})
    admin = AdminClient(settings)
    admin.delete_topics([world.topic])[world.topic].result()
    prepare(Admin(settings), Topics.of(world.topic), 1, world.broker.bootstrap)
    world.send("of the new one", in_ms=1_000)
    relay = lapping(world)
    world.advance_ms(1_000)
    until_delivered(world, relay, "of the new one")


def test_what_is_settled_and_how_is_told_from_a_snapshot(world: World) -> None:
    """Of what stands in the log still, `already delivered`; of what was cut off, nothing is known."""
    relay = lapping(world)
    world.send("cut off", in_ms=0, id="old")
    world.send("far", in_ms=YEAR_MS)
    step_quietly(relay)
    cut_off(world, relay)
    world.send("kept", in_ms=0, id="new")
    step_quietly(relay)
    relay = empty(world, relay)
    for id in ("old", "new"):
        world.put(None, delay_id=id, delay_action="cancel")
    step_until(lambda: len(world.replies()) == 2, relay)
    assert world.replies() == [("old", "unknown", 0), ("new", "already delivered", 0)]
