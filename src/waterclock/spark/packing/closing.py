"""What closes a stream that went through `rules.on_spark()`: a source beside its rows that says nothing until it is bound.

`on_spark` does not know the checkpoint with which its results will be written. So it adds this source, and `write_once`
binds it to the folder of the checkpoint's heartbeats; each file in there is a heartbeat of the end of time. A stream that
is written in another way is never bound, and never closes.

Rule 1: an offset is the number of heartbeats, so a batch that is run again has the same ones whatever lies in the folder.
        Beside it stands the number of buckets, where it is not 16: a checkpoint lives with one, and who writes without
        `write_once` would notice another one only when keys had looked for their state in the wrong place.
Rule 2: what `on_spark` was given goes with the stream, as an option of the source, and nowhere else: a program that makes
        streams without end keeps none of them.
Rule 3: only the planner, a Python beside the driver, looks into the folder: executors need not see it.
"""

from __future__ import annotations

import atexit
import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from waterclock.errors import UsageError
from waterclock.spark.packing.packs import TIMED, Packs, as_time, timed
from waterclock.streaming.buckets import BUCKETS
from waterclock.streaming.layout import END_US

try:
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow as _Ends

    _STARTS_ARE_TOLD = True
except ImportError:  # before PySpark 4.2

    class _Ends:  # type: ignore[no-redef]
        """A query that ends by itself wants nothing of a source."""

    # so another number is seen only when Spark has written a batch down that could never be run
    _STARTS_ARE_TOLD = False


if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NAME = "waterclock_close"
_BINDING = "binding"  # the option that names the file which names the folder
_COUNT = "buckets"
_SETTINGS = "settings"  # the option that holds an `OnSpark`
_numbers = count()


@dataclass(frozen=True, slots=True)
class OnSpark:
    """What one `on_spark` was given, which the state behind it depends on."""

    rules: str
    watermark_delay_us: int
    columns: str
    buckets: int


def closes(session: SparkSession, made: OnSpark) -> DataFrame:
    """Packed rows that close the stream which they are added to, once they are bound."""
    binding = str(_folder() / str(next(_numbers)))
    session.dataSource.register(ClosingSource)
    settings = json.dumps(asdict(made))
    return session.readStream.format(NAME).option(_BINDING, binding).option(_SETTINGS, settings).load()


def bindings_of(stream: DataFrame) -> Mapping[str, OnSpark]:
    """By its binding, each `on_spark` that `stream` went through."""
    plan = stream._jdf.queryExecution().analyzed()
    return {options.get(_BINDING): OnSpark(**json.loads(options.get(_SETTINGS))) for options in _options(plan)}


def bind(bindings: Mapping[str, OnSpark], heartbeats: Path) -> None:
    """From now on a file in the folder `heartbeats` closes the stream; UsageError if it is bound to another one."""
    for binding in map(Path, bindings):
        if binding.exists() and binding.read_text() != str(heartbeats):
            raise UsageError(
                f"this stream is being written with the checkpoint {Path(binding.read_text()).parent}, by which it closes: "
                "for a second sink at the same time, apply rules.on_spark() once more"
            )
        binding.write_text(str(heartbeats))


def unbind(bindings: Mapping[str, OnSpark], heartbeats: Path) -> None:
    """The end of `bind`; nothing if it is bound to another folder, or to none."""
    for binding in map(Path, bindings):
        if binding.exists() and binding.read_text() == str(heartbeats):
            binding.unlink()


@cache
def _folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="waterclock-close-"))
    atexit.register(shutil.rmtree, folder, True)
    return folder


def _options(node: Any) -> Iterator[Any]:
    if node.nodeName() == "StreamingRelationV2" and node.sourceName() == NAME:
        yield node.extraOptions()
    children = node.children()
    for place in range(children.size()):
        yield from _options(children.apply(place))


class ClosingSource(DataSource):  # type: ignore[misc]  # PySpark is untyped here
    """The source, as PySpark wants it."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return TIMED

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        return ClosingReader(self.options[_BINDING], json.loads(self.options[_SETTINGS])["buckets"])


class Beats(InputPartition):  # type: ignore[misc]  # PySpark is untyped here
    """Some heartbeats."""


class ClosingReader(_Ends, DataSourceStreamReader):  # type: ignore[misc]  # PySpark is untyped here
    """The planner's side, and `read`, which runs in workers."""

    def __init__(self, binding: str, count: int) -> None:
        self._binding, self._count = Path(binding), count

    def prepareForTriggerAvailableNow(self) -> None:
        """Nothing: what is there is there."""

    def initialOffset(self) -> dict[str, int]:
        return self._offset(0)

    def latestOffset(self, *start_and_limit: Any) -> dict[str, int]:  # PySpark 4.1 gives neither
        if start_and_limit:
            self._refuse_others(start_and_limit[0])  # before Spark writes down a batch that could not be run
        folder = Path(self._binding.read_text()) if self._binding.exists() else None
        return self._offset(sum(1 for _ in folder.glob("*.jsonl")) if folder else 0)

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        self._refuse_others(start)
        return [Beats(None)] if end["heartbeats"] > start["heartbeats"] else []

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield timed(Packs(), as_time(END_US))

    def _offset(self, heartbeats: int) -> dict[str, int]:
        says_count = _STARTS_ARE_TOLD and self._count != BUCKETS
        return {"heartbeats": heartbeats, **({_COUNT: self._count} if says_count else {})}

    def _refuse_others(self, start: dict[str, int]) -> None:
        before = start.get(_COUNT, BUCKETS)
        if before != self._count and _STARTS_ARE_TOLD:
            raise UsageError(
                f"the checkpoint keeps its state in {before} buckets, and on_spark() has {self._count} now: keys would not "
                f"find their state. Give on_spark(buckets={before}), or start with a new checkpoint and sink"
            )
