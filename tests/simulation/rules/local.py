"""A machine with a pipeline without Spark: what `waterclock run --engine local --live` does, with kills, power cuts and
standstills.

What runs is the product's, unchanged: the run itself, the tail of the topic, the buckets, the record of each batch, the
checkpoint on the machine's disk. Of SQLite, in which the snapshots are, what it promises is taken as it is: a file that is
whole, and lacks after a power cut whatever was not flushed (WAL with synchronous=NORMAL).

Rule 1: one machine has it: the lock of its folder is the system's.
Rule 2: a batch's cut is that of the last attempt to write it: one that did not get through is cut anew.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path, PosixPath
from typing import Any

from tests.simulation.rules import nodes, sinks
from tests.simulation.rules.nodes import Here, RulesNode, RulesProcess
from tests.simulation.rules.senders import INPUT
from tests.simulation.rules.workload import SimulatedRules
from waterclock.local import pipeline as pipelines
from waterclock.local import state
from waterclock.local.checkpoint import LocalCheckpoint
from waterclock.local.snapshots import Snapshots
from waterclock.local.topics import TopicSource
from waterclock.simulation import disk
from waterclock.simulation.clocks import Uuid
from waterclock.simulation.files import OS
from waterclock.simulation.open_files import open_file
from waterclock.simulation.world import MS, NS, US, world
from waterclock.streaming import owner
from waterclock.streaming.toml.steps import Outlet

FOLDER = "/data/checkpoint"
STEPS = ("taken", "begun", "looked", "written", "committed", "keeps", "kept", "rename", "rename after", "fsync before")


class DiskPath(PosixPath):
    """A path of the machine's disk."""

    def exists(self, **more: Any) -> bool:
        return bool(OS.path.exists(str(self)))

    def is_dir(self, **more: Any) -> bool:
        return bool(OS.path.isdir(str(self)))

    def mkdir(self, mode: int = 0o777, parents: bool = False, exist_ok: bool = False) -> None:
        OS.makedirs(str(self), mode, exist_ok)

    def read_bytes(self) -> bytes:
        with open_file(str(self), "rb") as file:
            return bytes(file.read())

    def read_text(self, *more: Any, **named: Any) -> str:
        return self.read_bytes().decode()


def install() -> None:
    """The simulated world where this engine meets Python's own."""
    nodes.install()
    owner.Path = DiskPath
    pipelines.uuid4 = Uuid.uuid4


class KeptSnapshots(Snapshots):
    """A real file, whose earlier contents a power cut may bring back."""

    def __init__(self, path: Path, node: LocalNode) -> None:
        self._node = node
        super().__init__(path)
        node.images = node.images or [b""]
        self._seen()

    def write(self, query: str, written: Any, lasts: bool = False) -> None:
        world().breathe("keeps", 0.5, 10 * US, 20 * MS)
        super().write(query, written, lasts)
        self._seen(lasts)
        world().breathe("kept", 0.5, 10 * US, 20 * MS)

    def forget_others(self, query: str, last: int) -> None:
        super().forget_others(query, last)
        self._seen(lasts=True)

    def _seen(self, lasts: bool = False) -> None:
        self._node.images = [*([] if lasts else self._node.images), self._db.serialize()]


class KeptCheckpoint(LocalCheckpoint):
    def __init__(self, node: LocalNode) -> None:
        super().__init__(DiskPath(FOLDER))
        self._node = node

    def snapshots(self) -> Snapshots:
        self._snapshots = self._node.snapshots = KeptSnapshots(self._node.pipeline.state, self._node)
        return self._snapshots


class Ended:
    """The event that ends a live run, by whoever stops its machine."""

    def __init__(self, process: RulesProcess) -> None:
        self._process = process

    def is_set(self) -> bool:
        return self._process.stops

    def wait(self, seconds: float) -> bool:
        world().sleep(round(seconds * NS))
        return self.is_set()


class LocalNode(RulesNode):
    """`images`: what the file of the snapshots held, since it was flushed last."""

    steps = STEPS

    def __init__(self, universe: Any, name: str, pipeline: Any) -> None:
        super().__init__(universe, name, pipeline)
        self.disk = disk.Disk(name)
        self.images: list[bytes] = []
        self.snapshots: Snapshots | None = None

    def _run(self, process: RulesProcess) -> None:
        of = self.pipeline
        self._sinks = [sinks.made(kind, of.file, of.partitions, of.cuts) for kind in of.sinks]
        made = pipelines.LocalPipeline(
            TopicSource(of.source(), of.rules, of.spec_delay), of.rules, [Outlet(sink) for sink in self._sinks],
            KeptCheckpoint(self), watermark_delay_us=of.spec_delay, name="simulated", buckets=of.buckets,
            linger_s=of.linger_s, clock=Here(),
        )  # fmt: skip
        made._ended = Ended(process)  # type: ignore[assignment]
        try:
            made.check()
            self.world.log(self.name, "is up", made._batch, made._buckets.at())
            made._run(True, partial(self._told, made))
            self.is_done = made._closed or made._is_closed()
            self.world.log(self.name, "closed", self.is_done)
        finally:
            if process.alive:
                made.close()
                if self.snapshots is not None:  # its file was flushed as it was closed
                    self.images, self.snapshots = self.images[-1:], None

    def _told(self, made: pipelines.LocalPipeline, told: Any) -> None:
        self.batches += 1
        self.world.log(self.name, "batch", told.batch_id, sorted(told.totals.items()))

    def _down(self, process: RulesProcess) -> None:
        if self.snapshots is not None:  # as the system does for who is gone
            self.snapshots.close()
            self.snapshots = None
        super()._down(process)

    def _cut_power(self, process: RulesProcess, where: str) -> None:
        if process.alive:
            super()._cut_power(process, where)
            self.world.log(self.name, "disk", self.disk.cut_power())
            image = self.rng.choice(self.images or [b""])
            self.world.log(self.name, "snapshots", self.images.index(image) if self.images else 0, len(self.images))
            self.images = [image]
            for end in ("-wal", "-shm"):
                Path(f"{self.pipeline.state}{end}").unlink(missing_ok=True)
            self.pipeline.state.write_bytes(image)


class SimulatedLocal(SimulatedRules):
    """One pipeline without Spark."""

    def _nodes(self) -> list[Any]:
        rng = self.rng
        pipelines.SNAPSHOT_S, pipelines.FOLDED = rng.choice((0.02, 0.5, 2.0)), rng.choice((1, 5, 1_000))
        state._MOST_TABLES, state._MOST_ROWS = rng.choice((1, 64)), rng.choice((3, 300_000))
        self.linger_s, self.cuts = rng.choice((0.0, 0.01, 0.05)), dict[int, str]()
        self.state = self.file.with_name("waterclock.state")
        return [LocalNode(self.universe, "local", self)]

    def _cuts(self) -> list[dict[str, int]]:
        return [json.loads(self.cuts[number])["place"][INPUT] for number in range(len(self.cuts))]

    def _install(self) -> None:
        install()
