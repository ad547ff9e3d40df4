"""The seam between a pipeline and where its rows come from: files of a folder, or topics of Kafka.

A stream gives packed rows (transform.py) whose watermark is set; a pipeline knows nothing else of it. Beside the rows of
the source itself, every stream reads the heartbeats of the checkpoint: the closing one is how a run to the end closes.

Promises of every stream: a batch that is run again reads the same rows, in the same order of `origin`; nothing that was
read is read by a later batch; nothing in the input makes a batch fail, what cannot be read becomes dead letters.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
from pyspark.sql import functions as F

from waterclock.rules.durations import datetime_us
from waterclock.spark import buckets, frames, operator
from waterclock.spark.checkpoint.folder import CLOSING
from waterclock.spark.transform import Packs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TIMED = f"ts timestamp, {operator.PACKED}"
FIRST = buckets.labels(operator.BUCKETS)[0]  # where what belongs to no key travels
CLOSING_US = datetime_us(datetime.fromisoformat(CLOSING))
END_US = 2**60  # behind every deadline, which may lie 10,000 years behind the year 9999, whatever the watermark's delay
NO_TIME = pa.scalar(None, frames.TIMESTAMP)
_FILES = "path string, modificationTime timestamp, length long, content binary"
# By default, files a week older than the newest one seen are passed over in silence; a clock may be centuries ahead.
_FOREVER = "3650000d"


class Stream(Protocol):
    """Where the rows of a pipeline come from. Called by one thread at a time."""

    unit: str  # what progress counts: "files", "records"

    def schema(self) -> pa.Schema:
        """The columns of an event."""

    def settings(self) -> dict[str, Any]:
        """What the stored state depends on, beside the rules and the watermark's delay."""

    def check(self) -> None:
        """Refuse, before anything is started or removed, what could not be read: UsageError or EnvironmentMissing."""

    def refuse_if_closed(self) -> None:
        """UsageError where something came after the closing heartbeat: all of it would be late."""

    def packed(self, session: SparkSession, live: bool) -> DataFrame:
        """The packed rows with their watermark. Not `live`: up to where the source ends now, and after the close not
        beyond what was read before it."""

    def trigger(self, live: bool) -> dict[str, Any]:
        """How a query on `packed` is triggered; where it ends by itself, {"availableNow": True}."""

    def progress(self, totals: Mapping[str, int]) -> tuple[int, int]:
        """(done, found) in `unit`, after a batch that left the sink with `totals`; raises nothing."""

    def vanished(self, batch_id: int, taken: Sequence[pa.Table]) -> list[pa.Table]:
        """Dead frames for what batch `batch_id` was to read and did not, by the frames that were `taken` of it."""

    def explain(self, story: str) -> str | None:
        """A sentence for a failure of the query, where `story`, all that Spark reports, is of this source's making."""

    def close(self) -> None: ...


# What streams share --------------------------------------------------------------------------------------------


def names_of(session: SparkSession, folder: Path, at_once: int, beat: bool) -> DataFrame:
    """The names of new files of a folder, as a stream; `beat` says that they are heartbeats."""
    stream = (
        session.readStream.format("binaryFile").schema(_FILES).options(maxFilesPerTrigger=at_once, maxFileAge=_FOREVER)
    )
    written = F.unix_micros("modificationTime").alias("written")
    # Spark takes a path as it stands, no %20 for a space, but reads it as a pattern
    literal = "file:" + re.sub(r"([\[\]{}*?\\])", r"\\\1", str(folder))
    return stream.load(literal).select("path", written, F.lit(beat).alias("beat"))


def end_of(us: int) -> int:
    """`us`, the largest time of a part of the source; END_US where that is a close, for deadlines of later days pass too.

    >>> end_of(7), end_of(CLOSING_US) == END_US
    (7, True)
    """
    return us if us < CLOSING_US else END_US


def timed(packs: Packs, latest: pa.Scalar) -> pa.RecordBatch:
    """What is packed so far, as rows of TIMED whose time is `latest`."""
    if not len(packs):
        packs.add(FIRST, None)  # nothing but heartbeats: a row without a frame still moves the watermark
    packed = packs.take()
    times = pa.repeat(latest, packed.num_rows).cast(frames.TIMESTAMP)
    return pa.RecordBatch.from_arrays([times, *packed.columns], ["ts", *packed.schema.names])
