"""What Spark reports of a query's batches, one by one, on a thread of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming import StreamingQueryListener

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Report = Callable[[str, Any], None]  # a query's id, Spark's StreamingQueryProgress


class _Listener(StreamingQueryListener):  # type: ignore[misc]  # PySpark is untyped here
    def __init__(self, report: Report) -> None:
        self._report = report

    def onQueryStarted(self, event: Any) -> None: ...

    def onQueryProgress(self, event: Any) -> None:
        self._report(str(event.progress.id), event.progress)

    def onQueryIdle(self, event: Any) -> None: ...

    def onQueryTerminated(self, event: Any) -> None: ...


@contextmanager
def listening(session: SparkSession, report: Report) -> Iterator[None]:
    """Have Spark call `report` after each batch of any query of the session; a little later than the batch itself."""
    listener = _Listener(report)
    session.streams.addListener(listener)
    try:
        yield
    finally:
        session.streams.removeListener(listener)
