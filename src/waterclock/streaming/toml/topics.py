"""The [source] table of a pipeline that reads topics of Kafka: parsed once, checked whole. The reference is made of this.

    [source]
    servers     the brokers' addresses, "a:9092,b:9092" or a list
    topics      the topics to read, each once
    value       what a record's value holds: "json" is an object with the columns of [source.columns]; "maxwell" and
                "debezium" are a change of a row of a table that it names, and then there are no columns
    columns     [source.columns]: each column's name = "string", "long", "int", "double", "boolean" or "timestamp"
    tables      of changes: which tables, as a shell's patterns such as "shop.*"; left out, all
    types       [source.types], of Debezium's changes without a schema: what a column's text means, price = "Decimal:2"
    record      [source.record]: key, headers, timestamp, topic, partition, offset = the column to put it in
    starting    where the first run begins: "earliest", "latest", a time, or offsets such as {orders = {0 = 5, 1 = 7}}
    ending      where a run without --live ends, in the same words: as it is when the run begins. A partition that offsets
                do not name is read to its end. For way = "connector" only "latest"
    per_batch   how many records a batch takes at most, a fair share from each partition
    way         what reads: "python" is confluent-kafka, "connector" Spark's own connector
    on_loss     what to do if records are gone before they were read: "fail" or "go on"
    client      [source.client]: settings of librdkafka; {env = "NAME"} takes a value from the environment
    connector   [source.connector]: options of Spark's own connector, for way = "connector"

What is done with the rows before the rules see them: steps.py.

Rule 1: what keeps the promise of exactly once cannot be set: those settings are waterclock's own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from waterclock.changes.debezium import check_types
from waterclock.durations import datetime_us
from waterclock.errors import UsageError
from waterclock.kafka.settings import WHY_READING
from waterclock.streaming.toml.steps import NAMES as STEPS
from waterclock.streaming.toml.steps import Step, step_from
from waterclock.streaming.toml.table import FileTable, one_of

NAMES = (
    "format", "servers", "topics", "value", "columns", "record", "starting", "ending", "per_batch", "way", "on_loss",
    "client", "connector", "tables", "types", *STEPS,
)  # fmt: skip
# part of a record -> the type of its column
RECORD_PARTS = {
    "key": "string",
    "headers": "string",
    "timestamp": "timestamp",
    "topic": "string",
    "partition": "long",
    "offset": "long",
}
Where = str | int | Mapping[str, Mapping[int, int]]  # "earliest", "latest", milliseconds since 1970, or offsets
_OWN = {
    **WHY_READING,
    "bootstrap.servers": "servers in [source] says it",
    "auto.offset.reset": "starting and on_loss in [source] say it",
}
_LEGAL_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_WHERE = "[source]"
VALUES = ("json", "maxwell", "debezium")


@dataclass(frozen=True, slots=True)
class Topics:
    """Topics of Kafka; new records are taken `per_batch` at a time, a fair share from each partition."""

    servers: str
    topics: tuple[str, ...]
    columns: Mapping[str, str]
    record: Mapping[str, str]
    starting: Where
    ending: Where
    per_batch: int
    way: str
    on_loss: str
    client: Mapping[str, str] = field(repr=False)  # may hold secrets
    connector: Mapping[str, str] = field(repr=False)
    format: str = "kafka"
    value: str = "json"
    tables: tuple[str, ...] = ()
    types: Mapping[str, str] = field(default_factory=dict)
    step: Step | None = None

    @property
    def changes(self) -> bool:
        """Whether records are changes of tables."""
        return self.value != "json"

    def all_columns(self) -> dict[str, str] | None:
        """Every column that the rules see, with its type; None behind a step, if only Spark knows them."""
        return self.read_columns() if self.step is None else None

    def read_columns(self) -> dict[str, str]:
        """Every column that records are read into, with its type: those of the value, then those of the record."""
        return {**self.columns, **{column: RECORD_PARTS[part] for part, column in self.record.items()}}


def topics_from(source: FileTable) -> Topics:
    """The topics of a table [source] whose keys are known; UsageError says what is wrong and where."""
    topics, value = _topics(source), source.one_of("value", VALUES, "json")
    columns = source.take("columns", dict) if value == "json" else {}
    _check_value(source, value)
    servers, client = source.client(_OWN)
    types = source.flat("types")
    try:
        check_types(types)
    except ValueError as error:
        raise UsageError(f"[source.types]: {error}") from None
    made = Topics(
        servers=servers,
        topics=topics,
        columns=columns,
        record=_record(source.take("record", dict, {}), columns),
        starting=_offsets("starting", source.get("starting", "earliest"), topics),
        ending=_offsets("ending", source.get("ending", "latest"), topics),
        per_batch=source.count("per_batch", 100_000),
        way=source.one_of("way", ("python", "connector"), "python"),
        on_loss=source.one_of("on_loss", ("fail", "go on"), "fail"),
        client=client,
        connector=source.flat("connector"),
        value=value,
        tables=tuple(source.texts("tables", [])),
        types=types,
        step=step_from(source),
    )
    _check_way(made)
    return made


def _check_value(source: Mapping[str, Any], value: str) -> None:
    """Changes bring columns and types of their own; rows have no tables to choose from."""
    strange = ("tables", "types") if value == "json" else ("columns", "record", *STEPS)
    for name in strange:
        if name in source:
            fits = "changes of tables" if value == "json" else "rows"
            raise UsageError(f"{_WHERE}: {name!r} is for {fits}, and value = {value!r} has none: leave it out")
    if "types" in source and value != "debezium":
        raise UsageError(f"{_WHERE}: 'types' is for value = \"debezium\": Maxwell's changes bring their types")


def _topics(source: FileTable) -> tuple[str, ...]:
    names = source.take("topics", list)
    for name in names:
        if not isinstance(name, str) or not _LEGAL_TOPIC.fullmatch(name) or name in {".", ".."}:
            raise UsageError(
                f"{_WHERE}: 'topics' must be names of topics (letters a to z, digits, '.', '_' and '-'), got {name!r}"
            )
    if not names or len(set(names)) < len(names):
        raise UsageError(f"{_WHERE}: 'topics' must name at least one topic, and each once, got {names!r}")
    return tuple(names)


def _record(parts: Mapping[str, Any], columns: Mapping[str, str]) -> dict[str, str]:
    for part, column in parts.items():
        one_of("[source.record]", "a part of a record", part, tuple(RECORD_PARTS))
        if not isinstance(column, str):
            raise UsageError(f"[source.record]: {part!r} must name a column, got {column!r}")
        if column in columns or list(parts.values()).count(column) > 1:
            raise UsageError(f"[source.record]: {part!r} names the column {column!r}, which is there already")
    return {part: parts[part] for part in RECORD_PARTS if part in parts}


# Where to begin, where to end ----------------------------------------------------------------------------------


def _offsets(name: str, given: Any, topics: tuple[str, ...]) -> Where:
    if isinstance(given, Mapping):
        return {topic: _partitions(name, topic, given[topic], topics) for topic in given}
    if given in ("earliest", "latest"):
        return str(given)
    try:
        moment = datetime.fromisoformat(given) if isinstance(given, str) else given
        if not isinstance(moment, datetime):
            raise ValueError
    except ValueError:
        raise UsageError(
            f'{_WHERE}: {name!r} must be "earliest", "latest", a time such as "2026-01-01T00:00:00Z", or offsets such '
            f"as {{orders = {{0 = 5}}}}, got {given!r}"
        ) from None
    return -(-datetime_us(moment) // 1000)


def _partitions(name: str, topic: str, given: Any, topics: tuple[str, ...]) -> dict[int, int]:
    if topic not in topics:
        raise UsageError(f"{_WHERE}: {name!r} names the topic {topic!r}; 'topics' has {', '.join(topics)}")
    if not isinstance(given, Mapping) or not all(
        str(partition).isdecimal() and len(str(partition)) < 10 and type(offset) is int and 0 <= offset < 2**63
        for partition, offset in given.items()
    ):
        raise UsageError(
            f"{_WHERE}: {name!r} must give offsets from 0 by partition, such as {{{topic} = {{0 = 5}}}}, got {given!r}"
        )
    return {int(partition): offset for partition, offset in given.items()}


# Settings of the clients ---------------------------------------------------------------------------------------


def _check_way(made: Topics) -> None:
    for name in made.connector:
        if why := _NOT_THE_CONNECTORS.get(name.lower()):
            raise UsageError(f"[source.connector]: {name!r} cannot be set: {why}")
    if made.way == "python" and made.connector:
        raise UsageError(
            '[source.connector] holds options of Spark\'s own connector: set way = "connector" in [source]'
        )
    if made.way == "connector" and made.ending != "latest":
        raise UsageError(
            "[source]: Spark's own connector reads to the end: leave out 'ending', or take way = \"python\""
        )
    if made.way == "connector" and (strange := [name for name in made.client if name not in TRANSLATED]):
        raise UsageError(
            f"[source.client]: {strange[0]!r} is a setting of librdkafka that Spark's own connector does not know: give "
            'it Kafka\'s own under [source.connector], such as "kafka.ssl.truststore.location"'
        )


_STARTS, _ENDS = "starting in [source] says it", "Spark's own connector reads to the end"
# options of Spark's own connector, whose names mean the same in any case
_NOT_THE_CONNECTORS = {
    **dict.fromkeys(("subscribe", "subscribepattern", "assign"), "topics in [source] says it"),
    **dict.fromkeys(("startingoffsets", "startingtimestamp", "startingoffsetsbytimestamp"), _STARTS),
    "startingoffsetsbytimestampstrategy": _STARTS,
    **dict.fromkeys(("endingoffsets", "endingtimestamp", "endingoffsetsbytimestamp"), _ENDS),
    "maxoffsetspertrigger": "per_batch in [source] says it",
    **dict.fromkeys(("minoffsetspertrigger", "maxtriggerdelay"), "a run would end before all is read"),
    "failondataloss": "on_loss in [source] says it",
    "includeheaders": "heartbeats are known by headers",
    **{f"kafka.{name}": why for name, why in _OWN.items()},
}

# settings of librdkafka that connector.py translates for Kafka's Java client
TRANSLATED = (
    "security.protocol",
    "sasl.mechanism",
    "sasl.mechanisms",
    "sasl.username",
    "sasl.password",
    "ssl.ca.location",
    "ssl.endpoint.identification.algorithm",
    "client.id",
)
