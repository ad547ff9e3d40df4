"""A pipeline's state carried over while it runs: the same results, and one of two checkpoints goes on after any death."""

from __future__ import annotations

import importlib.util
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import SparkSession

from tests.spark.rescaling.kill_driver import Death
from tests.spark.rescaling.living import Living, LivingTopic, until
from tests.spark.rescaling.staged import refused, usable
from waterclock.errors import WaterclockError
from waterclock.spark.batch.outlets import Outlets
from waterclock.spark.checkpoint import state_files
from waterclock.spark.rescaling.live import LiveRescale
from waterclock.spark.rescaling.stored import look
from waterclock.spark.succession import ANSWERED, SWITCHED, Succession, said

if TYPE_CHECKING:
    from waterclock.testing import Broker

pytestmark = pytest.mark.spark


@contextmanager
def dying(
    monkeypatch: pytest.MonkeyPatch,
    place: Any,
    name: str,
    nth: int = 1,
    before: bool = False,
    death: type[BaseException] = Death,
) -> Iterator[None]:
    """Whoever comes to the end of that call for the nth time, or to its begin, dies there. In a thread of Java's, a death
    that is no Exception would leave Java to wait."""
    real, calls = getattr(place, name), []

    def dies(*arguments: Any, **more: Any) -> Any:
        calls.append(name)
        is_it = len(calls) == nth
        if is_it and before:
            raise death
        found = real(*arguments, **more)
        if is_it:
            raise death
        return found

    with monkeypatch.context() as patched:
        patched.setattr(place, name, dies)
        yield
        assert len(calls) >= nth


@pytest.mark.long(seconds=60)
def test_a_state_is_carried_over_while_its_pipeline_runs_and_no_result_is_another(
    spark: SparkSession, tmp_path: Path
) -> None:
    living = Living(spark, tmp_path)
    living.begin()
    living.more(4)
    made = living.carry()
    assert (made.buckets, made.checkpoint, made.batches > 0, made.events > 0) == (8, living.new.path, True, True)
    living.more(4)
    assert living.failure is None
    living.end()
    assert living.new.last_done() is not None
    with closing(sqlite3.connect(tmp_path / "out.db")) as db:
        ((counted,),) = db.execute("SELECT sum(json_extract(counters, '$.state_bytes')) FROM results_batches")
    assert counted == look(spark, living.new).bytes
    assert f"was carried over to {living.new.path}" in refused(spark, living.file, living.old.path)
    assert not (living.new.local / state_files.PARTS).exists()
    assert not (living.new.local / state_files.CARRYING).exists()
    living.to_the_end(living.new)


@pytest.mark.skipif(
    not importlib.util.find_spec("confluent_kafka") or not importlib.util.find_spec("kio"),
    reason="needs waterclock[kafka,broker]",
)
@pytest.mark.long(seconds=60)
def test_the_watermarks_of_a_topics_partitions_go_with_it(
    spark: SparkSession, kafka_broker: Broker, tmp_path: Path
) -> None:
    kafka_broker.create_topic("orders-moving", 3)
    living = LivingTopic(spark, tmp_path, kafka_broker.bootstrap, "orders-moving")
    living.begin()
    living.more(4)
    living.carry()
    living.more(4)
    assert living.failure is None
    living.end()
    living.to_the_end(living.new)


BEHIND = {
    2: (state_files, "begin", 1),
    3: (LiveRescale, "_answer", 1),
    4: (LiveRescale, "_set_aside", 1),
    5: (LiveRescale, "copy", 1),
    6: (LiveRescale, "_catch_up", 1),
    7: (LiveRescale, "_answer", 2),
}


@pytest.mark.long(seconds=150)
def test_a_command_that_dies_behind_any_step_leaves_the_run_as_it_was(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    living = Living(spark, tmp_path)
    living.begin()
    living.more(2)
    for step, (place, name, nth) in BEHIND.items():
        with dying(monkeypatch, place, name, nth), pytest.raises(Death):
            living.carry()
        living.more()
        assert living.failure is None, step
        assert "did not come to its end" in refused(spark, living.file, living.new.path), step
    with dying(monkeypatch, state_files, "carried_over"), pytest.raises(Death):
        living.carry()
    until(lambda: said(living.old.local / ANSWERED).get("step") == SWITCHED, "all is laid down: 9 is the run's own")
    living.more()
    assert living.failure is None
    living.end()
    living.to_the_end(living.new)


@pytest.mark.long(seconds=150)
def test_a_run_that_dies_behind_any_step_leaves_one_checkpoint_that_goes_on(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    living = Living(spark, tmp_path)
    deaths = [
        (Succession, "_record", 2, False),
        (Succession, "batch_is_written", 4, False),
        (Succession, "wait", 1, True),
        (Succession, "wait", 1, False),
        (Outlets, "hand_over", 1, True),
    ]
    for place, name, nth, before in deaths:
        living.begin()
        living.more()
        with dying(monkeypatch, place, name, nth, before, RuntimeError), pytest.raises(WaterclockError, match="ended"):
            living.carry()
        living.died()
        assert usable(spark, living.file, living.old.path, living.new.path) == [living.old.path], name
    living.begin()
    living.more()
    with dying(monkeypatch, Outlets, "hand_over", death=RuntimeError), pytest.raises(WaterclockError, match="ended"):
        living.carry()
    living.died()
    assert usable(spark, living.file, living.old.path, living.new.path) == [living.new.path]
    living.to_the_end(living.new)
