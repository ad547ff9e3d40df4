"""A new owner: what it believes of its files, what it reads again, whom it shuts out."""

from __future__ import annotations

import errno
import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from tests.relay.world import World, step_quietly, step_until
from waterclock.errors import UsageError
from waterclock.kafka.transactions import TransactionalProducer
from waterclock.relay.owner.context import NOTE
from waterclock.relay.owner.take_over import TakeOver
from waterclock.relay.relay import Relay
from waterclock.relay.store import PartitionStore, StoreDamaged
from waterclock.relay.store.origins import State
from waterclock.relay.wire.settlement import settlements
from waterclock.testing import Broker


def filled(world: World) -> Relay:
    """One that has delivered something, keeps something, and has written that down."""
    relay = world.started()
    world.send("first", in_ms=0)
    world.send("second", in_ms=1_000)
    step_until(lambda: world.values() == ["first"], relay)
    return relay


def goes_on(world: World, **options: object) -> Relay:
    relay = world.started(**options)
    world.advance_ms(1_000)
    step_until(lambda: len(world.values()) > 1, relay)
    step_quietly(relay)
    assert world.values() == ["first", "second"]
    return relay


def folder_of(relay: Relay) -> Path:
    return relay.owners[0].store.folder


def test_a_relay_that_ends_and_starts_again_reads_nothing_twice(world: World) -> None:
    world.close(filled(world))
    relay = world.started()
    assert relay.owners[0].store.rebuilt is None
    assert relay._counts.requests == 0
    world.close(relay)
    goes_on(world)


