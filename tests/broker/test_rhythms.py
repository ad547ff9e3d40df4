"""What looks for work from time to time: it sleeps while there is none, and is woken by whoever makes some."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

pytest.importorskip("kio")

import waterclock.broker
from tests.broker.admin import BROKER, SET, TOPIC, change
from tests.broker.record_batches import Rec, batch
from tests.broker.transactions.client import Client
from tests.conformance.waiting import until
from tests.conformance.wire import Wire
from waterclock import ManualClock, Timer
from waterclock.broker import Broker
from waterclock.broker.log.memo import Memo
from waterclock.broker.rhythm import Rhythm

HOUR_S, DAY_S = 3600.0, 86_400.0
WEEK_S = 7 * DAY_S
SETTINGS = {"log.message.timestamp.after.max.ms": str(2**62), "log.segment.bytes": "1000"}


# Rhythm


def looks(*answers: float | Exception | None) -> tuple[Timer, list[float], Rhythm]:
    """A rhythm of 10 s with a look that answers so, and the moments at which it looked."""
    timer, seen, left = Timer(clock=ManualClock(), on_error=lambda *_: None), list[float](), list(answers)

    def look() -> float | None:
        seen.append(timer.time())
        answer = left.pop(0) if left else None
        if isinstance(answer, Exception):
            raise answer
        return answer

    return timer, seen, Rhythm(timer, 10, look)


@pytest.mark.parametrize(
    ("answers", "moments"),
    [
        ((), [10]),
        ((0, 5, 10), [10, 20, 30, 40]),
        ((25, None), [10, 35]),
        ((ValueError("a look fails"), 30), [10, 20, 50]),
    ],
)
def test_the_next_look_comes_when_the_last_one_said(
    answers: tuple[float | Exception | None, ...], moments: list[float]
) -> None:
    timer, seen, rhythm = looks(*answers)
    timer.advance(100)
    assert seen == []  # nobody has woken it
    timer, seen, rhythm = looks(*answers)
    rhythm.wake()
    timer.advance(1000)
    assert seen == moments


def test_who_is_woken_looks_an_interval_later_whatever_it_waited_for() -> None:
    timer, seen, rhythm = looks(500, 500, None)
    for moment in (0, 3, 25, 26, 100):
        timer.advance(moment - timer.time())
        rhythm.wake()
    timer.advance(1000)
    assert seen == [10, 35, 110]


def test_who_is_woken_by_its_own_look_looks_again() -> None:
    timer, seen, rhythm = looks()
    rhythm._look = lambda: (seen.append(timer.time()), rhythm.wake() if len(seen) < 3 else None)[0]
    rhythm.wake()
    timer.advance(1000)
    assert seen == [10, 20, 30]


def test_nobody_in_the_broker_looks_whether_there_is_work_or_not() -> None:
    """A look of its own each second cost 0.9 s of processor for each day that was turned by hand."""
    home = Path(waterclock.broker.__file__).parent
    assert [file for file in home.rglob("*.py") if re.search(r"timer\.every\(", file.read_text())] == []


# An idle broker


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(tmp_path, clock=ManualClock(), settings=SETTINGS) as broker:
        broker.create_topic("t")
        yield broker


def calls_in(broker: Broker, duration_s: float) -> int:
    """How often something is called while time is turned by so much."""

    def fired() -> int:
        return broker.call(lambda: broker.inside.timer.statistics().fired)

    before = fired()
    broker.advance_s(duration_s)
    return fired() - before


def fill(broker: Broker, topic: str = "t", count: int = 5, key: bytes | None = None) -> None:
    now_ms = broker.call(broker.inside.clock.wall_ms)
    with Wire(broker.bootstrap) as wire:
        for _ in range(count):
            records = batch([Rec(key, b"v" * 400, now_ms)])
            rows = [{"name": topic, "partition_data": [{"index": 0, "records": records}]}]
            answer = wire.ask("produce", 9, transactional_id=None, acks=-1, timeout=10_000, topic_data=rows)
            assert answer.responses[0].partition_responses[0].error_code == 0
    until(lambda: broker.statistics().connections == 0)


def there(broker: Broker, topic: str = "t") -> list[int]:
    """The first offsets of its segments."""
    found = broker.inside.topics.partition(topic, 0)
    assert found is not None
    return broker.call(lambda: [segment.base for segment in found.segments])


def test_what_was_due_is_done_once_the_clock_has_been_turned(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A start moves behind a flush by another thread: how-to/test-time-by-hand.md looks at it at once."""
    fill(broker)
    save, rests = Memo.save, iter([0.1])

    def slow(self: Memo, start: int = 0) -> None:
        time.sleep(next(rests, 0))
        save(self, start)

    monkeypatch.setattr(Memo, "save", slow)
    broker.advance_s(WEEK_S + DAY_S)
    found = broker.inside.topics.partition("t", 0)
    assert found is not None
    assert broker.call(lambda: found.start) == 5


