"""A machine with a pipeline's driver and its workers: what `waterclock run --live` does, with kills and standstills.

What the product takes from Python itself where the pipeline runs (its clock, the lease's thread, the names of machines and
processes) is the simulated world's (`install`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

from tests.simulation.confluent import door
from tests.simulation.relay.nodes import _rest
from tests.simulation.rules import places, sinks
from tests.simulation.rules.spark import IDLE_S, ConcurrentUpdate, Query, Session
from waterclock.errors import ConnectionLost, EnvironmentMissing, WaterclockError
from waterclock.kafka import admin, client, transactions
from waterclock.simulation.clocks import Clock, Uuid
from waterclock.simulation.processes import Process, _place
from waterclock.simulation.threads import Event, Thread
from waterclock.simulation.world import MS, NS, world
from waterclock.sinks.topic import topic as topic_sink
from waterclock.spark import pipeline as pipelines
from waterclock.spark.kafka import datasource
from waterclock.spark.packing import operator
from waterclock.streaming import owner
from waterclock.streaming.places import place
from waterclock.streaming.topics import fetcher

STEPS = ("planned", "put", "put done", "stepped", "taken", "begun", "looked", "written", "committed", "noted", "opened",
         "fenced")  # fmt: skip
TAKEN_OVER = (
    "another run took the checkpoint over",
    "another run has taken the checkpoint",
    "another run has the checkpoint",
)
AWAY = ("no broker answers", "There is no Kafka", "Kafka does not")  # words of EnvironmentMissing


class Here(Clock):
    """The clock of whatever process runs."""

    def __init__(self) -> None:
        super().__init__(world().running().process)


def _kept(settings: frozenset[tuple[str, str]]) -> Any:
    """A worker's client, which dies with it."""
    process = world().running().process
    if process.kept is None:
        process.kept = fetcher.client_for(dict(settings), fetcher.PATIENCE_S)
    return process.kept


def _forget() -> None:
    world().running().process.kept = None


def install() -> None:
    """The simulated world where the pipeline meets Python's own."""
    door.install()
    for module in (admin, client, transactions, topic_sink, pipelines, owner):
        module.SystemClock = Here
    _kept.cache_clear = _forget  # type: ignore[attr-defined]
    datasource.kept, place.HadoopPath = _kept, places.StoredPlace
    # how Python's garbage is collected is the simulation's own matter; to count what is frozen would be a tenth of all
    operator.gc = SimpleNamespace(disable=bool, enable=bool, freeze=bool, get_freeze_count=lambda: 1)
    owner.Event, owner.Thread, owner.uuid4 = Event, Thread, Uuid.uuid4
    owner.socket = SimpleNamespace(gethostname=lambda: world().running().process.name)
    owner.os = SimpleNamespace(getpid=lambda: 1)
    owner._machine = lambda: world().running().process.name
    owner._started = lambda process: str(world().running().process.node.starts)


class RulesProcess(Process):
    """`where`: how its clients find the broker. `kept`: the client that its workers keep."""

    def __init__(self, node: RulesNode) -> None:
        super().__init__(node.name, node.disk)
        self.node, self.where, self.kept, self.stops = node, node.universe.where, None, False

    def wall_ms(self) -> int:
        return Clock(self).wall_ms()

    def saw_produced(self, topic: str, record: Any) -> None: ...
    def was_silent(self, began_ns: int) -> None: ...
    def saw_read(self, topic: str, number: int, record: Any) -> None: ...


class SimulatedPipeline(pipelines.Pipeline):
    """The product's, begun as its `run` begins; its batches come from the model of Spark's loop."""

    @property
    def checkpoint(self) -> Any:
        return self._checkpoint

    @property
    def is_over(self) -> bool:
        return self._closed

    def begin(self) -> None:
        self.check()
        self._checkpoint.sweep()
        self._checkpoint.close_again()
        self._report, self._last_moment = None, self._clock.monotonic_s()
        self._closed = self._was_closed = self._checkpoint.is_source_closed()
        self._account.gathering.begin()

    def query(self, session: Session, parts: int) -> Query:
        stream: Any = self._stream
        stream._packing = replace(stream._packing, count=self.buckets)
        stream._by_python(session, True)
        return Query(self, session.source({}).streamReader(None), session, self._rules, parts)

    def take(self, batch: Any, number: int) -> None:
        self._take(batch, number)


