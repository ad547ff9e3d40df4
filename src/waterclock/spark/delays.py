"""What is pending of the relay's delayed messages, as a batch DataFrame: the input less what is settled.

    origin      TOPIC-PARTITION-OFFSET of its request          id        what it can be cancelled by, or NULL
    partition   of the input                                   key, value, headers   as they will be delivered
    topic       that it goes to                                asked     cancel or replace, if one was sent and no relay
    due         when                                                     has answered it yet; NULL elsewhere

Rule 1: the rows are what both logs say, read as waterclock/relay/watching/view.py reads them: by its rules.
Rule 2: a frame shows one moment, that of its first action: Spark decides once which part a task reads. For another moment,
        call `pending` again.
Rule 3: a partition of the input is read by one task, which holds a byte for each of its records.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from waterclock.errors import EnvironmentMissing, UsageError, pip_install

try:
    from waterclock.kafka.admin import Admin
    from waterclock.relay.logs import Logs
    from waterclock.relay.watching.view import LogBounds, SeenMessage, View, bounds_of
except ImportError as error:
    raise EnvironmentMissing(f"{error.name} is missing: {pip_install('relay')}", door="relay") from error

from waterclock.kafka.settings import base_settings
from waterclock.relay.wire.request import KEPT
from waterclock.relay.wire.topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NAME: Final = "waterclock_pending"
CHUNK: Final = 10_000  # rows that go to Spark together
_HEADER = pa.struct([("key", pa.string()), ("value", pa.binary())])  # as Spark's own Kafka source names them
ROWS: Final = pa.schema(
    [
        ("origin", pa.string()),
        ("partition", pa.int32()),
        ("topic", pa.string()),
        ("due", pa.timestamp("us", "UTC")),
        ("id", pa.string()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.list_(_HEADER)),
        ("asked", pa.string()),
    ]
)
DDL: Final = (
    "origin string, partition int, topic string, due timestamp, id string, key binary, value binary, "
    "headers array<struct<key: string, value: binary>>, asked string"
)


def pending(
    bootstrap: str,
    topic: str = "delays",
    *,
    session: SparkSession | None = None,
    settings: Mapping[str, str] | None = None,
) -> DataFrame:
    """A row for each delayed message that is pending, of the relays of the input `topic` at the Kafka `bootstrap`.

    `session` is the active one if none is given; `settings` are librdkafka's, for TLS and SASL. Errors come with the
    first action: UsageError's words if `topic` is no relay's, or its settlements are not whole.
    """
    from pyspark.sql import SparkSession

    session = session or SparkSession.getActiveSession()
    if session is None:
        raise UsageError("There is no Spark session: start one, or give it as session=...")
    plan = PendingPlan(base_settings(bootstrap, settings or {}), Topics.of(topic))
    session.dataSource.register(_source_of(plan))
    return session.read.format(NAME).load()


@dataclass(frozen=True, slots=True)
class PendingPlan:
    """What the planner and the workers need to know."""

    settings: Mapping[str, Any] = field(repr=False)
    topics: Topics


class PendingPart(InputPartition):  # type: ignore[misc]  # PySpark is untyped here
    """A partition of both logs, from where to where."""

    def __init__(self, bounds: LogBounds) -> None:
        self.bounds = bounds


class PendingReader(DataSourceReader):  # type: ignore[misc]  # PySpark is untyped here
    """`partitions` runs in the planner, `read` in the workers; a client is made when one is needed."""

    def __init__(self, plan: PendingPlan) -> None:
        self._plan = plan

    def partitions(self) -> list[PendingPart]:
        logs = Logs(self._plan.settings)
        found = bounds_of(Admin(self._plan.settings), logs, self._plan.topics)
        logs.close()
        return [PendingPart(bounds) for bounds in found]

    def read(self, partition: PendingPart) -> Iterator[pa.RecordBatch]:
        logs = Logs(self._plan.settings)
        try:
            yield from PartView(logs, self._plan.topics, partition).rows()
        finally:
            logs.close()


class PartView:
    """The rows of one partition."""

    def __init__(self, logs: Logs, topics: Topics, part: PendingPart) -> None:
        self._view, self._name = View(logs, topics, part.bounds), f"{topics.input}-{part.bounds.number}"
        self._number = part.bounds.number

    def rows(self) -> Iterator[pa.RecordBatch]:
        """What is pending, in the order of the input; ConnectionLost if the logs were cut off meanwhile."""
        rows: list[tuple[Any, ...]] = []
        for seen in self._view.pending():
            rows.append(self._row(seen))
            if len(rows) == CHUNK:
                yield _batch(rows)
                rows.clear()
        yield _batch(rows)

    def _row(self, seen: SeenMessage) -> tuple[Any, ...]:
        """The values of ROWS."""
        request, message = seen.request, seen.message
        return (
            f"{self._name}-{seen.origin}",
            self._number,
            request.target,
            request.due_ms * 1_000,
            request.id.decode() or None,
            message.key(),
            message.value(),
            [{"key": name, "value": value} for name, value in request.headers if name not in KEPT],
            None if seen.asked is None else seen.asked.value,
        )


def _batch(rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True) if rows else ((),) * len(ROWS)
    return pa.RecordBatch.from_arrays(
        [pa.array(list(column), field.type) for column, field in zip(columns, ROWS, strict=True)], schema=ROWS
    )


def _source_of(plan: PendingPlan) -> type[DataSource]:
    """The data source of one call, with its plan inside: secrets stand in no option, which Spark would show."""

    class WaterclockPending(DataSource):  # type: ignore[misc]  # PySpark is untyped here
        @classmethod
        def name(cls) -> str:
            return NAME

        def schema(self) -> str:
            return DDL

        def reader(self, schema: Any) -> DataSourceReader:
            return PendingReader(plan)

    return WaterclockPending
