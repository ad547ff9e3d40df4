"""The pipeline of a universe: what its rules, its sinks and its sizes are, on one machine or two, and its faults.

Rule 1: what needs Spark's Python or Arrow is imported as a universe begins that has a pipeline, not before.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import tempfile
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any

from tests.rules.oracle import Expectation, Out, Spec
from tests.simulation.confluent.requests import Kafka
from tests.simulation.confluent.topics import make, until_done, whole
from tests.simulation.kafka.batches import Record, encoded
from tests.simulation.rules.promises import Expected, Found, check
from tests.simulation.rules.senders import CLOSING, HEARTBEAT, INPUT, Events, S, Sender, us_of
from waterclock.simulation.world import MS, NS

FAULTS = ("kill", "cut_power", "stop", "freeze", "cut_off")
PATIENCE_NS = 150 * NS
_MEMORY = Path("/dev/shm")
_files: dict[int, Path] = {}  # the folder of each process: what is forked off has its own


def spec_of(rng: Any) -> Spec:
    """Rules, drawn."""
    by_number, waits = rng.random() < 0.5, rng.choice((None, 0, 3 * S, 10 * S, 30 * S))
    return Spec(
        within=rng.choice((None, 0, 4 * S, 25 * S, 100 * S)),
        wait=waits,
        on_gap=rng.choice(("skip", "hold", "dead_letter")) if by_number and waits is not None else "skip",
        sequence=by_number,
        deliver=rng.random() < 0.3,
        delays=tuple(rng.sample((("ask", 7 * S, "seven later", None, ()), ("pay", 0, "at once", None, ()),
                                 (("ask", "pay"), 60 * S, "for both", None, ())), rng.randrange(3))),
        expects=tuple(rng.sample((
            Expectation("pay", "ask", 8 * S, "unpaid", ("stop",)),
            Expectation(("pay", "stop"), ("ask", "pay"), 30 * S, "nothing more"),
            Expectation("ask", "ask", 5 * S, "asked once"),
            Expectation("pay", "ask", None, "promise broken", ("stop",)),
        ), rng.randrange(3))),
        quiets=tuple(rng.sample(((9 * S, "quiet", None, ()), (0, "still", None, ())), rng.choice((0, 0, 1, 2)))),
    )  # fmt: skip


def rules_of(spec: Spec) -> Any:
    """The product's words for them."""
    from waterclock.rules import Rules

    rules = Rules(key="key", time="time", type="type", id="id", sequence="number" if spec.sequence else None)
    rules = rules if spec.within is None else rules.deduplicate(within=spec.within)
    rules = rules if spec.wait is None else rules.order(wait=spec.wait, on_gap=spec.on_gap)
    rules = rules.deliver_at("deliver") if spec.deliver else rules
    for after, by, emit, *_ in spec.delays:
        rules = rules.delay(after=after, by=by, emit=emit)
    for one in spec.expects:
        by = {"by": "promised"} if one.within is None else {"within": one.within}
        rules = rules.expect(one.type, after=one.after, otherwise=one.otherwise, cancel_by=one.cancel_by, **by)
    for after, emit, *_ in spec.quiets:
        rules = rules.quiet(after=after, emit=emit)
    return rules