def test_a_broker_without_work_is_called_for_the_scrub_alone(broker: Broker) -> None:
    broker.advance_s(HOUR_S)  # everybody looks once after a start
    assert [calls_in(broker, WEEK_S) for _ in range(3)] == [1, 1, 1]


def test_records_cost_a_look_an_hour_at_most_until_they_go_at_their_time(broker: Broker) -> None:
    broker.advance_s(HOUR_S)
    fill(broker)
    broker.advance_s(600)
    assert calls_in(broker, DAY_S) <= 25
    broker.advance_s(WEEK_S - DAY_S - 1200)
    assert there(broker)[0] == 0
    broker.advance_s(1200)
    until(lambda: there(broker) == [5])
    broker.advance_s(WEEK_S)
    assert calls_in(broker, WEEK_S) == 1


def test_offsets_of_a_group_go_at_their_time_and_then_nobody_looks(broker: Broker) -> None:
    broker.advance_s(HOUR_S)
    with Wire(broker.bootstrap) as wire:
        rows = [{"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}]
        given = {"group_id": "g", "generation_id_or_member_epoch": -1, "member_id": ""}
        wire.ask("offset_commit", 8, **given, topics=[{"name": "t", "partitions": rows}])
    until(lambda: broker.statistics().connections == 0)
    broker.advance_s(WEEK_S - 601)
    assert broker.statistics().groups
    broker.advance_s(1200)
    until(lambda: not broker.statistics().groups)
    broker.advance_s(HOUR_S)
    assert calls_in(broker, WEEK_S) == 1


def test_so_do_those_that_a_transaction_has_committed_for_a_group_that_nobody_is_in(broker: Broker) -> None:
    broker.advance_s(HOUR_S)
    with closing(Client(broker.bootstrap)) as client:
        producer = client.ready("n")
        client.add("n", producer, "t")
        assert client.commit_offset("n", producer, "g", "t", 7, version=5) == "NONE"
        assert client.end("n", producer) == "NONE"
    until(lambda: broker.statistics().connections == 0)
    broker.advance_s(WEEK_S + HOUR_S)
    until(lambda: not broker.call(lambda: list(broker.inside.groups.offsets.groups())))


# Who makes work wakes


@pytest.mark.parametrize(("kind", "name", "key"), [(TOPIC, "t", "retention.ms"), (BROKER, "", "log.retention.ms")])
def test_a_shorter_retention_of_a_topic_or_the_broker_holds_on_a_broker_that_is_idle(
    broker: Broker, kind: int, name: str, key: str
) -> None:
    fill(broker)
    broker.advance_s(DAY_S + 1200)  # within an hour's sleep
    with Wire(broker.bootstrap) as wire:
        change(wire, kind, name, (key, SET, "1000"))
    broker.advance_s(300)
    until(lambda: there(broker) == [5])


def test_a_topic_that_is_to_be_compacted_from_now_on_is(broker: Broker) -> None:
    broker.create_topic("keyed")
    fill(broker, "keyed", key=b"k")
    broker.advance_s(HOUR_S)
    with Wire(broker.bootstrap) as wire:
        change(wire, TOPIC, "keyed", ("cleanup.policy", SET, "compact"))
        broker.advance_s(15)
        until(lambda: broker.call(lambda: broker.inside.upkeep.compactions))


def test_a_start_looks_at_what_has_become_too_old_meanwhile(tmp_path: Path) -> None:
    clock = ManualClock()
    with Broker(tmp_path, clock=clock, settings=SETTINGS) as broker:
        broker.create_topic("t")
        fill(broker)
    clock.advance_s(2 * WEEK_S)
    with Broker(tmp_path, clock=clock, settings=SETTINGS) as broker:
        assert there(broker)[0] == 0
        broker.advance_s(300)
        until(lambda: there(broker) == [5])
