"""A live run in a thread of this process, whose input comes bit by bit, and the command that carries its state over."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from threading import Thread

from pyspark.sql import SparkSession

from tests.spark.pipelines import make_pipeline, orders
from tests.spark.rescaling.staged import expected, go_on_with, outcomes, run
from waterclock.spark.checkpoint.folder import Checkpoint
from waterclock.spark.pipeline import Pipeline, configured
from waterclock.spark.rescaling.live import LiveRescale, LiveState
from waterclock.streaming.toml.config import load

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
        """`folder` may be that of another process's."""
        self.file = folder / "pipeline.toml"
        self.old, self.new = Checkpoint(folder / "checkpoint"), Checkpoint(folder / "new")
        if not self.file.exists():
            text = make_pipeline(folder, orders(rows), files).read_text()
            (folder / "in").rename(folder / "later")
            (folder / "in").mkdir()
            self.file.write_text(text.replace("[spark.conf]", "[spark]\nbuckets = 4\n[spark.conf]"))
        self.failure: BaseException | None = None

    def begin(self) -> None:
        self.failure = None
        self.pipeline: Pipeline = configured(load(self.file))
        self.pipeline.check()  # whose checkpoint knows from here on in how many buckets it is
        self.file.write_text(self.file.read_text().replace("[spark]\nbuckets = 4\n", ""))
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.pipeline.run(self.spark, live=True)
        except BaseException as error:
            self.failure = error
        finally:
            self.pipeline.close()

    def more(self, count: int = 1) -> None:
        """So many files more, each of them in the sink before the next one comes."""
        for _ in range(count):
            taken = self.come()
            until(
                lambda taken=taken: self._held("files") >= taken or self.failure is not None, f"file {taken} is taken"
            )

    def come(self) -> int:
        """A file more, which is a batch; so many there are then."""
        name = min(part.name for part in (self.folder / "later").iterdir())
        (self.folder / "later" / name).rename(self.folder / "in" / name)
        return len([*(self.folder / "in").iterdir()])

    def _held(self, what: str) -> int:
        return self.pipeline._account.totals.get(what, 0)

    def end(self) -> None:
        self.pipeline.end()
        self._thread.join(PATIENCE_S)

    def died(self) -> BaseException:
        until(lambda: not self._thread.is_alive(), "the run ends")
        assert self.failure is not None
        return self.failure

    def carry(self, buckets: int = 8, report: Callable[[str], object] | None = None) -> LiveState:
        """Carry the state over, while files come in at each step; `report` is what the steps are told instead."""
        until(lambda: self.old.last_done() is not None, "Spark notes the first batch, a moment behind the sink")
        config = load(self.file)
        assert config.rules is not None
        told = report or (lambda line: self.more())
        return LiveRescale(self.spark, self.old, self.new, config.rules, buckets, told).move()

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
            until(lambda: self._held("events") >= self._sent or self.failure is not None, "taken")
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
