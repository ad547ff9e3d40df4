"""What is pending of the relay's delayed messages, as a batch DataFrame: the input less what is settled.

    origin      TOPIC-PARTITION-OFFSET of its request          id        what it can be cancelled by, or NULL
    partition   of the input                                   key, value, headers   as they will be delivered
    topic       that it goes to                                asked     cancel or replace, where one was sent and no relay
    due         when                                                     has answered it yet; NULL elsewhere

Rule 1: everything is read from Kafka, as a new owner does (relay/take_over.py). No relay need run, no file of one is read.
Rule 2: where the input ends is asked before where TOPIC.settled does: of the requests up to that end, all are told that
        were settled until then. The other way round, what is delivered in between would look pending.
Rule 3: a frame shows one moment, that of its first action: Spark asks once which part a task reads. For another moment,
        call `pending` again.
Rule 4: a cancel without an answer may come too late. So its message is pending, and `asked` says what was asked for.
Rule 5: a partition of the input is read by one task, which holds a byte for each of its records.
Rule 6: what was moved on stands at its last copy, and nothing pending stands below what is swept (relay/moves.py). Of what
        was moved on between the two questions of rule 2, the copy stands behind that end: it is read to there.
Rule 7: what was cut off TOPIC.settled is known through a snapshot that stands there (relay/settled.py); without one that
        can be read, the view is refused. Where a relay cuts off what is being read, it is an error, and no row is left out.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from waterclock.errors import ConnectionLost, EnvironmentMissing, UsageError, pip_install

try:
    from waterclock.kafka.admin import Admin
    from waterclock.relay.headers import request_in
    from waterclock.relay.logs import Logs
    from waterclock.relay.settled import SettledOrigins, told_by
except ImportError as error:
    raise EnvironmentMissing(f"{error.name} is missing: {pip_install('relay')}") from error

from waterclock.kafka.settings import base_settings
from waterclock.relay.request import KEPT, Action, BadRequest, Request, request_of
from waterclock.relay.settlement import NoSettlement, mark_of
from waterclock.relay.topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger("waterclock.spark")
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

    `session` is the active one where none is given; `settings` are librdkafka's, for TLS and SASL. Errors come with the
    first action: UsageError's words where `topic` is no relay's, or its settlements are not whole.
    """
    from pyspark.sql import SparkSession

    asked = session or SparkSession.getActiveSession()
    if asked is None:
        raise UsageError("There is no Spark session: start one, or give it as session=...")
    plan = Plan(base_settings(bootstrap, settings or {}), Topics.of(topic))
    asked.dataSource.register(_source_of(plan))
    return asked.read.format(NAME).load()


@dataclass(frozen=True, slots=True)
class Plan:
    """What the planner and the workers need to know."""

    settings: Mapping[str, Any] = field(repr=False)
    topics: Topics


class Part(InputPartition):  # type: ignore[misc]  # PySpark is untyped here
    """A partition of both logs, from where to where; `mark` is that of the input in settlements."""

    def __init__(self, number: int, input: tuple[int, int], settled: tuple[int, int], mark: bytes) -> None:
        self.number, self.input, self.settled, self.mark = number, input, settled, mark


class Command(NamedTuple):
    """A cancel or a replace that no relay has answered."""

    offset: int
    action: Action


class PendingReader(DataSourceReader):  # type: ignore[misc]  # PySpark is untyped here
    """`partitions` runs in the planner, `read` in the workers; a client is made where one is needed."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def partitions(self) -> list[Part]:
        topics, admin, logs = self._plan.topics, Admin(self._plan.settings), Logs(self._plan.settings)
        count = _count(admin.topics(), topics)
        mark = mark_of(admin.topic_id(topics.input))
        inputs = [logs.bounds(topics.input, number) for number in range(count)]  # rule 2: these first
        settled = [logs.bounds(topics.settled, number) for number in range(count)]
        logs.close()
        return [Part(number, inputs[number], settled[number], mark) for number in range(count)]

    def read(self, partition: Part) -> Iterator[pa.RecordBatch]:
        logs = Logs(self._plan.settings)
        try:
            yield from PartView(logs, self._plan.topics, partition).rows()
        finally:
            logs.close()


def _count(there: Mapping[str, int], topics: Topics) -> int:
    """How many partitions both have; UsageError where they are not a relay's."""
    for topic in (topics.input, topics.settled):
        if topic not in there:
            raise UsageError(
                f"There is no topic {topic}: a relay makes {topics.input} and {topics.settled} when it starts. "
                "Name the topic that its requests are written to."
            )
    if there[topics.input] != there[topics.settled]:
        raise UsageError(
            f"{topics.input} and {topics.settled} differ in partitions: `waterclock relay` says the remedy."
        )
    return there[topics.input]