@pytest.mark.parametrize(
    "damage", ["flip", *(pytest.param(one, marks=pytest.mark.long(seconds=1)) for one in ("cut", "gone", "other"))]
)
def test_files_that_are_not_what_was_written_are_never_believed(damage: str, world: World) -> None:
    relay = filled(world)
    folder = folder_of(relay)
    world.close(relay)
    for file in [file for file in folder.iterdir() if file.name != "lock"]:
        data = bytearray(file.read_bytes())
        if damage == "flip":
            data[len(data) // 2] ^= 1
        elif damage == "other":
            data = bytearray(len(data))
        file.write_bytes(data[: len(data) // 2] if damage == "cut" else data)
        if damage == "gone" and file.name != "manifest":
            file.unlink()
    relay = goes_on(world)
    assert relay.owners[0].store.rebuilt is not None


def test_an_older_copy_of_the_files_is_as_good(world: World) -> None:
    relay = world.started()
    world.send("first", in_ms=0)
    step_quietly(relay)
    folder = folder_of(relay)
    relay.owners[0].checkpoint()
    shutil.copytree(folder, world.folder / "older")
    world.send("second", in_ms=1_000)
    step_quietly(relay)
    world.close(relay)
    shutil.rmtree(folder)
    shutil.move(world.folder / "older", folder)
    assert goes_on(world).owners[0].store.rebuilt is None


def test_a_topic_that_was_made_again_has_nothing_to_do_with_the_old_files_and_settlements(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.close(filled(world))
    world.remove(world.topic)
    world.prepare()
    world.send("of the new one", in_ms=1_000)
    relay = world.started()
    world.advance_ms(1_000)
    step_until(lambda: len(world.values()) > 1, relay)
    assert world.values() == ["first", "of the new one"]
    assert "is of an earlier topic" in caplog.text


def test_settlements_that_are_lost_are_no_reason_to_deliver_everything_again(world: World) -> None:
    world.close(filled(world))
    settled = f"{world.topic}.settled"
    world.remove(settled)
    with pytest.raises(UsageError, match="does not hold what was settled"):
        world.started()


@pytest.mark.long(seconds=1)
def test_files_of_another_log_of_the_same_topic_are_set_aside(world: World, caplog: pytest.LogCaptureFixture) -> None:
    relay = filled(world)
    owner = relay.owners[0]
    owner.store.checkpoint(2, bytes(24), owner.settled_position)
    world.crash(relay)
    goes_on(world)
    assert "is not the one that was filed" in caplog.text


class End:
    """A word that partition 0 was read up to offset 2, by whoever read it before."""

    def __len__(self) -> int:
        return 0

    def error(self) -> KafkaError:
        return KafkaError(KafkaError._PARTITION_EOF)

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return 2


def test_that_the_end_was_reached_leaves_no_record_out_whoever_says_so(world: World) -> None:
    """librdkafka may say it of a reading that is over."""
    world.send("a", "b", in_ms=0)
    relay = world.relay()
    real = relay._read

    said: list[bool] = []

    def read(wait_s: float) -> list[Message]:
        if relay.owners and not said:
            said.append(True)
            return [End()]  # type: ignore[list-item]
        return real(wait_s)

    relay._read = read  # type: ignore[method-assign]
    step_until(lambda: world.values() == ["a", "b"], relay)


def test_that_the_end_was_reached_leaves_out_no_record_behind_those_that_wait_for_the_disk(world: World) -> None:
    world.send("a", "b", in_ms=0)
    relay = world.relay()
    step_until(lambda: relay.owners, relay)
    owner, came = relay.owners[0], list[Message]()
    while not (came := [one for one in relay._read(0.1) if not one.error()]):
        pass
    owner.held = [came[:1]]
    owner.reached(2)
    assert owner._reached == 0
    owner.held = []


def test_a_turn_before_the_input_was_read_answers_nothing_anew(world: World) -> None:
    """One that is taken for dead makes a turn to find out. It noted how far it had read as how far all is answered."""
    relay = world.started()
    world.send("a", in_ms=1_000, id="an id")
    world.put(None, delay_action="cancel", delay_id="an id")
    step_until(lambda: world.replies() == [("an id", "cancelled", 1)], relay)
    folder = folder_of(relay)
    world.close(relay)
    shutil.rmtree(folder)
    relay = world.relay()
    step_until(lambda: relay.owners, relay)
    owner = relay.owners[0]
    assert (owner.position, owner.command_position, owner.has_caught_up) == (0, 2, False)
    relay._turns.run([owner])
    step_quietly(relay)
    assert world.replies() == [("an id", "cancelled", 1)]


@pytest.mark.long(seconds=2)
def test_records_that_do_not_come_are_asked_for_anew(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.send("a", in_ms=0)
    relay = world.relay()
    relay._end_of = lambda number: 1  # type: ignore[method-assign]
    real, lost = relay._member.read_from, [True]
    relay._member.read_from = lambda number, offset: lost.clear() if lost else real(number, offset)  # type: ignore[method-assign]
    relay._read = lambda wait_s, read=relay._read: [one for one in read(wait_s) if not one.error()]  # type: ignore[misc]
    step_until(lambda: world.advance_ms(100) or world.values(), relay)
    assert "stands still at offset 0: asking anew" in caplog.text


def test_whoever_was_paused_writes_nothing_after_another_took_over(world: World) -> None:
    """A zombie: its files are its own, its place in the group is gone, its producer is fenced."""
    zombie = world.started("zombie")
    world.send("a", in_ms=1_000)
    step_quietly(zombie)
    relay = world.relay(name="zombie", folder=world.folder / "heir")  # the place in the group is the same
    step_until(lambda: relay.owners, relay)
    world.advance_ms(1_000)
    step_until(world.values, relay)
    with pytest.raises(UsageError, match="give each its own"):
        step_until(lambda: False, zombie, relay)
    step_quietly(relay)
    assert world.values() == ["a"]


def begun(world: World, relay: Relay) -> TransactionalProducer:
    """What another relay has begun for the partition: a transaction that answers three requests, and is not committed."""
    other = relay._context.make_producer(0)
    other.fence(world.topic)
    other.begin()
    (record,) = settlements(State.DELIVERED, np.array([], "<i8"), 3, relay._context.input_hash)
    other.send(f"{world.topic}.settled", record, partition=0)
    group = Consumer({"bootstrap.servers": world.broker.bootstrap, "group.id": world.topic}).consumer_group_metadata()
    other.send_offsets({(world.topic, 0): 3}, group, NOTE)
    return other


def test_what_another_relay_commits_while_one_takes_over_does_not_pass_for_settlements_that_are_gone(
    world: World,
) -> None:
    """The other one fences it as soon as it knows where TOPIC.settled ends."""
    world.close(filled(world))
    world.send("third", in_ms=1_000)
    relay = world.relay()
    real, others = relay._logs.bounds, list[TransactionalProducer]()

    def bounds(topic: str, number: int) -> tuple[int, int]:
        found = real(topic, number)
        if not others:
            assert topic.endswith(".settled")
            others.append(begun(world, relay))
            others[0].commit()
        return found

    relay._logs.bounds = bounds  # type: ignore[method-assign]
    owner = TakeOver(relay._context, 0).run()
    assert others
    owner.close()
    others[0].close()
    world.advance_ms(1_000)
    step_until(lambda: len(world.values()) > 2, relay)
    assert world.values() == ["first", "second", "third"]


@pytest.mark.long(seconds=1)
def test_a_transaction_that_has_not_ended_keeps_no_relay_from_taking_over(world: World) -> None:
    """A consumer waits for the group's offset to be stable; a broker that was killed may leave it open for minutes."""
    relay = filled(world)
    world.close(relay)
    other = begun(world, relay)
    goes_on(world)
    assert not world.lost
    other.close()


def test_a_transaction_that_kafka_did_not_end_is_logged(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.close(filled(world))
    stranger = Producer({"bootstrap.servers": world.broker.bootstrap, "transactional.id": f"{world.topic}-open"})
    stranger.init_transactions()
    stranger.begin_transaction()
    stranger.produce(f"{world.topic}.settled", b"open", partition=0)
    stranger.flush()
    relay = world.started()
    assert "from offset 2 on is neither committed nor thrown away" in caplog.text
    stranger.abort_transaction()
    world.close(relay)
    caplog.clear()
    goes_on(world)
    assert "neither committed nor" not in caplog.text


def test_an_owner_is_read_from_where_it_says_whatever_was_read_before(world: World) -> None:
    """With OFFSET_END, librdkafka asks where that is, and goes there after it was told another offset: records are lost."""
    world.send("a", "b", "c", in_ms=86_400_000)
    relay = world.started()
    for _ in range(12):
        where = [TopicPartition(world.topic, 0)]
        relay._member.consumer.incremental_unassign(where)
        relay._member.on_given(relay._member.consumer, where)
        relay._member.consumer.poll(0)
        relay._member.read_from(0, 0)
        first = relay._member.consumer.poll(10)
        assert first is not None
        assert (first.error(), first.offset()) == (None, 0)


def test_damage_that_is_found_when_what_is_near_is_loaded_is_not_believed_for_ever(world: World) -> None:
    """Found by the model: the take-over failed, and was tried again with the same files, for ever."""
    relay = filled(world)
    (file,) = folder_of(relay).glob("*.index")
    world.close(relay)
    data = file.read_bytes()
    file.write_bytes(data[:-1] + bytes([data[-1] ^ 255]))
    goes_on(world)
    assert "its checksum is wrong" in str(world.lost)


def test_a_partition_whose_records_wait_behind_those_of_others_is_not_asked_for_anew(
    relay_broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The client hands out a partition's records behind another's. To read anew what it has already would cost a second."""
    monkeypatch.setattr("waterclock.relay.relay.READ", 1)
    with World(relay_broker, tmp_path, f"behind-{tmp_path.name}", 2) as world:
        for number in range(6):
            world.send(f"{number}", in_ms=1_000, partition=0)
        world.send("behind", in_ms=2_000, partition=1)
        relay = world.relay()
        step_until(lambda: len(relay.owners) == 2, relay)
        real, first, behind = relay._read, list[Message](), list[Message]()

        def gather(wait_s: float) -> list[Message]:
            for message in real(wait_s):
                if message.error() is None:
                    (behind if message.partition() else first).append(message)
            return []

        relay._read = gather  # type: ignore[method-assign]
        step_until(lambda: len(first) == 6 and behind, relay)
        relay._read = lambda wait_s: [first.pop(0) for _ in "12"] if first else behind  # type: ignore[method-assign]
        for _ in range(4):
            world.advance_ms(2_500)
            relay.step(0)
        assert "stands still" not in caplog.text
        relay._read = real  # type: ignore[method-assign]
        step_until(lambda: len(world.values()) == 7, relay)


def test_files_that_can_neither_be_believed_nor_set_aside_are_there_for_the_next_attempt(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They stayed locked: the next attempt took that for another process, and ended the relay."""
    relay = world.started()
    context = replace(relay._context, folder=world.folder / "other")

    def damaged(take_over: TakeOver) -> None:
        raise StoreDamaged("a test wants it")

    def refuse(*arguments: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(TakeOver, "verify", damaged)
        patch.setattr(PartitionStore, "set_aside", refuse)
        with pytest.raises(OSError, match="Input/output error"):
            TakeOver(context, 0).run()
    context.open_store(0).close()
