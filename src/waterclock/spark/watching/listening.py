"""What Spark tells of a query's batches, one by one, on a thread of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming import StreamingQueryListener

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Tell = Callable[[str, Any], None]  # a query's id, Spark's StreamingQueryProgress


class _Listener(StreamingQueryListener):  # type: ignore[misc]  # PySpark is untyped here
    def __init__(self, tell: Tell) -> None:
        self._tell = tell

    def onQueryStarted(self, event: Any) -> None: ...

    def onQueryProgress(self, event: Any) -> None:
        self._tell(str(event.progress.id), event.progress)

    def onQueryIdle(self, event: Any) -> None: ...

    def onQueryTerminated(self, event: Any) -> None: ...


@contextmanager
def listening(session: SparkSession, tell: Tell) -> Iterator[None]:
    """Have Spark call `tell` after each batch of any query of the session; a little later than the batch itself."""
    listener = _Listener(tell)
    session.streams.addListener(listener)
    try:
        yield
    finally:
        session.streams.removeListener(listener)
