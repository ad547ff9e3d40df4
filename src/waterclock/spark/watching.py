"""What a running pipeline reports beside the record of streaming/statistics.py: how far it is behind, what Spark reports.

How much of its source it has not taken yet is looked up at the moment when it matters: also while a batch is stuck.

    files     names in the folder that are more than the files taken, as {"": 3}
    topics    records by partition, from where the last batch ended to where the partition ends now, as {"orders/0": 12}

Rule 1: it has a connection of its own: the pipeline's is used by another thread.
Rule 2: it does not wait long: a broker that does not answer (5 s a question) leaves the value unknown, and no other.
Rule 3: Spark's record of a batch comes as one text, on a thread of its own. PySpark's own listener asks Java for each
        of its numbers by itself, some hundred questions a batch, which took a tenth of a second of processor.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

from pyspark.sql.streaming import StreamingQueryListener
from pyspark.sql.streaming.listener import StreamingQueryProgress

from waterclock.errors import WaterclockError
from waterclock.spark.checkpoint.folder import Checkpoint
from waterclock.streaming.files.folder import count_files
from waterclock.streaming.toml.config import Files
from waterclock.streaming.toml.topics import Topics
from waterclock.streaming.topics.offsets import from_json

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from waterclock.kafka.client import Client

_PATIENCE_S = 1.0


class Behind:
    """What a pipeline's source has and no batch took. Asked by one thread at a time."""

    def __init__(self, source: object, checkpoint: Checkpoint) -> None:
        self._source, self._checkpoint = source, checkpoint
        self._client: Client | None = None

    def of(self, totals: Mapping[str, int] | None) -> Mapping[str, int] | None:
        """By place, after batches that left the sink with `totals`; None if it cannot be known now."""
        if totals is None:
            return None
        try:
            if isinstance(self._source, Files):
                return {"": max(0, count_files(self._source.path) - totals.get("files", 0))}
            return self._records(self._source) if isinstance(self._source, Topics) else None
        except (WaterclockError, OSError):  # a folder behind a URI, too
            return None

    def close(self) -> None:
        """End its connection."""
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def _records(self, topics: Topics) -> Mapping[str, int] | None:
        from waterclock.streaming.topics.fetcher import client_for, settings_of

        done = from_json(self._checkpoint.source_offsets())
        if not done:
            return None  # before the first batch, "starting" decides, and it is not known here
        if self._client is None:
            self._client = client_for(settings_of(topics), _PATIENCE_S)
        ends = self._client.ends(sorted({*done, *self._client.partitions(topics.topics)}))
        return {f"{topic}/{n}": max(0, end - done.get((topic, n), 0)) for (topic, n), end in sorted(ends.items())}


Report = Callable[[str, Any], None]  # a query's id, Spark's StreamingQueryProgress


class _JavaListener:
    """What Java calls; the names are Spark's."""

    def __init__(self, report: Report) -> None:
        self._report = report

    def onQueryStarted(self, event: Any) -> None: ...

    def onQueryProgress(self, event: Any) -> None:
        progress = StreamingQueryProgress.fromJson(json.loads(event.progress().json()))
        self._report(str(progress.id), progress)

    def onQueryIdle(self, event: Any) -> None: ...

    def onQueryTerminated(self, event: Any) -> None: ...

    class Java:
        implements: ClassVar = ["org.apache.spark.sql.streaming.PythonStreamingQueryListener"]


class _PythonListener(StreamingQueryListener):  # type: ignore[misc]  # PySpark is untyped here
    """What PySpark knows of it: the same in Java."""

    def __init__(self, in_java: Any) -> None:
        self._jlistenerobj = in_java

    def onQueryStarted(self, event: Any) -> None: ...

    def onQueryProgress(self, event: Any) -> None: ...

    def onQueryIdle(self, event: Any) -> None: ...

    def onQueryTerminated(self, event: Any) -> None: ...


@contextmanager
def listening(session: SparkSession, report: Report) -> Iterator[None]:
    """Have Spark call `report` after each batch of any query of the session; a little later than the batch itself."""
    in_java = session._jvm.org.apache.spark.sql.streaming.PythonStreamingQueryListenerWrapper(_JavaListener(report))
    listener = _PythonListener(in_java)
    session.streams.addListener(listener)
    try:
        yield
    finally:
        session.streams.removeListener(listener)
