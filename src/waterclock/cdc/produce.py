"""Exactly once into Kafka: changes and the position they lead to in one transaction, and the topics of a capture.

    1. fence: whoever wrote under this name before can write no more, and what it left open is thrown away
    2. read the position that its last transaction stored
    3. begin
    4. send the changes of whole source transactions, and what could not be read of them to the topic of dead letters
       a table's schema before the first of them that has it, to NAME.schema
    5. send the position after them
    6. commit

A crash between any two leaves Kafka as it was after the last 6, for whoever reads what is committed
(isolation.level=read_committed); the next start goes through 1 and 2 and reads the source again from there. Steps 1, 3, 4
and 6 are those of kafka/transactions.py.

The topics: one for the changes, or one for each table (`shop` and the table till.item make `shop.till.item`); a compacted
one for the position, `NAME.position`; one for dead letters; `NAME.snapshot` is that of requests.py.

Why the position lies in a compacted topic of its own and not in a consumer group's offsets: a group's offsets expire
when nobody commits for a week, and a stored offset holds 4 KB, which the GTID set of an old MySQL outgrows. Why every
capture has a topic for itself: a second one's open transaction would hide the first one's last position at its start.

Rule 1: what is sent between a `begin` and a `finish` is read together or not at all.
Rule 2: one transaction goes over all topics, however many tables have one of their own.
Rule 3: `order="global"` sends everything to partition 0; `order="key"` lets the key choose, by Kafka's own hash. A
        TRUNCATE goes to every partition: each has rows that it ends.
Rule 4: a topic that is missing is made; one that is there is never changed.
Rule 5: the position is the last one that was committed. It is read behind step 1, so nothing is open.
Rule 6: in a table's topic letters, digits, `_` and `-` stand as they are. Another character becomes `_`, and behind such a
        name stands a sum of what it was: `a b` and `a.b` are two topics, and each is the same after every start.
Rule 7: who is fenced may go on under the name if nobody else has got anything done: Kafka says the same of a transaction
        that was open for longer than it waits (the broker or this machine was away).
Rule 8: two tables whose topics Kafka takes for one (`.` and `_` are the same in names of metrics) are refused, and so is
        a name that is too long: never are two tables in one topic.
Rule 9: Kafka's limits are those of a batch, and librdkafka fills one up to what it is told, whatever a topic takes. Where
        that is less, no more is on its way to the topic than it takes.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from confluent_kafka import KafkaError

from waterclock.cdc.form import Form
from waterclock.cdc.part import OlderPart
from waterclock.cdc.position import Position
from waterclock.cdc.schemas import ColumnsAltered, SchemaKeeper
from waterclock.cdc.source import DeadLetter, Record
from waterclock.cdc.stored import last_position
from waterclock.changes.maxwell import COMPLETE, TRUNCATE, MaxwellMessage
from waterclock.changes.table_schema import SchemaHistory, TableSchema
from waterclock.clock import Clock
from waterclock.errors import ConnectionLost, UsageError, WaterclockError
from waterclock.kafka.admin import Admin, there_just_now
from waterclock.kafka.client import whole
from waterclock.kafka.errors import Meaning, meaning_of, words_of
from waterclock.kafka.patience import CALL_S
from waterclock.kafka.settings import SENDING, base_settings
from waterclock.kafka.transactions import BY_KEY, TransactionalProducer

KEY = b"position"
ORDERS = ("key", "global")
ONE, PER_TABLE = "one", "per-table"
_ODD = re.compile(r"[^a-zA-Z0-9_-]")
_LONGEST = 249
_USUAL_BATCH = 1_000_000  # librdkafka's own
_AROUND = 200  # bytes of a record and its batch beside key and value
_LIMITS = ("max.message.bytes", "segment.bytes")
COMPACTED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1", "segment.bytes": "16777216"}
# What is on its way is what a transaction takes of memory, however large. A commit waits for no batch; and librdkafka's
# thread asks without a pause through the last millisecond of each wait, which with short waits is a third of all CPU.
_WAITING = {"queue.buffering.max.messages": 30_000, "linger.ms": 100}
_TIMEOUT_MS = 300_000  # so long may a transaction stay open: a million changes take a tenth of it


@dataclass(frozen=True, slots=True)
class Target:
    """Where changes go: `order` is "key" (as many partitions as one likes) or "global" (one). `dead_letters` is the topic
    of what cannot be read, "" if the capture stops at such a record. `topics` is "one", or "per-table": then `topic` is
    the beginning of their names."""

    servers: str
    topic: str
    order: str = "key"
    partitions: int = 4
    dead_letters: str = ""
    topics: str = ONE

    def __post_init__(self) -> None:
        if self.topics not in (ONE, PER_TABLE):
            raise ValueError(f"topics must be {ONE} or {PER_TABLE}, got {self.topics!r}")
        if self.order not in ORDERS:
            raise ValueError(f"order must be one of {', '.join(ORDERS)}, got {self.order!r}")
        if self.partitions < 1:
            raise ValueError(f"partitions must be 1 or more, got {self.partitions}")


def topic_of(prefix: str, database: str, table: str) -> str:
    """The name; UsageError if it would be too long for Kafka.

    >>> topic_of("shop", "till", "item"), topic_of("shop", "till", "größe")
    ('shop.till.item', 'shop.till.gr__e-5bd3a989')
    """
    name = f"{prefix}.{_legal(database)}.{_legal(table)}"
    if len(name) > _LONGEST:
        raise UsageError(
            f"The topic of {database}.{table} would be {name[:40]}..., with {len(name)} letters, and Kafka takes "
            f"{_LONGEST}. Leave the table out (--tables), or give the topics a shorter beginning (--to)."
        )
    return name


def _legal(name: str) -> str:
    odd = _ODD.sub("_", name)
    return name if odd == name else f"{odd}-{zlib.crc32(name.encode()):08x}"


class TopicNames:
    """The topics of tables that were met so far; `taken` are topics of the capture that are no table's."""

    def __init__(self, prefix: str, taken: Iterable[str]) -> None:
        self._prefix = prefix
        self._owners = {_alike(topic): f"the topic {topic} of this capture" for topic in taken if topic}

    def of(self, database: str, table: str) -> str:
        """The topic of a table; UsageError if another one has it."""
        topic = topic_of(self._prefix, database, table)
        owner = self._owners.setdefault(_alike(topic), f"the table {database}.{table}")
        if owner != f"the table {database}.{table}":
            raise UsageError(
                f"The table {database}.{table} would have the topic {topic}, which Kafka does not tell from that of {owner}"
                ". Leave one of them out (--tables), and capture it under another --name to another topic."
            )
        return topic


