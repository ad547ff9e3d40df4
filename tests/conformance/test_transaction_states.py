"""The coordinator of transactions: states, fencing, time, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.batches import values
from tests.conformance.dialogue import Dialogue, produce_fields
from tests.conformance.transactions import Transactional
from tests.conformance.waiting import until


@pytest.fixture
def old(dialogue: Dialogue, name: str) -> Transactional:
    return Transactional(dialogue, name)


@pytest.fixture
def new(dialogue: Dialogue, name: str) -> Transactional:
    return Transactional(dialogue, name, new=True)


def again(producer: Transactional) -> Transactional:
    """The same transactional id, claimed once more."""
    return Transactional(producer.dialogue, producer.name, new=producer.new)


def test_each_claim_of_a_transactional_id_raises_the_epoch(old: Transactional) -> None:
    later = again(old)
    assert (later.id, later.epoch) == (old.id, old.epoch + 1)


def test_a_claim_with_the_current_id_and_epoch_raises_the_epoch(dialogue: Dialogue, old: Transactional) -> None:
    reply = dialogue.init_producer(old.name, producer_id=old.id, producer_epoch=old.epoch)
    assert (reply.error_code.name, reply.producer_id, reply.producer_epoch) == ("none", old.id, old.epoch + 1)


def test_a_claim_with_an_older_epoch_is_fenced(dialogue: Dialogue, old: Transactional) -> None:
    again(again(old))
    reply = dialogue.init_producer(old.name, producer_id=old.id, producer_epoch=old.epoch)
    assert reply.error_code.name == "producer_fenced"


def test_a_claim_repeated_because_its_answer_was_lost_gets_the_same_epoch(
    dialogue: Dialogue, old: Transactional
) -> None:
    fields = {"producer_id": old.id, "producer_epoch": old.epoch}
    reply = [dialogue.init_producer(old.name, **fields) for _ in range(2)]
    assert [(t.error_code.name, t.producer_epoch) for t in reply] == [("none", old.epoch + 1)] * 2


def test_a_claim_with_another_ones_id_is_refused(dialogue: Dialogue, old: Transactional) -> None:
    reply = dialogue.init_producer(old.name, producer_id=old.id + 1_000_000, producer_epoch=0)
    assert reply.error_code.name == "producer_fenced"


def test_a_claim_aborts_what_its_predecessor_left_open(dialogue: Dialogue, topic: str, old: Transactional) -> None:
    old.put(topic, b"gone")
    again(old)
    until(lambda: dialogue.fetch(topic).partition.last_stable_offset == 2)
    found = dialogue.fetch(topic, isolation_level=1).partition.aborted_transactions
    assert [(a.producer_id, a.first_offset) for a in found] == [(old.id, 0)]


def test_a_zombie_whose_transaction_its_heir_aborted_may_not_claim_the_id_back(
    dialogue: Dialogue, topic: str, old: Transactional
) -> None:
    # What a client does that takes INVALID_PRODUCER_EPOCH for a hiccup (KIP-360): the coordinator must tell it apart.
    old.put(topic, b"gone")
    again(old)
    reply = dialogue.init_producer(old.name, producer_id=old.id, producer_epoch=old.epoch)
    assert reply.error_code.name == "producer_fenced"


def test_a_zombie_may_not_add_partitions(old: Transactional, topic: str) -> None:
    again(old)
    assert old.add(topic) == "producer_fenced"


def test_a_zombie_may_not_end_a_transaction(old: Transactional, topic: str) -> None:
    old.put(topic, b"a")
    again(old)
    assert old.end(True) == "producer_fenced"


def test_before_version_2_a_zombie_hears_of_its_epoch(dialogue: Dialogue, old: Transactional) -> None:
    # PRODUCER_FENCED came with KIP-588; clients of before know INVALID_PRODUCER_EPOCH only.
    again(old)
    who = {"transactional_id": old.name, "producer_id": old.id, "producer_epoch": old.epoch}
    assert dialogue.wire.ask("end_txn", 1, committed=True, **who).error_code.name == "invalid_producer_epoch"


def test_a_zombie_may_not_append(old: Transactional, topic: str) -> None:
    old.put(topic, b"a")
    later = again(old)
    later.put(topic, b"b")
    assert old.write(topic, b"late") == "invalid_producer_epoch"
    later.abort()


def test_a_zombie_of_the_new_protocol_may_not_append(new: Transactional, topic: str) -> None:
    new.put(topic, b"a")
    again(new)
    assert new.write(topic, b"late") == "invalid_producer_epoch"


def test_a_zombie_may_not_offer_offsets(old: Transactional, topic: str, name: str) -> None:
    later = again(old)
    later.offer(name, topic, 1)
    who = {"transactional_id": old.name, "producer_id": old.id, "producer_epoch": old.epoch}
    reply = old.dialogue.wire.ask("add_offsets_to_txn", 3, group_id=name, **who)
    assert reply.error_code.name == "producer_fenced"
    later.abort()


def test_the_old_protocol_refuses_an_append_to_a_partition_that_was_not_added(old: Transactional, topic: str) -> None:
    # The hanging transaction of KIP-890: without this check it would hold up readers for ever.
    assert old.write(topic, b"a") == "transaction_abortable"


def test_before_version_11_of_produce_such_an_append_is_in_a_wrong_state(old: Transactional, topic: str) -> None:
    # TRANSACTION_ABORTABLE came with version 11.
    fields = {**produce_fields(topic, old.batch(topic, b"a")), "transactional_id": old.name}
    reply = old.dialogue.wire.ask("produce", 10, **fields).responses[0].partition_responses[0]
    assert reply.error_code.name == "invalid_txn_state"


def test_the_new_protocol_adds_a_partition_by_writing_to_it(new: Transactional, topic: str) -> None:
    assert new.write(topic, b"a") == "none"
    assert [(t.topic, t.partitions) for t in new.described().topics] == [(topic, (0,))]
    new.abort()


def test_the_new_protocol_raises_the_epoch_with_each_transaction(new: Transactional, topic: str) -> None:
    first = new.epoch
    for _ in range(3):
        new.put(topic, b"a")
        new.commit()
    assert new.epoch == first + 3


def test_the_old_protocol_keeps_its_epoch(old: Transactional, topic: str) -> None:
    first = old.epoch
    for _ in range(3):
        old.put(topic, b"a")
        old.commit()
    assert old.epoch == first


def test_a_late_write_of_an_ended_transaction_is_fenced_by_the_new_protocol(new: Transactional, topic: str) -> None:
    new.put(topic, b"a")
    epoch = new.epoch
    new.commit()
    until(lambda: new.described().transaction_state == "CompleteCommit")
    new.epoch = epoch
    new._sequences[topic, 0] = 1
    assert new.write(topic, b"late") == "invalid_producer_epoch"


def test_ending_nothing_is_refused_by_the_old_protocol(old: Transactional) -> None:
    assert [old.end(end) for end in (True, False)] == ["invalid_txn_state"] * 2


def test_committing_nothing_is_refused_by_the_new_protocol(new: Transactional) -> None:
    assert new.end(True) == "invalid_txn_state"


def test_aborting_nothing_is_allowed_by_the_new_protocol_and_raises_the_epoch(new: Transactional) -> None:
    # A client that does not know whether its write reached the broker may always abort.
    first = new.epoch
    assert new.end(False) == "none"
    assert new.epoch == first + 1


def test_a_commit_may_be_repeated(old: Transactional, topic: str) -> None:
    old.put(topic, b"a")
    assert [old.end(True), old.end(True)] == ["none", "none"]


def test_an_abort_behind_a_commit_is_refused(old: Transactional, topic: str) -> None:
    old.put(topic, b"a")
    old.commit()
    assert old.end(False) == "invalid_txn_state"


def test_a_commit_repeated_with_the_epoch_of_before_is_answered_again(new: Transactional, topic: str) -> None:
    new.put(topic, b"a")
    epoch = new.epoch
    new.commit()
    new.epoch = epoch
    assert new.end(True) == "none"
    assert new.epoch == epoch + 1


def test_an_id_nobody_claimed_may_not_end_a_transaction(dialogue: Dialogue, name: str) -> None:
    who = {"transactional_id": name, "producer_id": 1, "producer_epoch": 0}
    answer = until(lambda: dialogue.wire.ask("end_txn", 4, committed=True, **who).error_code.name)
    assert answer == "invalid_producer_id_mapping"


def test_another_producers_id_may_not_add_partitions(old: Transactional, topic: str) -> None:
    old.id += 1
    assert old.add(topic) == "invalid_producer_id_mapping"


def test_an_unknown_partition_is_not_added_and_keeps_the_others_out(old: Transactional, topic: str) -> None:
    reply = {f"v3_and_below_{k}": v for k, v in {"transactional_id": old.name, "producer_id": old.id}.items()}
    topics = [{"name": topic, "partitions": [0, 9]}]
    answer = old.dialogue.wire.ask(
        "add_partitions_to_txn", 3, v3_and_below_producer_epoch=old.epoch, v3_and_below_topics=topics, **reply
    )
    found = {
        p.partition_index: p.partition_error_code.name
        for t in answer.results_by_topic_v3_and_below
        for p in t.results_by_partition
    }
    assert found == {9: "unknown_topic_or_partition", 0: "operation_not_attempted"}


def test_a_transaction_above_its_time_is_aborted(dialogue: Dialogue, topic: str, name: str) -> None:
    slow = Transactional(dialogue, name, timeout_ms=300)
    slow.put(topic, b"gone")
    until(lambda: dialogue.fetch(topic).partition.last_stable_offset == 2)
    found = dialogue.fetch(topic, isolation_level=1)
    assert [a.first_offset for a in found.partition.aborted_transactions] == [0]
    assert slow.end(True) in {"producer_fenced", "invalid_producer_epoch"}


def test_the_states_of_a_transaction_are_told(old: Transactional, topic: str) -> None:
    assert listed(old.dialogue)[old.name] == "Empty"
    old.put(topic, b"a")
    assert old.described().transaction_state == "Ongoing"
    old.commit()
    until(lambda: old.described().transaction_state == "CompleteCommit")
    old.put(topic, b"a")
    old.abort()
    until(lambda: old.described().transaction_state == "CompleteAbort")


def test_a_transaction_is_described_whole(old: Transactional, topic: str) -> None:
    old.put(topic, b"a")
    reply = old.described()
    assert (reply.error_code.name, reply.producer_id, reply.producer_epoch) == ("none", old.id, old.epoch)
    assert reply.transaction_timeout.total_seconds() == 60
    assert reply.transaction_start_time is not None
    old.abort()


def test_an_unknown_transactional_id_is_not_found(dialogue: Dialogue, name: str) -> None:
    reply = dialogue.wire.ask("describe_transactions", 0, transactional_ids=[name]).transaction_states[0]
    assert reply.error_code.name == "transactional_id_not_found"


def listed(dialogue: Dialogue, **filters: Any) -> dict[str, str]:
    reply = dialogue.wire.ask("list_transactions", 2, **{"duration_filter": -1, **filters})
    return {t.transactional_id: t.transaction_state for t in reply.transaction_states}


def test_transactions_are_listed_with_their_states(old: Transactional, topic: str) -> None:
    old.put(topic, b"a")
    assert listed(old.dialogue)[old.name] == "Ongoing"
    old.abort()


def test_the_list_is_filtered_by_state_producer_duration_and_pattern(old: Transactional, topic: str) -> None:
    def is_listed(**filters: Any) -> bool:
        return old.name in listed(old.dialogue, **filters)

    old.put(topic, b"a")
    assert is_listed(state_filters=["Ongoing"])
    assert not is_listed(state_filters=["Empty"])
    assert is_listed(producer_id_filters=[old.id])
    assert not is_listed(producer_id_filters=[old.id + 1_000_000])
    assert not is_listed(duration_filter=3_600_000)
    assert is_listed(transactional_id_pattern=old.name[:5] + ".*")
    assert not is_listed(transactional_id_pattern="zzz.*")
    old.abort()


def test_a_replaced_producer_of_the_new_protocol_is_given_the_epoch_of_its_successor_of_the_old_one(
    dialogue: Dialogue, topic: str, new: Transactional
) -> None:
    later = Transactional(dialogue, new.name)
    later.put(topic, b"a")
    later.commit()
    assert new.end(True) == "none"
    assert (new.id, new.epoch) == (later.id, later.epoch)


def test_a_claim_with_an_older_epoch_aborts_what_the_successor_has_open(
    dialogue: Dialogue, topic: str, old: Transactional
) -> None:
    later = again(old)
    later.put(topic, b"a")
    dialogue.init_producer(old.name, producer_id=old.id, producer_epoch=old.epoch)
    assert later.described().transaction_state == "CompleteAbort"


def test_a_state_nobody_knows_is_told_back(dialogue: Dialogue) -> None:
    reply = dialogue.wire.ask("list_transactions", 2, state_filters=["Dreaming"], duration_filter=-1)
    assert (reply.error_code.name, reply.unknown_state_filters) == ("none", ("Dreaming",))


@pytest.mark.parametrize("new", [False, True], ids=["old", "new"])
def test_records_of_a_commit_are_readable_for_those_who_read_all(
    dialogue: Dialogue, topic: str, name: str, new: bool
) -> None:
    producer = Transactional(dialogue, name, new=new)
    producer.put(topic, b"a")
    assert values(dialogue.read(topic)) == [b"a"]
    producer.commit()