class RulesNode:
    """`pipeline`: what there is of it on every machine (workload.py)."""

    steps, disk = STEPS, None

    def __init__(self, universe: Any, name: str, pipeline: Any) -> None:
        self.universe, self.world, self.name, self.pipeline = universe, universe.world, name, pipeline
        self.rng = self.world.stream(f"node {name}")
        self.process: RulesProcess | None = None
        self.starts, self.is_done, self.batches = 0, False, 0
        self._sinks: list[Any] = []

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.alive

    def start(self) -> None:
        if self.alive or self.is_done:
            return
        self.starts += 1
        process = self.process = RulesProcess(self)
        process.main(_rest())
        process.begin_thread(partial(self._live, process), "pipeline")

    def _live(self, process: RulesProcess) -> None:
        try:
            self._run(process)
        except Exception as error:
            if process.alive:  # else it is only unwound
                self._ended(error)
        if process.alive:
            self._down(process)

    def _run(self, process: RulesProcess) -> None:
        self._sinks = [sinks.made(kind, self.pipeline.file, self.pipeline.partitions) for kind in self.pipeline.sinks]
        where = places.StoredPlace(places.CHECKPOINT)
        made = SimulatedPipeline(
            self.pipeline.source(), self.pipeline.rules, self._sinks, where,
            watermark_delay=self.pipeline.spec_delay, buckets=self.pipeline.buckets, name="simulated",
        )  # fmt: skip
        try:
            made.begin()
            self.world.log(self.name, "is up")
            query = made.query(Session(self.pipeline.tasks), self.pipeline.parts)
            while not (process.stops or made.is_over):
                if query.step():
                    self.batches += 1
                    self.world.log(self.name, "batch", query.number - 1, sorted(made._account.totals.items()))
                else:
                    self.world.sleep(round(IDLE_S * NS))
            self.is_done = made.is_over
            self.world.log(self.name, "closed", self.is_done)
        finally:
            if process.alive:
                made.close()

    def _ended(self, error: Exception) -> None:
        """Who is taken over, or has nobody to talk to, says so; all else is a false alarm."""
        told = str(error).replace(str(self.pipeline.file.parent), "")
        self.world.log(self.name, "ends", type(error).__name__, told)
        is_rival = len(self.pipeline.nodes) > 1 and (
            isinstance(error, ConcurrentUpdate) or any(words in told for words in TAKEN_OVER)
        )
        if not isinstance(error, WaterclockError | ConcurrentUpdate):
            return self.world.problem("ended", f"{self.name}: {type(error).__name__}: {told} at {_place(error)}")
        is_away = isinstance(error, EnvironmentMissing) and any(words in told for words in AWAY)
        if not (is_rival or is_away or isinstance(error, ConnectionLost)):
            self.world.problem("refused", f"{self.name}: {type(error).__name__}: {told}")
        return None

    def _down(self, process: RulesProcess) -> None:
        process.kill()
        for sink in self._sinks:
            sink.die()
        self._sinks = []
        self.world.at(self.world.now + self.rng.choice((20 * MS, 300 * MS, 2 * NS, 8 * NS)), self.start)

    # Faults

    def kill(self) -> None:
        self._at_some_step(self._kill)

    def cut_power(self) -> None:
        self._at_some_step(self._cut_power)

    def _at_some_step(self, deed: Callable[[RulesProcess, str], None]) -> None:
        process = self.process
        assert process is not None
        if self.rng.random() < 0.2:
            deed(process, "now")
            return
        process.doom_at = self.rng.choice(self.steps)
        process.doom = self.rng.choice((1, 1, 2, 5))
        process.doomed = partial(deed, process)

    def _kill(self, process: RulesProcess, where: str) -> None:
        if process.alive:
            self.universe.count("pipeline killed")
            self.world.log(self.name, "killed", where)
            self._down(process)

    def _cut_power(self, process: RulesProcess, where: str) -> None:
        if process.alive:
            self.universe.count("pipeline without power")
            for sock in process.sockets.values():
                sock.silent = True
            self.world.log(self.name, "power cut", where)
            self._down(process)

    def stop(self) -> None:
        assert self.process is not None
        self.universe.count("pipeline stopped")
        self.process.stops = True

    def freeze(self) -> None:
        """Now, or in the midst of a step to come."""
        self._at_some_step(self._freeze)

    def _freeze(self, process: RulesProcess, where: str) -> None:
        if process.alive:
            self.universe.count("pipeline frozen")
            self.world.log(self.name, "frozen", where)
            process.frozen_until = self.world.now + self.rng.choice((200 * MS, 3 * NS, 8 * NS, 12 * NS))
            if where != "now":  # who is doomed parks: it goes on there
                thread = self.world.running()
                thread.ticket += 1
                self.world.at(process.frozen_until, thread.resume, thread.ticket)

    def cut_off(self) -> None:
        """Its connections break."""
        assert self.process is not None
        self.universe.count("pipeline cut off")
        for sock in list(self.process.sockets.values()):
            self.universe.network.reset(sock)

    def pacify(self) -> None:
        """No faults any more."""
        if self.process is not None:
            self.process.doom = None
            self.process.frozen_until = min(self.process.frozen_until, self.world.now + 1)
        self.start()