def _alike(topic: str) -> str:
    return topic.replace(".", "_")


class CaptureTopics:
    """Where records go, each topic made if it is missing. `state` is the one of the position."""

    def __init__(
        self, settings: Mapping[str, Any], target: Target, state: str, schemas: str, clock: Clock | None = None
    ) -> None:
        self._admin, self._target = Admin(settings, clock=clock), target
        self._there = self._admin.topics()
        if target.dead_letters in (target.topic, state, schemas):
            raise UsageError(
                f"The topic of dead letters has to be one of its own, and {target.dead_letters} is none: name another."
            )
        is_there = state in self._there or self._admin.make(state, 1, COMPACTED) is not None
        if is_there and (policy := self._settings(state)["cleanup.policy"]) != "compact":
            # without its position a capture would begin again
            raise UsageError(
                f"The topic {state} keeps the capture's position and has cleanup.policy={policy}, so it would forget it. "
                "Set it to compact."
            )
        if target.dead_letters:
            self._partitions(target.dead_letters, 1)
        self._schemas = schemas
        self._names = TopicNames(target.topic, (state, target.dead_letters, schemas))
        self._known: dict[tuple[str, str], tuple[str, int]] = {}
        self._limits: dict[str, int] = {}
        self._one = None if target.topics == PER_TABLE else (target.topic, self._of_changes(target.topic))

    def of(self, database: str, table: str) -> tuple[str, int]:
        """The topic of a table's changes, and how many partitions it has."""
        if self._one is not None:
            return self._one
        found = self._known.get((database, table))
        if found is None:
            topic = self._names.of(database, table)
            found = self._known[database, table] = (topic, self._of_changes(topic))
        return found

    def make(self, topic: str) -> None:
        """A topic that is no table's, with one partition, if it is missing."""
        self._partitions(topic, 1)

    def of_schemas(self) -> bool:
        """Make the topic of schemas; the value is whether it was there."""
        was_there = self._schemas in self._there
        if not was_there:
            was_there = self._admin.make(self._schemas, 1, COMPACTED) is not None
            self._there[self._schemas] = 1
        return was_there

    def limit(self, topic: str) -> int:
        """How many bytes a batch for a topic may have: a segment takes none that is larger than it."""
        if topic not in self._limits:
            settings = self._settings(topic)
            self._limits[topic] = min(int(settings[name]) for name in _LIMITS if name in settings)
        return self._limits[topic]

    def _settings(self, topic: str) -> dict[str, str]:
        """Of a topic that was there. EnvironmentMissing if it is not: the next pass makes it."""
        with there_just_now():
            return self._admin.settings(topic)

    def _of_changes(self, topic: str) -> int:
        ordered = self._target.order == "global"
        found = self._partitions(topic, 1 if ordered else self._target.partitions)
        if ordered and found != 1:
            raise UsageError(
                f"The topic {topic} has {found} partitions, and a global order needs exactly one. Choose another topic, or "
                "--order key: then the changes of one row keep their order."
            )
        return found

    def _partitions(self, topic: str, wanted: int) -> int:
        if topic not in self._there:
            self._there[topic] = self._admin.make(topic, wanted) or wanted
        return self._there[topic]


