"""The seam between a pipeline and where its rows come from: files of a folder, or topics of Kafka.

A stream gives packed rows (packs.py) whose watermark is set; a pipeline knows nothing else of it. Beside the rows of
the source itself, every stream reads the heartbeats of the checkpoint: the closing one is how a run to the end closes.

Promises of every stream: a batch that is run again reads the same rows, in the same order of `origin`; nothing that was
read is read by a later batch; nothing in the input makes a batch fail, what cannot be read becomes dead letters.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as F

from waterclock.rules.model import Rules
from waterclock.streaming import frames
from waterclock.streaming.places.place import Place, is_remote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_FILES = "path string, modificationTime timestamp, length long, content binary"
# By default, files a week older than the newest one seen are passed over in silence; a clock may be centuries ahead.
FOREVER = "3650000d"


class Stream(ABC):
    """Where the rows of a pipeline come from. Called by one thread at a time."""

    unit = "rows"  # what progress counts: "files", "records"
    closes = True  # whether a heartbeat of the checkpoint can close it
    reads_again = (
        False  # whether a batch can be read once more when Spark has noted it as done: nothing is given back by then
    )
    packs_itself = False  # whether rows leave the source packed, and none passes through the JVM by itself

    def begin(self, session: SparkSession) -> None:  # noqa: B027
        """Find out what only Spark knows; again is the same. UsageError if that cannot be read."""

    @abstractmethod
    def schema(self) -> pa.Schema | None:
        """The columns of an event; None if only Spark knows them, and `begin` did not look yet."""

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """What the stored state depends on, beside the rules and the watermark's delay."""

    def check(self) -> None:  # noqa: B027
        """Refuse, before anything is started or removed, what could not be read: UsageError or EnvironmentMissing."""

    def refuse_if_closed(self) -> None:  # noqa: B027
        """UsageError if something came after the closing heartbeat: all of it would be late. A source that cannot know
        that yet says nothing: the first batch that has rows is refused."""

    @abstractmethod
    def packed(self, session: SparkSession, live: bool, count: int) -> DataFrame:
        """The packed rows, in `count` buckets, with their watermark. Not `live`: up to where the source ends now, and after
        the close not beyond what was read before it."""

    def trigger(self, live: bool) -> dict[str, Any]:
        """How a query on `packed` is triggered; if it ends by itself, {"availableNow": True}."""
        return {}

    def progress(self, totals: Mapping[str, int]) -> tuple[int, int]:
        """(done, found) in `unit`, after a batch that left the sink with `totals`; raises nothing. How much more there is
        of rows, only Spark's source knows."""
        done = totals.get("events", 0)
        return done, done

    def vanished(self, batch_id: int, taken: Sequence[pa.Table]) -> list[pa.Table]:
        """Dead frames for what batch `batch_id` was to read and did not, by the frames that were `taken` of it."""
        return []

    def explain(self, story: str) -> str | None:
        """A sentence for a failure of the query, if `story`, all that Spark reports, is of this source's making."""
        return None

    def close(self) -> None:  # noqa: B027
        """End of use."""


# What streams share --------------------------------------------------------------------------------------------


def literal(folder: Place | str) -> str:
    """A folder's path as Spark takes it: as it stands, no %20 for a space, but reads it as a pattern.

    >>> from pathlib import Path
    >>> literal(Path("/in/a [1]"))
    'file:/in/a \\\\[1\\\\]'
    """
    return ("" if is_remote(folder) else "file:") + re.sub(r"([\[\]{}*?\\])", r"\\\1", str(folder))


def names_of(session: SparkSession, folder: Place, at_once: int, beat: bool, *more: str) -> DataFrame:
    """The names of new files of a folder, as a stream; `beat` says that they are heartbeats. `more` columns of Spark's may
    stand beside them, such as "content"."""
    stream = (
        session.readStream.format("binaryFile").schema(_FILES).options(maxFilesPerTrigger=at_once, maxFileAge=FOREVER)
    )
    written = F.unix_micros("modificationTime").alias("written")
    return stream.load(literal(folder)).select("path", written, F.lit(beat).alias("beat"), *more)


# What is fixed while a checkpoint lives ---------------------------------------------------------------------------


def results_schema(stream: Stream, rules: Rules | None) -> pa.Schema | None:
    """The columns of a pipeline's results; None if only Spark knows those of its events, and `begin` did not look yet."""
    event = stream.schema()
    if event is None or rules is None:
        return event
    return frames.result_schema(event.field(rules.key).type, event)
