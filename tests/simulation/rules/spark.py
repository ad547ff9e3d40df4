"""Spark's loop of micro-batches over a topic, as far as a pipeline stands on it: a model of what MicroBatchExecution, its
shuffle and its state store do. All else is the product's.

A batch, numbered:

    1. plan      the source says how far it goes; nothing new: no batch
    2. offsets   offsets/N is written, if nobody else did
    3. taken     when the pipeline asks for the batch's frames: tasks read, rows are shuffled, and in each partition the
                 operator is called for each bucket that has rows, on the state of version N; then version N + 1 is stored
    4. the pipeline's own steps (sinks/base.py)
    5. commits   commits/N is written

A start goes on behind the last commit. A batch that has its offsets and no commit is run again: the same offsets, on the
same version of the state.

Rule 1: Spark's own watermark stays at none: rows of topics have no time for it. A live run closes by heartbeats alone, so
    the close of a run to the end, which goes by Spark's timers, is not here.
Rule 2: a version of a partition's state is one object; who writes it again puts it in the other's place, as Spark does.
"""

from __future__ import annotations

import json
import pickle
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
from pyspark.sql import Row

from tests.simulation.rules.places import StoredPlace
from waterclock.simulation.clocks import Uuid
from waterclock.simulation.world import MS, US, world
from waterclock.spark.packing.operator import RulesProcessor

IDLE_S = 0.1
_NO_WATERMARK = SimpleNamespace(getCurrentWatermarkInMs=lambda: 0)


class ConcurrentUpdate(Exception):
    """Spark's words where another query has written the same note."""


class Session:
    """What the pipeline asks of a SparkSession; it keeps the data source that is registered."""

    def __init__(self, tasks: int) -> None:
        self.source: Any = None
        self.sparkContext = SimpleNamespace(master="local[2]", defaultParallelism=tasks, getConf=dict)
        self.dataSource = SimpleNamespace(register=self._register)
        self.readStream = self

    def _register(self, source: Any) -> None:
        self.source = source

    def format(self, name: str) -> Session:
        return self

    def load(self) -> None:
        """The reader is made of the source."""


class Handle:
    """A bucket's state, as the operator is handed it."""

    def __init__(self, state: dict[str, Any]) -> None:
        self._state = state

    def getValueState(self, name: str, schema: Any) -> Any:
        state = self._state
        return SimpleNamespace(get=lambda: state.get("value"), update=lambda value: state.update(value=value))

    def getMapState(self, name: str, key: Any, value: Any) -> Any:
        blobs = self._state.setdefault("blobs", {})
        return SimpleNamespace(
            getValue=lambda key: blobs.get(key), updateValue=blobs.__setitem__, removeKey=lambda key: blobs.pop(key)
        )

    def registerTimer(self, ms: int) -> None: ...
    def deleteTimer(self, ms: int) -> None: ...


class Frames:
    """A batch's DataFrame: the plan is run when its rows are asked for."""

    def __init__(self, query: Query, number: int, start: Any, end: Any) -> None:
        self._run = lambda: query.run(number, start, end)
        self.sparkSession = query.session

    def toArrow(self) -> pa.Table:
        return pa.table({"frame": pa.array(self._run(), pa.binary())})


class Query:
    """A query of the pipeline's on its checkpoint, from its start on."""

    def __init__(self, pipeline: Any, reader: Any, session: Session, rules: Any, parts: int) -> None:
        self.pipeline, self.reader, self.session, self._rules, self._parts = pipeline, reader, session, rules, parts
        self.checkpoint, self.folder = pipeline.checkpoint, pipeline.checkpoint.path
        self._rng = world().stream("shuffle")
        if self.checkpoint.query_id() is None:
            self._write("metadata", {"id": str(Uuid.uuid4())})
        last, done = self.checkpoint.last_batch(), self.checkpoint.last_done()
        self.number = 0 if last is None else last + (last == done)
        self._is_planned = last is not None and last != done

    def step(self) -> bool:
        """A batch, if there is one."""
        start = self._ends(self.number - 1) if self.number else self.reader.initialOffset()
        if not self._is_planned:
            end = self.reader.latestOffset(start, self.reader.getDefaultReadLimit())  # 1
            if end == start:
                return False
            world().breathe("planned", 0.5, 10 * US, 20 * MS)
            about = {"batchWatermarkMs": 0, "conf": {"spark.sql.shuffle.partitions": str(self._parts)}}
            self._note("offsets", f"v1\n{json.dumps(about)}\n{json.dumps(end)}\n-")  # 2
            self._is_planned = True
        self.pipeline.take(Frames(self, self.number, start, self._ends(self.number)), self.number)  # 3 4
        world().breathe("noted", 0.5, 10 * US, 20 * MS)
        self._note("commits", "v1\n{}")  # 5
        self.number, self._is_planned = self.number + 1, False
        return True

    def run(self, number: int, start: Any, end: Any) -> list[bytes]:
        """The frames that come of a batch."""
        rows: dict[int, list[Row]] = {}
        for share in self.reader.partitions(start, end):
            for packed in self.reader.read(share):
                for row in packed.to_pylist():
                    rows.setdefault(row["bucket"], []).append(Row(origin=row["origin"], frame=row["frame"]))
        found: list[bytes] = []
        for part in range(self._parts):
            found += self._run_part(part, number, {b: r for b, r in rows.items() if b % self._parts == part})
        return found

    def _run_part(self, part: int, number: int, rows: dict[int, list[Row]]) -> list[bytes]:
        folder, found = self.folder / "state" / "0" / str(part), list[bytes]()
        states = pickle.loads((folder / f"{number}.zip").read_bytes()) if number else {}
        for bucket in sorted(rows):
            self._rng.shuffle(rows[bucket])  # as a shuffle brings them
            processor = RulesProcessor(self._rules)
            processor.init(Handle(states.setdefault(bucket, {})))
            found += [row.frame for row in processor.handleInputRows((bucket,), iter(rows[bucket]), _NO_WATERMARK)]
            world().breathe("stepped", 0.1, 10 * US, 5 * MS)
        (folder / f"{number + 1}.zip").write_whole(pickle.dumps(states))
        return found

    def _ends(self, number: int) -> Any:
        return json.loads((self.checkpoint.offsets(number) or "").splitlines()[2])

    def _write(self, name: str, what: Any) -> None:
        (self.folder / name).write_whole(json.dumps(what).encode())

    def _note(self, log: str, text: str) -> None:
        """As HDFSMetadataLog does on a store of objects: it looks, and writes then."""
        place: StoredPlace = self.folder / log / str(self.number)
        if place.exists():
            raise ConcurrentUpdate(f"{log}/{self.number} is there: multiple streaming jobs detected")
        place.write_whole(text.encode())