class NameLost(UsageError):
    """Kafka takes no more of this process. Rule 7: it may go on if `Publisher.refuse_if_overtaken` does not say no."""


class Publisher:
    """Writes changes under a name that only one process at a time can have; the steps are the file's.

    `client` are librdkafka's settings, for TLS and SASL. `stored` is the position that Kafka holds, None if there is
    none yet; `uncommitted` counts the records that were sent and not committed.
    """

    def __init__(
        self,
        target: Target,
        name: str,
        client: Mapping[str, Any] | None = None,
        clock: Clock | None = None,
        form: Form | None = None,
    ) -> None:
        self._form, self._beat_ms, self._clock = form, 1, clock
        self._target, self.name, self._state_topic = target, name, f"{name}.position"
        self.settings = settings = base_settings(target.servers, client or {})
        self._schemas: SchemaKeeper | None = None  # made with the first schema
        self._topics = CaptureTopics(settings, target, self._state_topic, f"{name}.schema", clock)
        timed = {**settings, "transaction.timeout.ms": _TIMEOUT_MS}
        self._batch = int(settings.get("batch.size", _USUAL_BATCH))
        self._sent: dict[str, int] = {}  # to topics that take less, in bytes: what may be on its way
        waits = {**SENDING, **_WAITING}
        self._producer = TransactionalProducer(
            timed, f"waterclock-cdc-{name}", partial(_error_of, target, name), clock, waits
        )
        self.uncommitted = 0
        self.fence()
        self.stored = last_position(settings, self._state_topic, clock)  # 2

    def fence(self) -> None:
        """Step 1."""
        self._producer.fence(self._state_topic)

    def begin(self) -> None:
        """Step 3, if no transaction is open."""
        self._producer.begin()

    def send(self, record: Record) -> None:
        """Step 4."""
        if not self._producer.is_open:
            self.begin()
        if isinstance(record, DeadLetter):
            self._send(self._target.dead_letters, record.as_json(), record.as_key())
        elif self._form is None:
            self._route(record, record.as_key(), record.as_json())
        else:
            for message in self._form.messages(record):
                self._route(record, *message)
        self.uncommitted += 1

    def send_part(self, part: OlderPart) -> None:
        """Step 4, of many rows of one table."""
        if self._form is not None:
            for message in part.messages():
                self.send(message)
            return
        if not self._producer.is_open:
            self.begin()
        topic, _ = self._topics.of(part.of.database, part.of.table)
        chosen = 0 if self._target.order == "global" else BY_KEY
        if self._topics.limit(topic) < self._batch:
            for key, value in part.written():
                self._send(topic, value, key, chosen)
        else:
            self._producer.send_part(topic, part.written(), chosen)
        self.uncommitted += len(part.rows)

    def _route(self, record: MaxwellMessage, key: bytes | None, value: bytes | None, number: int = 0) -> None:
        """Rule 3."""
        topic, partitions = self._topics.of(record.database, record.table)
        chosen: Iterable[int] = (BY_KEY,) if key is not None else (number % partitions,)
        if self._target.order == "global":
            chosen = (0,)
        elif record.type in (TRUNCATE, COMPLETE):
            chosen = range(partitions)
        for partition in chosen:
            self._send(topic, value, key, partition)

    def learn(self, said: TableSchema | ColumnsAltered) -> None:
        """Step 4, of a table's schema: one that is new goes out."""
        if (new := self._keeper().new(said)) is not None:
            self.tell(f"{self.name}.schema", new.as_key(), new.as_json())

    def schema_at(self, table: str, position: tuple[int, int]) -> TableSchema | None:
        """A table's schema at a position, of those that stand in Kafka or were learnt since."""
        return self._keeper().at(table, position)

    def _keeper(self) -> SchemaKeeper:
        if self._schemas is None:
            found = whole(self.settings, f"{self.name}.schema") if self._topics.of_schemas() else ()
            self._schemas = SchemaKeeper(SchemaHistory(TableSchema.parsed(each.value()) for each in found))
        return self._schemas

    def tell(self, topic: str, key: bytes, value: bytes) -> None:
        """Step 4, of what is no change."""
        self.begin()
        self._send(topic, value, key, 0)

    def _send(self, topic: str, value: bytes | None, key: bytes | None, partition: int = BY_KEY) -> None:
        """Rule 9."""
        limit = self._topics.limit(topic)
        if limit < self._batch:
            size = len(key or b"") + len(value or b"") + _AROUND
            if self._sent.get(topic, 0) + size > limit:
                while self._sent and not self._producer.arrive(CALL_S):  # what is refused meanwhile, the commit tells
                    pass
                self._sent.clear()
            self._sent[topic] = self._sent.get(topic, 0) + size
        self._producer.send(topic, value, key, partition)

    def store(self, position: Position) -> None:
        """Step 5."""
        self.begin()
        self._producer.send(self._state_topic, position.as_json(), KEY, 0)
        now_ms = position.sequence // 1000  # the source's time: what is sent depends on nothing else
        if self._form is not None and self._form.heartbeat_ms and now_ms >= self._beat_ms:
            topic, beat = self._form.heartbeat(now_ms)
            self._topics.make(topic)
            self._producer.send(topic, beat.value, beat.key, 0)
            self._beat_ms = now_ms + self._form.heartbeat_ms

    def finish(self) -> None:
        """Step 6; when it returns, Kafka has it all."""
        self._producer.commit()
        self._sent.clear()
        self.uncommitted = 0

    def commit(self, position: Position) -> None:
        """Steps 5 and 6."""
        self.store(position)
        self.finish()
        self.stored = position

    def refuse_if_overtaken(self) -> None:
        """Rule 7, of one that was fenced: UsageError if Kafka's position is not the one that it stored last."""
        if last_position(self.settings, self._state_topic, self._clock) != self.stored:
            raise UsageError(_overtaken(self.name))

    def close(self) -> None:
        """Throw away what is not committed; without a connection, Kafka does that by itself."""
        self._producer.close()


def _error_of(target: Target, name: str, error: KafkaError) -> WaterclockError:
    """Kafka's errors by whose doing."""
    meaning = meaning_of(error)
    topic = f"{target.topic}.DATABASE.TABLE" if target.topics == PER_TABLE else target.topic
    if meaning is Meaning.TOO_LARGE:
        return UsageError(
            "A change, or the position, is larger than the topic "
            f"{' or '.join(filter(None, (topic, target.dead_letters, f'{name}.position')))} takes. Set the topic's "
            "max.message.bytes higher, and start again: nothing was left out."
        )
    if meaning is Meaning.FENCED:
        return NameLost(_overtaken(name))
    return ConnectionLost(f"Kafka did not take the changes: {words_of(error)}.")


def _overtaken(name: str) -> str:
    return (
        f"Another process captures under the name {name}, and Kafka lets only the later one write. Stop one of them, or "
        "give them different names (--name) and topics."
    )
