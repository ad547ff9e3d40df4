"""Results in a topic of Kafka, exactly once for readers of committed records (isolation.level=read_committed).

TOPIC                 a record a result: its key, and a JSON object of the columns that other sinks have (topic_rows.py)
TOPIC_dead_letters    what could not be read, or not be kept
TOPIC_batches         what was written last, which is read back at the start (ledger.py)

A batch is one transaction of Kafka, over all three:

    1. fence     a writer begins: whoever wrote before can write no more, and what it left open is thrown away
    2. look      TOPIC_batches is read to its end: what is applied is known
    3. write     results, dead letters, and the batch's own record
    4. commit

Rule 1: 2 comes after 1, so nothing can be committed in between; both are done again after every error.
Rule 2: a second writer of the same topic fences this one. This one then begins again, once, and finds out at step 2 what
        the other has written.
Rule 3: a record that is too large for its topic is put aside as a dead letter. It stops no pipeline.
Rule 4: a topic that was deleted since the start, made anew or not, ends the run with a sentence: what it held is gone.
        It is looked for before step 1. Before anything was written another one is as good.
Rule 5: a topic that is there is not changed: its partitions and settings are its owner's. One that holds records, but no
        batches beside it, is somebody else's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from waterclock.clock import SystemClock
from waterclock.errors import SinkLost, StateMismatch, UsageError, WaterclockError
from waterclock.kafka import Offsets
from waterclock.kafka.admin import Admin, there_just_now
from waterclock.kafka.client import Client, Remedies, committed
from waterclock.kafka.errors import Meaning, Verdict, meaning_of, verdict_of, words_of
from waterclock.kafka.settings import READING, base_settings
from waterclock.kafka.transactions import TransactionalProducer
from waterclock.sinks.base import Batch, LastBatch
from waterclock.sinks.ledger import (
    Columns,
    Epoch,
    Marks,
    folded,
    judge,
    may_follow,
    record_of_columns,
    record_of_owner,
    records_of,
)
from waterclock.sinks.tables import BATCHES, DEAD_LETTERS, Table, columns_of, refuse, sentences_of, unlike
from waterclock.sinks.topic.destination import kafka_topic
from waterclock.sinks.topic.topic_rows import AROUND, fitting, records, text_of_time

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

_ALL: Final = -1  # partitions: as many as the broker gives a new topic
_LIMIT: Final = "max.message.bytes"
_BATCH: Final = "batch.size"
_USUAL_BATCH: Final = 1_000_000  # librdkafka's own
_KEPT: Final = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
# the end of a topic's name -> whether it has one partition only, and its settings if it is made
_PARTS: Final[Mapping[str, tuple[bool, Mapping[str, str]]]] = {
    "": (False, {}),
    DEAD_LETTERS: (True, {**_KEPT, _LIMIT: "52428800"}),  # what is too large for the results has its place there
    BATCHES: (True, {"cleanup.policy": "compact", "segment.bytes": str(16 << 20)}),  # a start reads all of the last one
}
# so long an open one, of a run that is gone, holds readers back
_TRANSACTION: Final = {"transaction.timeout.ms": 300_000}
_PATIENCE_S: Final = 30.0


class TopicSink:
    """A `Sink` on a topic at `servers`; `partitions`: how many a topic gets that is made (-1: as many as the broker gives).
    `settings` are librdkafka's, for TLS, SASL and the like."""

    needs_no_spark = True  # it may write while Spark is at work

    def __init__(
        self, servers: str, topic: str, *, partitions: int = _ALL, settings: Mapping[str, Any] | None = None
    ) -> None:
        self._servers, self._topic, self._partitions = servers, kafka_topic(topic), partitions
        self._settings = base_settings(servers, settings or {})
        self._reading = {**self._settings, **READING, "group.id": "unused"}
        self._clock = SystemClock()
        self._client: Client | None = None
        self._producer: TransactionalProducer | None = None
        self._marks = Marks()
        self._written: Batch | None = None  # by the open transaction
        self._limits: dict[str, int] = {}
        self._ids: dict[str, str] = {}  # of the topics, since the start
        self._epoch: Epoch | None = None

    def open(self, results: pa.Schema) -> None:
        """See `Sink`."""
        wanted = columns_of(results)
        admin = Admin(self._settings)
        there = self._there(admin)
        refuse(self._faults(admin, there, wanted))
        for part, (is_one, settings) in _PARTS.items():
            if self._name(part) not in there:
                admin.make(self._name(part), 1 if is_one else self._partitions, settings)
        self._meet(admin)
        self._look()
        if self._marks.columns is None:
            self._fence_others()  # nothing was written yet: another topic under the name is as good
            self._meet(admin)
        if self._marks.columns is None:
            self._write_marks(record_of_columns(wanted))
        elif self._marks.columns != wanted:
            refuse(unlike(self.describe(), Table("", self._marks.columns), Table("", wanted), "topic"))

    def look(self, results: pa.Schema) -> list[str]:
        """Why `open` would refuse what is there: all of it. Nothing is made."""
        admin = Admin(self._settings)
        return list(self._faults(admin, self._there(admin), columns_of(results)))

    def remove(self) -> None:
        """Delete the three topics; UsageError, and none is, if one is somebody else's. Empty ones of nobody's stay."""
        if self.refuse_to_remove():
            self._let_go()
            for parts in (("", DEAD_LETTERS), (BATCHES,)):  # behind those that it says are ours
                Admin(self._settings).remove([self._name(part) for part in parts])
            self._marks = Marks()

    def refuse_to_remove(self) -> bool:
        """Whether there is something to remove; UsageError if one is somebody else's."""
        admin = Admin(self._settings)
        is_ours, others = self._whose(admin, self._there(admin))
        if not is_ours and others:
            raise UsageError(f"{self._place(others[0])} is none that waterclock wrote to, so it is not removed")
        return is_ours

    def last_applied(self) -> LastBatch | None:
        """See `Sink`."""
        self._look()
        return self._marks.last()

    def fence(self, epoch: Epoch) -> None:
        """Let nobody of an earlier epoch write any more; see ledger.py. Who is only fenced by Kafka begins anew."""
        self._begin_anew()
        may_follow(self._marks.owner, epoch, self.describe())
        self._write_marks(record_of_owner(epoch))
        self._epoch = epoch

    def begin(self) -> None:
        """See `Sink`. Alone it is by the transaction: whoever begins later has this one's commit refused."""
        if self._producer is None:
            self._begin_anew()
        judge(self._marks.owner, self._epoch, self.describe())

    def is_applied(self, query_id: str, batch_id: int) -> bool:
        """See `Sink`."""
        if self._producer is None:
            self._look()
        return self._marks.is_applied(query_id, batch_id)

    def write(self, batch: Batch) -> Batch:
        """See `Sink`."""
        producer = self._fenced()
        rows, batch = fitting(batch, self._topic, self._limits[""])
        dead = batch.dead_letters.add_column(0, "batch_id", pa.array([batch.batch_id] * batch.dead_letters.num_rows))
        producer.begin()
        for key, value in rows:
            producer.send(self._topic, value, key)
        for _, value in records(dead, None):
            self._send_letter(producer, value)
        mark = self._marks.after(batch)
        for key, value in records_of(batch, mark, text_of_time(batch.watermark_us)):
            producer.send(self._name(BATCHES), value, key, 0)
        self._written = batch
        return batch

    def commit(self) -> None:
        """See `Sink`."""
        producer, batch = self._fenced(), self._written
        assert batch is not None, "commit without write"
        producer.commit()
        self._marks.note(batch.query_id, self._marks.after(batch))
        self._written = None

    def rollback(self) -> None:
        """See `Sink`. After an error a producer is of no more use; what it left open is thrown away."""
        self._written = None
        if self._producer is not None and (self._producer.is_open or self._producer.has_failed):
            self._let_go()

    def inputs(self, query_id: str) -> list[tuple[int, str | None]]:
        """See `RecordingSink`."""
        self._look()
        return self._marks.inputs(query_id)

    def fold(self, query_id: str, batch_id: int) -> None:
        """See `RecordingSink`."""
        try:
            self.begin()
            old = [number for number, _ in self.inputs(query_id) if number < batch_id]
            self._write_marks(*(folded(query_id, number) for number in old))
        except BaseException:
            self.rollback()
            raise

    def totals(self) -> dict[str, int]:
        """See `Sink`."""
        self._look()
        return self._marks.totals()

    def close(self) -> None:
        """See `Sink`."""
        self._let_go()
        if self._client is not None:
            self._client.close()
            self._client = None

    def describe(self) -> str:
        """See `Sink`."""
        return self._place("")

    def _meet(self, admin: Admin) -> None:
        """Note what the topics are now; EnvironmentMissing if one of them is gone again."""
        with there_just_now():
            self._ids = {self._name(part): admin.topic_id(self._name(part)) for part in _PARTS}
            self._limits = {part: _largest(admin.settings(self._name(part))) for part in _PARTS}

    # Topics ----------------------------------------------------------------------------------------------------

    def _name(self, part: str) -> str:
        return self._topic + part

    def _place(self, part: str) -> str:
        return f"the topic {self._name(part)!r} at {self._servers}"

    def _there(self, admin: Admin) -> dict[str, int]:
        """Which of the topics are there, by the word of who leads: by a list that lacks them, a stranger's would be taken
        for none, and written to; and ours would stay, with all that they hold, when they are to be removed."""
        return admin.known(map(self._name, _PARTS))

    def _faults(self, admin: Admin, there: Mapping[str, int], wanted: Columns) -> Iterator[str]:
        """What is wrong with what is there. `there` is of before: what it lacks is asked for."""
        is_ours, others = self._whose(admin, there)
        if is_ours:
            missing = [part for part in _PARTS if self._name(part) not in there]
            for part in (part for part in missing if admin.lacks(self._name(part))):
                yield (
                    f"{self._place(part)} is gone, and {self._name(BATCHES)!r} says that it was written to. Make it again, "
                    "to go on behind what it held, or start over with --fresh."
                )
            assert self._marks.columns is not None, "that is how ours are known"
            yield from unlike(self.describe(), Table("", self._marks.columns), Table("", wanted), "topic")
        else:
            for part in others:
                yield (
                    f"{self._place(part)} holds records, and no sink of waterclock wrote to it: it is left alone. Name "
                    "another topic in [sink]."
                )
        if self._name(BATCHES) in there:
            with there_just_now():
                settings = admin.settings(self._name(BATCHES))
            yield from sentences_of(partial(self._refuse_forgetful, settings))

    def _whose(self, admin: Admin, there: Mapping[str, int]) -> tuple[bool, list[str]]:
        """Whether the topics are ours; and of those that are not, the parts that hold something."""
        batches = self._name(BATCHES)
        if batches in there and self._is_ours():
            return True, []
        others = self._of_others(there)
        # a sink that began since the list was made has made its topics, and written its columns before all else
        return (True, []) if others and not admin.lacks(batches) and self._is_ours() else (False, others)

    def _is_ours(self) -> bool:
        """Whether a sink wrote to these topics; the columns are what it writes first."""
        with suppress(StateMismatch):
            self._look()
        return self._marks.columns is not None

    def _of_others(self, there: Mapping[str, int]) -> list[str]:
        """Of topics that are not ours, those that hold a record. Offsets alone do not tell: what a sink began that was
        killed at its first start is thrown away, and leaves nothing but them."""
        client = self._asking()
        partitions = {
            part: [(name, n) for n in range(there.get(name, 0))] for part in _PARTS if (name := self._name(part))
        }
        return [part for part, some in partitions.items() if self._hold(client.starts(some), client.ends(some))]

    def _hold(self, starts: Offsets, ends: Offsets) -> bool:
        """Whether a committed record stands between offsets of partitions."""
        return any(
            True
            for place in sorted(starts.keys() & ends.keys())
            for _ in committed(self._reading, place, starts[place], ends[place], self._clock)
        )

    def _refuse_made_anew(self) -> None:
        """Rule 4."""
        if not (gone := Admin(self._settings).gone(self._ids)):
            return
        remedy = "or, if you can do without that, make the topic again, and the same command goes on"
        if (batches := self._name(BATCHES)) in gone:  # the others are nobody's then: --fresh would leave them
            others = " and ".join(repr(name) for name in self._ids if name != batches)
            gone, remedy = [batches], f"but delete {others} before: nothing says any more whose they are"
        raise UsageError(
            f"the topic {gone[0]!r} at {self._servers} was deleted while the pipeline ran, or another broker leads that "
            f"never had it. What it held is gone. Start over with --fresh; {remedy}"
        )

    def _refuse_forgetful(self, settings: Mapping[str, str]) -> None:
        bounds = {settings.get("retention.ms"), settings.get("retention.bytes")}
        if "delete" in settings.get("cleanup.policy", "") and bounds != {"-1"}:
            raise UsageError(
                f"{self._place(BATCHES)} has cleanup.policy={settings['cleanup.policy']}: Kafka would delete what was "
                "written last. Name another topic in [sink], or mend this one with: kafka-configs.sh --bootstrap-server "
                f"{self._servers} --alter --entity-type topics --entity-name {self._name(BATCHES)} --add-config "
                "cleanup.policy=compact"
            )

    # What was written last -------------------------------------------------------------------------------------

    def _asking(self) -> Client:
        if self._client is None:
            self._client = Client(self._reading, _PATIENCE_S, Remedies("[sink.client]", "servers in [sink]"))
        return self._client

    def _look(self) -> None:
        """Step 2."""
        name, marks = self._name(BATCHES), self._marks
        end = self._asking().ends([(name, 0)]).get((name, 0))
        if end is None:  # such as one that has just started: what it does not know of is not empty
            raise SinkLost(f"the broker that answers at {self._servers} does not know the topic {name!r}")
        for message in committed(self._reading, (name, 0), marks.position, end, self._clock):
            marks.take(message.key(), message.value(), f"{name}-0-{message.offset()}")
        marks.position = max(marks.position, end)

    def _begin_anew(self) -> None:
        self._refuse_made_anew()
        self._fence_others()

    def _fence_others(self) -> None:
        """Steps 1 and 2."""
        self._let_go()
        name = f"waterclock-sink-{self._topic}"
        sending = {**self._settings, **_TRANSACTION, **self._batches_that_fit()}
        producer = TransactionalProducer(sending, name, self._error_of)
        producer.fence()
        self._marks = Marks()
        try:
            self._look()
        except BaseException:
            producer.close()
            raise
        self._producer = producer  # only now: who has one does not look again

    def _batches_that_fit(self) -> dict[str, int]:
        """Kafka's limits are those of a batch, and librdkafka fills one up to what it is told, whatever a topic takes."""
        given = int(self._settings.get(_BATCH, _USUAL_BATCH))
        return {_BATCH: max(1, min(given, *self._limits.values()) - AROUND)} if self._limits else {}

    def _fenced(self) -> TransactionalProducer:
        assert self._producer is not None, "begin comes first"
        return self._producer

    def _write_marks(self, *marks: tuple[bytes, bytes | None]) -> None:
        producer = self._fenced()
        producer.begin()
        for key, value in marks:
            producer.send(self._name(BATCHES), value, key, 0)
        producer.commit()
        self._look()

    def _let_go(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.close()

    def _error_of(self, error: KafkaError) -> WaterclockError:
        sentence = f"{self.describe()} could not be written: {words_of(error)}"
        if verdict_of(error) is not Verdict.AGAIN:
            return UsageError(f"{sentence}. Look at the topics, and at [sink.client]")
        if meaning_of(error) is Meaning.FENCED:
            return SinkLost(f"another writer has taken {self.describe()} over: {words_of(error)}")
        return SinkLost(sentence)

    # Records ---------------------------------------------------------------------------------------------------

    def _send_letter(self, producer: TransactionalProducer, value: bytes) -> None:
        name, limit = self._name(DEAD_LETTERS), self._limits[DEAD_LETTERS]
        if len(value) + AROUND > limit:
            raise UsageError(
                f"a dead letter of {len(value)} bytes does not fit into the topic {name!r}, which takes {limit}. Raise "
                f"that: kafka-configs.sh --bootstrap-server {self._servers} --alter --entity-type topics --entity-name "
                f"{name} --add-config {_LIMIT}={2 * len(value)}"
            )
        producer.send(name, value)


def _largest(settings: Mapping[str, str]) -> int:
    """How many bytes a batch of records may have, or a record alone: a segment takes none that is larger than it."""
    return min(int(settings[_LIMIT]), int(settings.get("segment.bytes", settings[_LIMIT])))