class SimulatedRules:
    """One pipeline, which one machine has, or two that take it from each other."""

    def __init__(self, universe: Any) -> None:
        self._install()
        self.universe, self.world = universe, universe.world
        rng = self.rng = universe.plan.stream("rules")
        self.spec, self.spec_delay = spec_of(rng), rng.choice((0, 6 * S, 20 * S, 45 * S))
        self.rules = rules_of(self.spec)
        self.sinks = rng.choice((("topic",), ("topic",), ("sqlite",), ("topic", "sqlite"), ("sqlite", "topic")))
        self.inputs, self.partitions = rng.randrange(1, 4), rng.randrange(1, 3)
        self.per_batch, self.on_loss = rng.choice((3, 20, 200)), rng.choice(("fail", "fail", "go on"))
        self.parts, self.tasks = rng.choice((1, 2)), rng.choice((1, 2, 3))
        self.buckets = rng.choice((2, 4))
        self.file = _folder() / "results.db"
        self._turn_knobs()
        self.events = Events(self.inputs, rng.random() < 0.7, 0).some
        self.nodes = self._nodes()
        chosen = rng.sample(FAULTS, rng.randrange(1, len(FAULTS) + 1))
        self.faults = [one for one in chosen for _ in range(rng.choice((1, 1, 3)))]
        self.calm_ns = rng.choice((500 * MS, NS, 4 * NS))

    def _install(self) -> None:
        from tests.simulation.rules import nodes, places

        nodes.install()
        places.objects.clear()

    def _nodes(self) -> list[Any]:
        from tests.simulation.rules.nodes import RulesNode

        return [RulesNode(self.universe, f"rules-{number}", self) for number in range(self.rng.choice((1, 1, 2)))]

    def _turn_knobs(self) -> None:
        """Sizes that make things rare are drawn too."""
        from waterclock.streaming import owner
        from waterclock.streaming.state import bucket, compiled, plain
        from waterclock.streaming.topics import fetcher, offsets

        bucket.AWAKE = self.rng.choice((1, 2, 512))
        fetcher.CHUNK, offsets.LEAST_SHARE = self.rng.choice((2, 10_000)), self.rng.choice((1, 10_000))
        owner.LEASE_S = self.rng.choice((1.0, 3.0, 10.0))
        owner.RENEW_S = owner.LEASE_S / 6
        engine = self.rng.choice((compiled.engine_for, plain.PlainEngine))
        bucket.Bucket.engine_for = staticmethod(engine)

    def source(self) -> Any:
        from waterclock.streaming.toml.sources import topics

        columns = {"key": "string", "time": "timestamp", "id": "string", "number": "long", "type": "string",
                   "deliver": "timestamp", "promised": "timestamp", "amount": "long"}  # fmt: skip
        return topics("simulated:9092", [INPUT], columns=columns, per_batch=self.per_batch, on_loss=self.on_loss)

    async def begin(self, kafka: Kafka) -> None:
        await until_done(lambda: make(kafka, INPUT, self.inputs))
        for node in self.nodes:
            node.start()
        for number in range(self.rng.randrange(1, 3)):
            self.universe.spawn(Sender, f"events-{number}", pipeline=self)
        if self.rng.random() < 0.9:
            self.world.at(self.world.now + self.rng.randrange(self.calm_ns), self._strike)

    def _strike(self) -> None:
        if self.universe.quiet:
            return
        node = self.rng.choice(self.nodes)
        if node.alive:
            getattr(node, self.rng.choice(self.faults))()
        self.world.at(self.world.now + self.rng.randrange(50 * MS, self.calm_ns), self._strike)

    def _pacify(self) -> None:
        """All are up, and stay so."""
        for node in self.nodes:
            node.pacify()
        for broker in self.universe.nodes:
            broker.start()
        self.world.at(self.world.now + NS, self._pacify)

    # In the end

    async def verify(self, kafka: Kafka) -> None:
        self._pacify()
        for number in range(self.inputs):
            await until_done(lambda n=number: self._close(kafka, n))
        await self._until_closed()
        log = {number: (await whole(kafka, (INPUT, number))).records for number in range(self.inputs)}
        wanted = Expected(self.spec, self.spec_delay, log, self._cuts())
        self.world.log("verified", len(wanted.results), sorted(wanted.totals.items()))
        if not any(node.is_done for node in self.nodes):
            self.world.problem("stalled", f"the pipeline is not closed, behind {len(wanted.results)} batches")
        for kind in self.sinks:
            found = await self._in_topic(kafka) if kind == "topic" else self._in_sqlite()
            check(self.world, wanted, found)

    async def _until_closed(self) -> None:
        """Until no batch has come for too long: of a few records each, there may be a thousand."""
        batches, until = 0, self.world.now + PATIENCE_NS
        while not any(node.is_done for node in self.nodes) and self.world.now < until:
            await asyncio.sleep(1)
            if (done := sum(node.batches for node in self.nodes)) > batches:  # as many as there are records, at most
                batches, until = done, self.world.now + PATIENCE_NS

    async def _close(self, kafka: Kafka, number: int) -> tuple[int]:
        now_ms = self.world.wall_shift_ms + self.world.now // MS
        data = encoded([Record(0, now_ms, None, None, [(HEARTBEAT, CLOSING.encode())])])
        code, _ = await kafka.produce((INPUT, number), data)
        kafka.elsewhere(code)
        return (code,)

    def _cuts(self) -> list[dict[str, int]]:
        """Up to where each batch was to read."""
        from tests.simulation.rules.places import CHECKPOINT, objects

        found = []
        while (note := objects.get(f"{CHECKPOINT}/offsets/{len(found)}")) is not None:
            found.append(json.loads(note[0].splitlines()[2])[INPUT])
        return found

    async def _in_topic(self, kafka: Kafka) -> Found:
        from tests.simulation.rules.sinks import RESULTS

        results: dict[int, list[Out]] = {}
        for number in range(self.partitions):
            for record in (await whole(kafka, (RESULTS, number))).records:
                row = json.loads(record.value or b"")
                _add(results, row["batch_id"], row)
        letters = [json.loads(r.value or b"") for r in (await whole(kafka, (f"{RESULTS}_dead_letters", 0))).records]
        marks = [
            r for r in (await whole(kafka, (f"{RESULTS}_batches", 0))).records if (r.key or b"").startswith(b"query")
        ]
        last = json.loads(marks[-1].value or b"") if marks else {"batch_id": -1, "totals": {}}
        return Found(
            "the topic", results, [(one["file"], one["line"]) for one in letters], last["totals"], last["batch_id"]
        )

    def _in_sqlite(self) -> Found:
        import sqlite3
        from contextlib import closing

        with closing(sqlite3.connect(self.file)) as db:
            db.row_factory = sqlite3.Row
            results: dict[int, list[Out]] = {}
            for row in db.execute("SELECT * FROM results ORDER BY rowid"):
                _add(results, row["batch_id"], row)
            letters = [(row["file"], row["line"]) for row in db.execute("SELECT * FROM results_dead_letters")]
            totals: dict[str, int] = {}
            batches = list(db.execute("SELECT batch_id, counters FROM results_batches ORDER BY batch_id"))
            for row in batches:
                for name, count in json.loads(row["counters"]).items():
                    totals[name] = totals.get(name, 0) + count
            return Found("SQLite", results, letters, totals, batches[-1]["batch_id"] if batches else -1)


