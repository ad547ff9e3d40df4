"""What Spark reports of a query's batches, one by one, on a thread of its own.

Rule 1: a batch's record comes as one text. PySpark's own listener asks Java for each of its numbers by itself, some hundred
        questions a batch, which took a tenth of a second of processor.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

from pyspark.sql.streaming import StreamingQueryListener
from pyspark.sql.streaming.listener import StreamingQueryProgress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
