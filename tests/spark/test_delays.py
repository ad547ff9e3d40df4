"""What is pending of delayed messages, as a DataFrame: the same that the relay has, read from Kafka alone."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

if not importlib.util.find_spec("confluent_kafka") or not importlib.util.find_spec("kio"):
    pytest.skip("needs waterclock[relay,broker]", allow_module_level=True)

from tests.relay.draw import lives
from tests.relay.lapping import YEAR_MS, cut_off, fill, lap, lapping, owner_of
from tests.relay.life import Life
from tests.relay.world import World, step_quietly, step_until
from tests.samples import blocks, run_block
from tests.test_readme import ROOT
from waterclock.errors import ConnectionLost, UsageError
from waterclock.kafka.settings import base_settings
from waterclock.relay.logs import Logs
from waterclock.relay.store import State
from waterclock.relay.watching.view import LogBounds
from waterclock.relay.wire.settlement import mark_of, settlements
from waterclock.relay.wire.topics import Topics
from waterclock.spark import pending
from waterclock.spark.delays import PartView, PendingPart
from waterclock.testing import Broker

pytestmark = pytest.mark.spark
_numbers = count()
WEEK_MS = 7 * 24 * 3_600_000


@pytest.fixture(autouse=True)
def no_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clocks of these relays stand still."""
    monkeypatch.setattr("waterclock.relay.owner.pace.REST_NS", 0)
    monkeypatch.setattr("waterclock.relay.owner.take_over.RECONNECTING_S", (0.0,))
    monkeypatch.setattr("waterclock.relay.upkeep.upkeep.REST_NS", 0)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    settings = {"group.initial.rebalance.delay.ms": "0", "auto.create.topics.enable": "false"}
    with Broker(settings=settings) as broker:
        yield broker


@pytest.fixture
def world(broker: Broker, tmp_path: Path) -> Iterator[World]:
    with World(broker, tmp_path, f"later.{next(_numbers)}") as made:
        yield made


def view(spark: SparkSession, world: World) -> list[Row]:
    return pending(world.broker.bootstrap, world.topic, session=spark).orderBy("partition", "due", "origin").collect()


def told(rows: list[Row]) -> list[tuple[Any, ...]]:
    return [(row.value, row.id, row.asked) for row in rows]


def test_what_was_delivered_cancelled_or_put_aside_is_not_pending(spark: SparkSession, world: World) -> None:
    relay = world.started()
    world.send("now", in_ms=0)
    world.send("later")
    world.send("gone", "stays", id="a")
    world.put(None, delay_id="a", delay_action="cancel")
    world.send("new", id="a", delay_action="replace")
    world.send("no one", in_ms=9, delay_action="what")
    step_quietly(relay)
    assert told(view(spark, world)) == [(b"later", None, None), (b"new", "a", None)]
    world.advance_ms(1_000)
    step_quietly(relay)
    assert view(spark, world) == []


def test_a_row_has_what_will_be_delivered_and_when(spark: SparkSession, world: World) -> None:
    due_ms = world.now_ms + 12_345
    headers = [("trace", b"\xff"), ("deliver-to", b"shop.mail"), ("trace", None), ("deliver-at", str(due_ms).encode())]
    world.put_raw(b"\x00v", headers, b"\x00k")
    world.put_raw(None, [*headers, ("delay-id", "ü".encode())])
    first, second = view(spark, world)
    assert (first.origin, first.partition, first.topic) == (f"{world.topic}-0-0", 0, "shop.mail")
    assert first.due.astimezone(UTC) == datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=due_ms)
    assert (first.id, first.key, first.value) == (None, b"\x00k", b"\x00v")
    assert [tuple(header) for header in first.headers] == [("trace", b"\xff"), ("trace", None)]
    assert (second.origin, second.id, second.key, second.value) == (f"{world.topic}-0-1", "ü", None, None)