class PartView:
    """What is pending of one partition: settled first, then the commands without an answer, then the rows."""

    def __init__(self, logs: Logs, topics: Topics, part: Part) -> None:
        self._logs, self._topics, self._part = logs, topics, part
        self._low, self._end = part.input
        self._settled = SettledOrigins(part.mark, part.settled[0])
        self._asked: dict[bytes, list[Command]] = {}

    def rows(self) -> Iterator[pa.RecordBatch]:
        """What is pending, in the order of the input; ConnectionLost where the logs were cut off meanwhile."""
        try:
            yield from self._rows()
        except ConnectionLost as error:
            for topic, (low, _) in ((self._topics.input, self._part.input), (self._topics.settled, self._part.settled)):
                if self._logs.bounds(topic, self._part.number)[0] > low:
                    raise ConnectionLost(
                        f"{topic}-{self._part.number} was cut off by a relay while it was read: call `pending` again."
                    ) from error
            raise

    def _rows(self) -> Iterator[pa.RecordBatch]:
        self._read_settled()
        for origin, message, request in self._requests(max(self._low, self._settled.answered), self._end):
            if request.action is not Action.SCHEDULE and origin == message.offset():
                self._asked.setdefault(request.id, []).append(Command(origin, request.action))
        rows: list[tuple[Any, ...]] = []
        moves = self._settled.moves
        for origin, message, request in self._requests(
            max(self._low, moves.swept), max(self._end, moves.end)
        ):  # rule 6
            if request.action is not Action.CANCEL and origin < self._end and not self._settled.has(origin):
                rows.append(self._row(origin, message, request))
            if len(rows) == CHUNK:
                yield _batch(rows)
                rows.clear()
        yield _batch(rows)

    def _read_settled(self) -> None:
        """All that is known to be settled; what no relay wrote so is passed over, as a relay does."""
        topic, (low, end) = self._topics.settled, self._part.settled
        for message in self._logs.read(topic, self._part.number, low, end):
            place = f"{topic}-{self._part.number}-{message.offset()}"
            try:
                self._settled.take(told_by(message.value() or b""))
            except NoSettlement as error:
                if error.later:
                    raise UsageError(
                        f"{place} is written by a later relay: {error}. Read it with that version."
                    ) from None
                log.warning("%s is no settlement, and is passed over: %s", place, error)
        if not self._settled.is_known:
            raise UsageError(
                f"{topic}-{self._part.number} begins at offset {low}, and no snapshot of what was settled before can be "
                "read: what is pending is not known from the logs. Ask `waterclock relay ls`."
            )

    def _requests(self, start: int, end: int) -> Iterator[tuple[int, Any, Request]]:
        """Origin, record and request from `start` on; a bad one is none, whether it has its dead letter or not."""
        for message in self._logs.read(self._topics.input, self._part.number, start, end):
            offset = message.offset()
            try:
                if self._settled.moves.is_copy(offset):
                    origin, headers, timestamp_ms = self._settled.moves.asked(message)
                    yield origin, message, request_of(headers, timestamp_ms)
                else:
                    yield offset, message, request_in(message)
            except BadRequest:
                continue

    def _row(self, origin: int, message: Any, request: Request) -> tuple[Any, ...]:
        """The values of ROWS."""
        return (
            f"{self._topics.input}-{self._part.number}-{origin}",
            self._part.number,
            request.target,
            request.due_ms * 1_000,
            request.id.decode() or None,
            message.key(),
            message.value(),
            [{"key": name, "value": value} for name, value in request.headers if name not in KEPT],
            _first_behind(origin, self._asked.get(request.id, ())) if request.id else None,
        )


def _batch(rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True) if rows else ((),) * len(ROWS)
    return pa.RecordBatch.from_arrays(
        [pa.array(list(column), field.type) for column, field in zip(columns, ROWS, strict=True)], schema=ROWS
    )


def _first_behind(offset: int, commands: Iterable[Command]) -> str | None:
    """What was asked for first of a message at `offset`: a command is for what stands before it."""
    return next((command.action.value for command in commands if command.offset > offset), None)


def _source_of(plan: Plan) -> type[DataSource]:
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
