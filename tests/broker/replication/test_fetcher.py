"""What a follower copies when the leader's logs are not as they were: shorter, made again, grown, compacted."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("kio")

from tests.broker.raw_client import RawClient
from tests.broker.replication.pairs import (
    Pair,
    client,
    end,
    following,
    has,
    high,
    log_bytes,
    pair,
    partition,
    topic_id,
    until,
    values,
)
from waterclock.broker import Broker
from waterclock.broker.knobs import Knobs, turned
from waterclock.broker.log.memo import Memo
from waterclock.broker.log.partition import Partition
from waterclock.broker.log.records import packed
from waterclock.broker.log.recovery import open_partition
from waterclock.broker.log.removal import begin_anew, begin_at, cut
from waterclock.broker.replication import journal
from waterclock.broker.replication.fetcher import _append
from waterclock.broker.replication.link import LinkLost
from waterclock.broker.settings import Settings, TopicSettings
from waterclock.broker.store import Entry
from waterclock.broker.wire import client as asking
from waterclock.broker.wire.errors import Error


@pytest.fixture
def both(tmp_path: Path) -> Iterator[Pair]:
    with pair(tmp_path, {"group.initial.rebalance.delay.ms": "0"}) as brokers:
        yield brokers


def delete_records(raw: RawClient, before: int) -> None:
    topics = [{"name": "t", "partitions": [{"partition_index": 0, "offset": before}]}]
    answer = raw.ask("DeleteRecords", 1, topics=topics, timeout=timedelta(seconds=10))
    assert answer.topics[0].partitions[0].error_code.value == Error.NONE


def test_the_follower_moves_its_start_along(both: Pair) -> None:
    with client(both.one) as raw:
        for number in range(4):
            raw.produce("t", b"%d" % number)
        delete_records(raw, 3)
        raw.produce("t", b"4")
    until(lambda: both.two.call(lambda: partition(both.two).start) == 3)
    both.two.promote()
    assert both.two.call(lambda: partition(both.two).start) == 3


def test_a_follower_behind_the_leaders_start_begins_anew_from_there(both: Pair) -> None:
    with client(both.one) as raw:
        raw.produce("t", b"0")
        both.two.close()
        both.one.call(lambda: setattr(both.one.inside.replicas, "heard_ns", 0))
        for number in range(1, 5):
            raw.produce("t", b"%d" % number, acks=1)
        until(lambda: both.one.call(lambda: partition(both.one).durable) == 5)
        both.one.call(lambda: partition(both.one).roll())
        both.one.call(lambda: setattr(partition(both.one), "high", 5))
        both.one.call(lambda: both.one.inside.upkeep.begin_at(partition(both.one), 5, lambda done: None))
        until(lambda: both.one.call(lambda: partition(both.one).memo.saved) == 5)
        both.one.call(lambda: both.one.inside.upkeep.retain())
        raw.produce("t", b"5", acks=1)
    both.again("two").start()
    both.synced()
    assert both.two.call(lambda: partition(both.two).start) == 5
    assert values(both.two) == [b"5"]
    assert log_bytes(both.two) == log_bytes(both.one)


def test_a_topic_made_again_under_its_name_is_another(both: Pair) -> None:
    with client(both.one) as raw:
        for number in range(10):
            raw.produce("t", b"old %d" % number)
        old = topic_id(both.one, "t")
        both.freeze()
        both.one.call(lambda: both.one.inside.topics.delete(both.one.inside.topics.by_name["t"]))
        both.one.call(lambda: both.one.inside.topics.create("t", 1, {}))
        until(lambda: both.one.call(lambda: len(both.one.inside.store.load("topic"))) == 1)
        both.thaw()
        until(lambda: {topic_id(both.one, "t"), topic_id(both.two, "t")}.isdisjoint({old, None}))
        assert end(both.one) == end(both.two) == 0
        assert raw.produce("t", b"new") == (Error.NONE, 0)
    assert values(both.two) == [b"new"]


def test_an_old_follower_does_not_count_for_a_topic_made_again(both: Pair) -> None:
    with client(both.one) as raw:
        for number in range(10):
            raw.produce("t", b"old %d" % number)
        old = both.two.call(lambda: partition(both.two))
        both.one.call(lambda: both.one.inside.topics.delete(both.one.inside.topics.by_name["t"]))
        until(lambda: not has(both.two, "t") and not has(both.one, "t"))
        assert old.deleted
        both.one.create_topic("t")
        both.freeze()
        raw.send_produce("t", b"new")
        until(lambda: both.one.call(lambda: partition(both.one).durable) == 1)
        assert high(both.one) == 0
        both.thaw()
        assert raw.produced() == (Error.NONE, 0)


def test_new_partitions_are_copied_too(both: Pair) -> None:
    with client(both.one) as raw:
        raw.ask(
            "CreatePartitions", 1, topics=[{"name": "t", "count": 3, "assignments": None}],
            timeout=timedelta(seconds=10), validate_only=False,
        )  # fmt: skip
        assert raw.produce("t", b"x", partition=2) == (Error.NONE, 0)
    assert values(both.two, "t", 2) == [b"x"]


def test_more_than_one_fetch_holds_is_copied_for_every_partition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("waterclock.broker.replication.fetcher.MOST", 1000)
    with pair(tmp_path) as both:
        both.one.create_topic("wide", partitions=4)
        with client(both.one) as raw:
            for number in range(12):
                raw.send_produce("wide", b"x" * 1500, partition=number % 4)
            assert {raw.produced()[0] for _ in range(12)} == {Error.NONE}
        for number in range(4):
            assert log_bytes(both.two, "wide", number) == log_bytes(both.one, "wide", number)


def test_every_partition_is_the_first_in_its_turn(both: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """What lies first comes whole, however large: a busy partition in front must not starve the others for ever."""
    real, first = asking.fetch, set[bytes]()

    def seen(replica: int, wait_ms: int, most: int, rows: Iterable[asking.PartitionFetch]) -> bytes:
        rows = list(rows)
        first.update(row.topic for row in rows[:1])
        return real(replica, wait_ms, most, rows)

    monkeypatch.setattr(asking, "fetch", seen)
    with client(both.one) as raw:
        for _ in range(5):
            raw.produce("t", b"x")
    assert len(first) == 2  # the topic and the journal


def test_a_large_store_is_copied_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "MANY", 7)
    with pair(tmp_path) as both:
        both.one.call(lambda: both.one.inside.store.commit(Entry("probe", f"{n}", n) for n in range(100)))
        both.one.create_topic("last")
        both.one.close()
        both.again("one").start()
        both.synced()
        until(lambda: len(both.two.call(lambda: both.two.inside_follower.store.load("probe"))) == 100)
        both.two.promote()
        assert both.two.call(lambda: both.two.inside.store.load("probe")) == {f"{n}": n for n in range(100)}


def test_the_journal_begins_anew_when_it_has_grown(tmp_path: Path) -> None:
    with turned(Knobs(journal_renew=2000)), pair(tmp_path) as both:
        for number in range(100):
            both.one.call(partial(both.one.inside.store.put, "probe", "k", number))
        both.one.create_topic("last")
        led = both.one.inside.leading.journal
        assert led is not None
        kept = led.partition
        assert kept.start > 10
        assert kept.segments[0].base == kept.start
        assert both.two.call(lambda: both.two.inside_follower.store.load("probe")) == {"k": 99}
        assert both.two.call(lambda: following(both.two).replica.journal.start) > 10


def test_what_the_leaders_disk_refused_is_not_kept_by_the_follower(both: Pair) -> None:
    store = both.one.inside.store
    real = store.commit_group

    def refuse(group: Any) -> bool:
        store.commit_group = real  # type: ignore[method-assign]
        return False

    store.commit_group = refuse  # type: ignore[method-assign]
    said: list[bool] = []
    both.one.call(lambda: both.one.inside.store.put("probe", "refused", 1, said.append))
    until(lambda: said == [False])
    both.one.create_topic("later")
    until(lambda: has(both.two, "later"))
    assert both.two.call(lambda: both.two.inside_follower.store.load("probe")) == {}


def test_what_the_journal_says_is_done_after_a_crash_before_it_was(both: Pair, tmp_path: Path) -> None:
    both.one.call(lambda: both.one.inside.store.put("probe", "k", "first"))
    both.one.create_topic("new")
    applied = both.two.call(lambda: both.two.inside_follower.store.load("self")["applied"])
    both.two.close()
    both.one.close()
    own = TopicSettings(Settings({}), {})
    log = open_partition(journal.TOPIC, 0, str(tmp_path / "two" / "journal"), own)
    record = {"reset": False, "more": False, "changes": [["probe", "k", "second"]]}
    assert log.mark(packed([json.dumps(record).encode()], 0)) == (Error.NONE, applied)
    half = {"reset": True, "more": True, "changes": []}
    assert log.mark(packed([json.dumps(half).encode()], 0)) == (Error.NONE, applied + 1)
    del log
    both.again("two").start()
    both.two.promote()
    assert both.two.call(lambda: both.two.inside.store.load("probe")) == {"k": "second"}
    assert has(both.two, "new")


def test_a_half_reset_changes_nothing_until_it_is_whole() -> None:
    half = {"reset": True, "more": True, "changes": [["probe", "k", 1]]}
    said = journal.read(bytes(packed([json.dumps(half).encode()], 0)))
    assert said == [journal.JournalRecord(True, True, [Entry("probe", "k", 1)])]


def test_a_follower_of_another_cluster_keeps_its_data_and_ends(
    both: Pair, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Broker(tmp_path / "other") as other, client(other) as raw:
        other.create_topic("mine")
        raw.produce("mine", b"x")
    failed: list[str] = []
    with caplog.at_level(logging.CRITICAL):
        other = Broker(tmp_path / "other", follow=both.one.bootstrap)
        other.when_failed(lambda: failed.append(str(other.failure)))
        other.start()
        until(lambda: failed)
        other.close()
    assert "of another cluster" in failed[0]
    with pytest.raises(RuntimeError, match="of another cluster"):
        other.call(lambda: None)
    with Broker(tmp_path / "other", follow="127.0.0.1:1") as other:
        assert values(other, "mine") == [b"x"]


def test_a_follower_that_knows_a_later_epoch_follows_no_older_leader(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with pair(tmp_path) as both:
        with client(both.one) as raw:
            raw.produce("t", b"x")
        both.two.close()
        memo = Memo.load(str(next((tmp_path / "two" / "topics").iterdir())))
        memo.epochs.append((7, 1))
        memo.save()
        failed: list[str] = []
        two = both.again("two")
        two.when_failed(lambda: failed.append(str(two.failure)))
        two.start()
        until(lambda: failed)
        assert "has never heard of epoch 7" in failed[0]


# Cutting


def opened(folder: Path) -> Partition:
    return open_partition("t", 0, str(folder), TopicSettings(Settings({}), {}))


def filled(folder: Path, count: int) -> Partition:
    log = opened(folder)
    for number in range(count):
        if number % 3 == 2:
            log.roll()
        assert log.mark(packed([b"%d" % number], 0)) == (Error.NONE, number)
    log.flushed(log.end, [(s, s.size) for s in log.segments])
    return log


def test_a_damaged_batch_of_the_leader_is_not_appended(tmp_path: Path) -> None:
    log, data = opened(tmp_path), bytearray(packed([b"whole"], 0))
    data[-1] ^= 1
    with pytest.raises(LinkLost, match="is damaged at offset 0"):
        _append(log, memoryview(data))
    assert log.end == 0


def test_a_cut_takes_the_tail_and_the_epochs_that_began_there(tmp_path: Path) -> None:
    log = filled(tmp_path, 8)
    log.memo.epochs = [(0, 0), (1, 4), (2, 6), (4, 8)]
    shorter = cut(log, 6)
    assert (shorter.end, shorter.durable, shorter.memo.epochs) == (6, 6, [(0, 0), (1, 4)])
    assert opened(tmp_path).end == 6
    assert cut(shorter, 0).end == 0


def test_to_begin_anew_leaves_nothing_but_the_start(tmp_path: Path) -> None:
    log = filled(tmp_path, 8)
    log.take_snapshot()
    log.memo.epochs = [(0, 0), (3, 4)]
    anew = begin_anew(log, 100)
    assert (anew.start, anew.end, anew.memo.epochs, len(anew.segments)) == (100, 100, [(3, 100)], 1)
    assert anew.mark(packed([b"x"], 0)) == (Error.NONE, 100)
    assert opened(tmp_path).end == 101


def test_to_begin_later_hides_what_lies_before_and_removes_whole_segments(tmp_path: Path) -> None:
    log = filled(tmp_path, 8)
    begin_at(log, 4)
    assert (log.start, [segment.base for segment in log.segments]) == (4, [2, 5])
    assert (opened(tmp_path).start, opened(tmp_path).end) == (4, 8)


@pytest.mark.parametrize("kept", [0, 2])
def test_where_the_leader_has_lost_its_last_records_the_follower_goes_on_behind_them(both: Pair, kept: int) -> None:
    """As a start does that finds fewer records than something names: no offset is given twice (log/recovery.py)."""
    with client(both.one) as raw:
        for number in range(kept):
            assert raw.produce("t", b"%d" % number) == (Error.NONE, number)
        both.two.close()
        both.one.call(lambda: partition(both.one).resume(7))
        both.again("two", follow=both.one.bootstrap).start()
        both.synced()
        assert raw.produce("t", b"new") == (Error.NONE, 7)
    assert end(both.two) == high(both.one) == 8
    assert values(both.two) == [*(b"%d" % number for number in range(kept)), b"new"]
    both.two.close()
    both.again("two", follow=both.one.bootstrap).start()
    both.synced()
    assert both.two.call(lambda: partition(both.two).start) == 0  # readers may stand among what is lost