def _add(results: dict[int, list[Out]], batch: int, row: Any) -> None:
    due = us_of(row["due"] if row["due"].endswith("Z") else f"{row['due']}+00:00")
    out = Out(row["kind"], row["key"], row["rule"], due, row["source_id"])
    results.setdefault(batch, []).append(out)


def _folder() -> Path:
    """An empty folder, in memory if that has a file system."""
    process = os.getpid()
    if process not in _files:
        made = Path(tempfile.mkdtemp(prefix="waterclock-rules-", dir=_MEMORY if _MEMORY.is_dir() else None))
        _files[process] = made
        Finalize(None, shutil.rmtree, (made, True), exitpriority=0)  # atexit is not heard where it was forked off
    for old in _files[process].iterdir():
        old.unlink()
    return _files[process]


async def begin(universe: Any) -> None:
    universe.rules = SimulatedRules(universe)
    await universe.rules.begin(universe.kafka)


async def begin_local(universe: Any) -> None:
    from tests.simulation.rules.local import SimulatedLocal

    universe.rules = SimulatedLocal(universe)
    await universe.rules.begin(universe.kafka)


async def verify(universe: Any, kafka: Kafka) -> None:
    """In peace: all that was read came out once, as the rules say."""
    await universe.rules.verify(kafka)