def test_a_cancel_that_no_relay_has_answered_is_said_and_its_message_is_pending(
    spark: SparkSession, world: World
) -> None:
    world.send("cancelled soon", id="a")
    world.send("not asked", id="b")
    world.put(None, delay_id="a", delay_action="cancel")
    world.send("new", id="a", delay_action="replace")
    world.send("replaced soon", id="c")
    world.send("newer", id="c", delay_action="replace")
    before = [(b"cancelled soon", "a", "cancel"), (b"not asked", "b", None), (b"new", "a", None)]
    assert told(view(spark, world)) == [*before, (b"replaced soon", "c", "replace"), (b"newer", "c", None)]
    step_quietly(world.started())
    assert told(view(spark, world)) == [(b"not asked", "b", None), (b"new", "a", None), (b"newer", "c", None)]


def test_what_is_due_next_week_by_topic(spark: SparkSession, world: World) -> None:
    for weeks, target in ((0, "mail"), (1, "mail"), (1, "mail"), (1, "push"), (2, "push")):
        world.put(b"v", deliver_to=target, deliver_at=world.now_ms + weeks * WEEK_MS)
    until = datetime.fromtimestamp(world.now_ms / 1000 + 8 * 24 * 3600, UTC)
    rows = pending(world.broker.bootstrap, world.topic, session=spark)
    due = rows.where((F.col("due") > until - timedelta(7)) & (F.col("due") <= until))
    assert sorted(map(tuple, due.groupBy("topic").count().collect())) == [("mail", 2), ("push", 1)]


def test_the_sample_in_the_document_runs(
    spark: SparkSession, world: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    world.send("a", "b", in_ms=86_400_000)
    world.send("c", in_ms=8 * 86_400_000)
    (_, sample), *others = blocks(ROOT / "docs" / "relay.md", "python")
    assert not others
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: spark)
    run_block(sample.replace('"127.0.0.1:9092"', f"{world.broker.bootstrap!r}, {world.topic!r}"), {})
    day = datetime.fromtimestamp(world.now_ms / 1000 + 86_400, UTC).date()
    assert f"|{day}|{world.target}|    2|" in capsys.readouterr().out


def test_two_views_of_two_relays_stay_two(spark: SparkSession, world: World, broker: Broker, tmp_path: Path) -> None:
    with World(broker, tmp_path, f"other-{next(_numbers)}") as other:
        world.send("one")
        other.send("two")
        both = [pending(broker.bootstrap, each.topic, session=spark) for each in (world, other)]
        assert [row.value for row in both[0].unionAll(both[1]).collect()] == [b"one", b"two"]


def test_a_frame_shows_one_moment_that_of_its_first_action(spark: SparkSession, world: World) -> None:
    frame = pending(world.broker.bootstrap, world.topic, session=spark)
    world.send("one")
    assert frame.count() == 1
    world.send("two")
    assert (frame.count(), frame.where("due is not null").count()) == (1, 1)
    assert pending(world.broker.bootstrap, world.topic, session=spark).count() == 2


def test_where_a_message_was_moved_away_it_is_not_pending(spark: SparkSession, world: World) -> None:
    """The copy is."""
    world.send("moved", "stays")
    settle(world, State.MOVED, 0)
    assert told(view(spark, world)) == [(b"stays", None, None)]


def test_settlements_of_another_input_of_that_name_and_what_is_none_are_passed_over(
    spark: SparkSession, world: World
) -> None:
    world.send("stays")
    settle(world, State.DELIVERED, 0, mark=mark_of("another"))
    settle(world, State.DELIVERED, 0, damage=True)
    assert told(view(spark, world)) == [(b"stays", None, None)]


def long_lived(world: World) -> None:
    """Some that are pending for long, one that is not any more, and one that nobody has cancelled yet."""
    world.send("far", in_ms=YEAR_MS, id="cart-17")
    world.send("gone", in_ms=YEAR_MS, id="cart-18")
    world.put(None, delay_id="cart-18", delay_action="cancel")
    world.put(b"\x00v", deliver_to=world.target, deliver_at=world.now_ms + 2 * YEAR_MS, trace="x", key=b"k")


