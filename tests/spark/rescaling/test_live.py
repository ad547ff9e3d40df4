"""A pipeline's state carried over while it runs: the same results, and one of two checkpoints goes on after any death."""

from __future__ import annotations

import importlib.util
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import SparkSession

from tests.spark.pipelines import make_pipeline, orders
from tests.spark.rescaling.kill_driver import Death
from tests.spark.rescaling.staged import expected, go_on_with, outcomes, refused, run, usable
from waterclock.errors import WaterclockError
from waterclock.spark.batch.outlets import Outlets
from waterclock.spark.checkpoint import state_files
from waterclock.spark.checkpoint.folder import Checkpoint
from waterclock.spark.pipeline import Pipeline, configured
from waterclock.spark.rescaling.live import LiveRescale, LiveState, rescale_live
from waterclock.spark.succession import Succession
from waterclock.streaming.toml.config import load

if TYPE_CHECKING:
    from waterclock.testing import Broker

pytestmark = pytest.mark.spark
PATIENCE_S = 300.0


def until(holds: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < end, what
        time.sleep(0.05)


class Living:
    """A live run in a thread, whose files come one by one."""

    def __init__(self, spark: SparkSession, folder: Path, rows: int = 60, files: int = 40) -> None:
        self.spark, self.folder = spark, folder
        self.file = make_pipeline(folder, orders(rows), files)
        (folder / "in").rename(folder / "later")
        (folder / "in").mkdir()
        self.old, self.new = Checkpoint(folder / "checkpoint"), Checkpoint(folder / "new")
        text = self.file.read_text().replace("[spark.conf]", "[spark]\nbuckets = 4\n[spark.conf]")
        self.file.write_text(text)
        self.failure: BaseException | None = None

    def begin(self) -> None:
        self.failure = None
        self._pipeline: Pipeline = configured(load(self.file))
        self._pipeline.check()  # whose checkpoint knows from here on in how many buckets it is
        self.file.write_text(self.file.read_text().replace("[spark]\nbuckets = 4\n", ""))
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._pipeline.run(self.spark, live=True)
        except BaseException as error:
            self.failure = error
        finally:
            self._pipeline.close()

    def more(self, count: int = 1) -> None:
        """So many files more, each of them in the sink before the next one comes."""
        for name in sorted(part.name for part in (self.folder / "later").iterdir())[:count]:
            (self.folder / "later" / name).rename(self.folder / "in" / name)
            taken = len([*(self.folder / "in").iterdir()])
            until(lambda taken=taken: self._taken() >= taken or self.failure is not None, f"{name} is taken")

    def _taken(self) -> int:
        return self._pipeline._totals.get("files", 0)

    def end(self) -> None:
        self._pipeline.end()
        self._thread.join(PATIENCE_S)

    def died(self) -> BaseException:
        until(lambda: not self._thread.is_alive(), "the run ends")
        assert self.failure is not None
        return self.failure

    def carry(self, buckets: int = 8) -> LiveState:
        """Carry the state over, while files come in."""
        until(lambda: self.old.last_done() is not None, "Spark notes the first batch, a moment behind the sink")
        config = load(self.file)
        assert config.rules is not None
        return rescale_live(self.spark, self.old, self.new, config.rules, buckets, lambda line: self.more())

    def to_the_end(self, checkpoint: Checkpoint) -> None:
        """All that is left, with the checkpoint that counts."""
        go_on_with(self.file, checkpoint.path)
        for part in (self.folder / "later").iterdir():
            part.rename(self.folder / "in" / part.name)
        run(self.spark, self.file)
        assert outcomes(self.file) == expected(self.file)


class LivingTopic(Living):
    """The same of a topic, whose records come some at a time."""

    def __init__(self, spark: SparkSession, folder: Path, bootstrap: str, topic: str) -> None:
        from tests.spark.topics import Sender, make_topic_pipeline

        super().__init__(spark, folder / "files")
        self.file = make_topic_pipeline(folder, bootstrap, topic, more="per_batch = 60")
        self.file.write_text(self.file.read_text().replace("[spark.conf]", "[spark]\nbuckets = 4\n[spark.conf]"))
        self.old, self.new = Checkpoint(folder / "checkpoint"), Checkpoint(folder / "new")
        self._sender, self._rows, self._sent = Sender(bootstrap, topic), orders(120), 0

    def more(self, count: int = 1) -> None:
        for _ in range(count):
            self._sender.orders(self._rows[self._sent : self._sent + 15])
            self._sent = min(self._sent + 15, len(self._rows))
            until(lambda: self._pipeline._totals.get("events", 0) >= self._sent or self.failure is not None, "taken")
            assert self.failure is None

    def to_the_end(self, checkpoint: Checkpoint) -> None:
        go_on_with(self.file, checkpoint.path)
        self._sender.orders(self._rows[self._sent :])
        run(self.spark, self.file)
        rules = load(self.file).rules
        assert rules is not None
        found = rules.run(self._rows, "1 hour")
        assert outcomes(self.file) == Counter(
            (r.kind, r.key, r.rule, r.due.strftime("%Y-%m-%d %H:%M:%S.%f"), r.source_id) for r in found
        )


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
    8: (state_files, "carried_over", 1),
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
    living.carry()
    living.more()
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