@pytest.mark.long(seconds=4)
def test_the_rows_are_the_same_when_both_logs_were_cut_off_behind_a_snapshot(spark: SparkSession, world: World) -> None:
    relay = lapping(world)
    long_lived(world)
    step_quietly(relay)
    before = view(spark, world)
    assert told(before) == [(b"far", "cart-17", None), (b"\x00v", None, None)]
    cut_off(world, relay)
    assert owner_of(relay).log_span.settled_low > 0
    assert owner_of(relay).log_span.low > 3
    assert view(spark, world) == before
    world.put(None, delay_id="cart-17", delay_action="cancel")
    assert told(view(spark, world)) == [(b"far", "cart-17", "cancel"), (b"\x00v", None, None)]
    step_quietly(relay)
    cut_off(world, relay)
    assert view(spark, world) == before[1:]


def part_of(logs: Logs, world: World) -> PendingPart:
    """The only partition, as it is planned now."""
    topics = Topics.of(world.topic)
    mark = mark_of(world.admin.topic_id(world.topic))
    return PendingPart(LogBounds(0, logs.bounds(topics.input, 0), logs.bounds(topics.settled, 0), mark))


def values_of(logs: Logs, world: World, part: PendingPart) -> list[bytes]:
    batches = PartView(logs, Topics.of(world.topic), part).rows()
    return [value for batch in batches for value in batch.column("value").to_pylist()]


@pytest.fixture
def logs(broker: Broker) -> Iterator[Logs]:
    made = Logs(base_settings(broker.bootstrap, {}))
    yield made
    made.close()


def test_what_is_moved_on_between_the_two_questions_is_not_left_out(world: World, logs: Logs) -> None:
    """Its first place is swept, and its copy stands behind where the input ended."""
    relay = lapping(world)
    world.send("far", in_ms=YEAR_MS)
    fill(world, relay, 1)
    step_quietly(relay)
    before = part_of(logs, world).bounds
    fill(world, relay)
    step_until(lambda: relay._counts.laps, relay)
    after = part_of(logs, world).bounds
    assert values_of(logs, world, PendingPart(before._replace(settled=after.settled))) == [b"far"]


def test_what_is_cut_off_while_it_is_read_is_an_error_and_no_row_less(world: World, logs: Logs) -> None:
    relay = lapping(world)
    world.send("far", in_ms=YEAR_MS)
    step_quietly(relay)
    before = part_of(logs, world)
    lap(world, relay)
    with pytest.raises(ConnectionLost, match=f"{world.topic}-0 was cut off by a relay while it was read: call"):
        values_of(logs, world, before)


def test_where_no_snapshot_says_what_was_settled_before_the_view_is_refused(world: World, logs: Logs) -> None:
    world.send("now", in_ms=0)
    world.send("later")
    step_quietly(world.started())
    settled = f"{world.topic}.settled"
    world.cut(1, settled)
    with pytest.raises(UsageError, match=f"{settled}-0 begins at offset 1, and no snapshot"):
        values_of(logs, world, part_of(logs, world))


def settle(world: World, state: State, origin: int, mark: bytes = b"", damage: bool = False) -> None:
    """A settlement of the first partition, as a relay writes it."""
    known = world.admin.topic_id(world.topic)
    (value,) = settlements(state, np.array([origin], "<i8"), 0, mark or mark_of(known))
    world._producer.produce(f"{world.topic}.settled", value[:-1] + b"\xff" if damage else value, partition=0)
    assert world._producer.flush(10) == 0


def test_a_topic_that_is_no_relays_is_refused_in_a_sentence(spark: SparkSession, broker: Broker) -> None:
    broker.create_topic("orders")
    for topic, missing in (("orders", "orders.settled"), ("nobody", "nobody")):
        with pytest.raises(PySparkException, match=f"There is no topic {missing}: a relay makes"):
            pending(broker.bootstrap, topic, session=spark).collect()


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.long(seconds=5)) for seed in range(2, 6))])
def test_after_any_life_of_relays_it_has_what_is_pending(
    seed: int, spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    topic = f"life-{next(_numbers)}"
    life = Life(broker, tmp_path, topic, 2)
    life.play(lives(seed, 30))
    found = pending(broker.bootstrap, topic, session=spark).collect()
    asked = [(f"{topic}-{one.partition}-{one.offset}", one.target, one.id or None) for one in life.oracle.pending()]
    assert sorted((row.origin, row.topic, row.id) for row in found) == sorted(asked)
