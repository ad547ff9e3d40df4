"""What only a sink on topics does: transactions and who is fenced, large records, topics of others, a pipeline's file, and
the rights that it needs where ACLs decide."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AclBinding, AclOperation, AclPermissionType, AdminClient, ResourcePatternType
from confluent_kafka.admin import ResourceType as Kind

from tests.relay.test_rights import CAROL, SETTINGS, login
from tests.sinks.stores import COUNTERS, SCHEMA, TopicStore, batch, everything, of_batches, results
from tests.spark.least_pipeline import least_with
from tests.test_readme import ROOT
from waterclock.broker import Access
from waterclock.errors import SinkLost, StateMismatch, UsageError
from waterclock.sinks import LastBatch, TopicSink, apply_once
from waterclock.sinks.topic.destination import KafkaTopic, kafka_topic
from waterclock.sinks.topic.topic_rows import records
from waterclock.streaming.toml.config import load
from waterclock.testing import Broker


@pytest.fixture
def store(kafka_broker: Broker) -> TopicStore:
    return TopicStore(kafka_broker.bootstrap)


@pytest.fixture
def sink(store: TopicStore) -> Iterator[TopicSink]:
    with closing(store.sink()) as made:
        made.open(SCHEMA)
        yield made


# Writers


def test_a_writer_that_was_fenced_begins_again_and_sees_what_the_other_has_written(
    store: TopicStore, sink: TopicSink
) -> None:
    apply_once(sink, batch(0))
    with closing(store.sink()) as other:
        other.open(SCHEMA)
        assert apply_once(other, batch(1)) is True
    assert apply_once(sink, batch(1)) is False
    assert apply_once(sink, batch(2)) is True
    assert everything(store) == of_batches(0, 1, 2)


def test_what_a_fenced_writer_had_begun_is_seen_by_nobody(store: TopicStore, sink: TopicSink) -> None:
    sink.begin()
    sink.write(batch(0))
    with closing(store.sink()) as other:
        other.open(SCHEMA)
        apply_once(other, batch(0))
    with pytest.raises(SinkLost, match=r"another writer has taken the topic '.*results' at .* over"):
        sink.commit()
    sink.rollback()
    assert everything(store) == of_batches(0)


@pytest.mark.parametrize("part", ["", "_dead_letters", "_batches"])
def test_a_topic_that_is_deleted_while_the_pipeline_runs_ends_it_although_the_broker_makes_it_anew(
    store: TopicStore, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    # the next batch went into the new one after five minutes, and not a word was said
    monkeypatch.setattr("waterclock.sinks.topic.topic._TRANSACTION", {"transaction.timeout.ms": 2_000})
    monkeypatch.setattr("waterclock.kafka.admin._MADE_WITHIN_S", 0.5)
    with closing(store.sink()) as sink:
        sink.open(SCHEMA)
        apply_once(sink, batch(0))
        admin, name = AdminClient({"bootstrap.servers": store.servers}), store.named("results") + part
        admin.delete_topics([name])[name].result(30)
        with pytest.raises(UsageError):
            apply_once(sink, batch(1))
        with pytest.raises(UsageError, match=rf"the topic '{name}' at .* was deleted while the pipeline ran.*--fresh"):
            apply_once(sink, batch(1))


def test_who_reads_what_is_not_committed_sees_more(store: TopicStore, sink: TopicSink) -> None:
    """The promise is for readers of committed records only: this is what the others get."""
    sink.begin()
    sink.write(batch(0))
    sink._fenced().producer.flush()
    sink.rollback()
    settings = {"bootstrap.servers": store.servers, "group.id": "dirty", "isolation.level": "read_uncommitted"}
    reader = Consumer(settings)
    reader.assign([TopicPartition(store.named("results"), 0, 0)])
    assert len(reader.consume(2, 10)) == 2
    reader.close()
    assert store.records() == []


def test_only_the_last_record_of_a_query_is_needed(store: TopicStore, sink: TopicSink) -> None:
    """Kafka compacts TOPIC_batches: the sums of all counters are in the last one."""
    for number in range(3):
        apply_once(sink, batch(number))
    key, last = [row for row in store.records("results_batches") if row[0] != b"columns"][-1]
    assert key == b"query q"
    assert (last["batch_id"], last["totals"]) == (2, {name: 3 * value for name, value in COUNTERS.items()})
    assert last["watermark"] == "1970-01-01T00:00:01.000000Z"


# Records


def test_a_result_is_a_record_with_its_key_and_the_columns_of_a_table(store: TopicStore, sink: TopicSink) -> None:
    apply_once(sink, batch(0, count=1))
    ((key, row),) = store.records()
    assert key == b"a"
    assert row == {
        "batch_id": 0,
        "kind": "event",
        "key": "a",
        "rule": "order",
        "due": "1970-01-01T00:00:00.000000Z",
        "emitted_at": None,
        "source_id": "0-0",
        "result_id": "r0-0",
        "event_case": "a",
        "event_n": 0,
        "event_d": 0.5,
        "event_b": True,
    }


def test_values_that_json_does_not_know_are_texts_and_none_is_cut() -> None:
    given = {
        "none": None,
        "bytes": b"\x00\xff",
        "date": date(2024, 2, 29),
        "money": Decimal("1234567890123456789.01"),
        "at": datetime(2024, 2, 29, 1, 2, 3, 4, UTC),
        "nan": float("nan"),
        "deep": [{"inf": float("inf")}, {"inf": float("-inf")}],
        "large": 2**62,
        "words": "é 🕰",
    }
    ((key, value),) = records(pa.Table.from_pylist([given]), "large")
    assert key == b"4611686018427387904"
    assert value.decode() == (
        '{"none": null, "bytes": "AP8=", "date": "2024-02-29", "money": "1234567890123456789.01", '
        '"at": "2024-02-29T01:02:03.000004Z", "nan": "NaN", "deep": [{"inf": "Infinity"}, {"inf": "-Infinity"}], '
        '"large": 4611686018427387904, "words": "é 🕰"}'
    )


def test_a_time_outside_of_the_calendar_is_refused_and_not_cut() -> None:
    with pytest.raises(ValueError, match="too far from the years 1 to 9999"):
        list(records(pa.table({"at": pa.array([2**62], pa.timestamp("us"))}), None))


def test_a_result_that_is_too_large_is_put_aside_whole_and_the_others_go_on(store: TopicStore, sink: TopicSink) -> None:
    rows = results(0, 3).to_pylist()
    rows[1]["event"]["case"] = "x" * 1_048_500
    assert apply_once(sink, replace(batch(0), results=pa.Table.from_pylist(rows, schema=SCHEMA))) is True
    assert [row["event_n"] for _, row in store.records()] == [0, 2]
    (_, first), (_, letter) = store.records("results_dead_letters")
    assert first["reason"] == "bad"
    assert "bytes are too many for a record of " in letter["reason"]
    assert "x" * 1_048_500 in letter["text"]
    assert sink.totals() == {**COUNTERS, "dead_letters": 1}


# Topics


def test_a_topic_that_its_owner_made_is_taken_as_it_is(store: TopicStore) -> None:
    store.admin().make(store.named("results"), 3, {"retention.ms": "3600000"})
    with closing(store.sink()) as sink:
        sink.open(SCHEMA)
        apply_once(sink, batch(0))
    assert (store.admin().topics()[store.named("results")], len(store.records())) == (3, 2)


def test_a_topic_with_records_of_others_is_left_alone(store: TopicStore) -> None:
    store.make_table_of_others("results")
    with (
        closing(store.sink()) as sink,
        pytest.raises(UsageError, match="holds records, and no sink of waterclock wrote"),
    ):
        sink.open(SCHEMA)
    assert store.tables() == ["results"]


def test_records_of_others_among_the_batches_are_no_reason_to_write_everything_again(
    store: TopicStore, sink: TopicSink
) -> None:
    apply_once(sink, batch(0))
    store.make_table_of_others("results_batches")
    with closing(store.sink()) as again, pytest.raises(StateMismatch, match=r"results_batches-0-\d+ is no record"):
        again.open(SCHEMA)


@pytest.mark.parametrize("ending", ["", "_dead_letters"])
def test_a_topic_that_was_deleted_beside_the_others_is_not_made_anew_in_silence(
    store: TopicStore, sink: TopicSink, ending: str
) -> None:
    apply_once(sink, batch(0))
    store.admin().remove([store.named(f"results{ending}")])
    with closing(store.sink()) as again, pytest.raises(UsageError, match=f"results{ending}' at .* is gone"):
        again.open(SCHEMA)


@pytest.mark.parametrize(
    "settings",
    [
        {"cleanup.policy": "delete"},
        {"cleanup.policy": "compact,delete"},
        {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "1000"},
    ],
)
def test_batches_that_kafka_would_delete_are_refused_with_the_command_that_mends_it(
    settings: dict[str, str], store: TopicStore
) -> None:
    store.admin().make(store.named("results_batches"), 1, settings)
    with closing(store.sink()) as sink, pytest.raises(UsageError, match=r"--add-config cleanup.policy=compact"):
        sink.open(SCHEMA)


# In a pipeline's file


def of_file(folder: Path, sink: str, source: str = 'path = "in"') -> Any:
    return least_with(folder, f"[sink]\nformat = 'kafka'\n{sink}\n", source).sink


def test_a_pipeline_names_servers_and_a_topic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "pw")
    sink = "servers = ['a:1', 'b:2']\ntopic = 'late'\npartitions = 6\n[sink.client]\n'sasl.password' = {env = 'SECRET'}"
    found = of_file(tmp_path, sink)
    assert found == KafkaTopic("a:1,b:2", "late", 6, {"sasl.password": "pw"})
    assert "pw" not in repr(found)


@pytest.mark.parametrize(
    ("sink", "told"),
    [
        ("topic = 'late'", "'servers' must be addresses"),
        ("servers = 'h:1'", "'topic' is missing"),
        ("servers = 'h:1'\ntopic = 'a b'", "sink topic 'a b' must be a name"),
        ("servers = 'h:1'\ntopic = 'late'\npartitions = 0", "'partitions' must be 1 to"),
        ("servers = 'h:1'\ntopic = 'late'\ntable = 'x'", "table"),
        ("servers = 'h:1'\ntopic = 'late'\nmode = 'apply'", "mode = 'apply' is gone"),
        ("servers = 'h:1'\ntopic = 'late'\n[sink.client]\nacks = '1'", "'acks' cannot be set: what was written"),
        (
            "servers = 'h:1'\ntopic = 'late'\n[sink.client]\n'transactional.id' = 'x'",
            "'transactional.id' cannot be set",
        ),
    ],
)
def test_what_cannot_be_a_topic_is_refused(tmp_path: Path, sink: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        of_file(tmp_path, sink)


@pytest.mark.parametrize("topic", ["late", "late_dead_letters"])
def test_what_is_written_is_not_read_again(tmp_path: Path, topic: str) -> None:
    source = f"format = 'kafka'\nservers = 'g:1, h:1'\ntopics = ['orders', '{topic}']"
    with pytest.raises(UsageError, match=f"the topic '{topic}' is read by"):
        of_file(tmp_path, "servers = 'h:1'\ntopic = 'late'", source)


def test_the_longest_name_leaves_room_for_those_beside_it() -> None:
    assert len(kafka_topic("a" * 236) + "_dead_letters") == 249


def test_a_pipeline_makes_the_topics_goes_on_with_them_and_fresh_removes_them(
    tmp_path: Path, store: TopicStore
) -> None:
    from waterclock.spark.fresh import start_over
    from waterclock.spark.pipeline import configured

    of_file(tmp_path, f"servers = '{store.servers}'\ntopic = '{store.named('late')}'")
    for _ in range(2):
        with closing(configured(load(tmp_path / "pipeline.toml"))) as pipeline:
            pipeline.check()
    assert store.tables() == ["late", "late_batches", "late_dead_letters"]
    start_over(load(tmp_path / "pipeline.toml"))
    assert store.tables() == []


def test_the_last_batch_is_known_to_who_only_looks(store: TopicStore, sink: TopicSink) -> None:
    apply_once(sink, batch(4))
    with closing(store.sink()) as other:
        assert (other.last_applied(), other.totals(), other.is_applied("q", 4)) == (LastBatch("q", 4), COUNTERS, True)


# Rights


Op = AclOperation
Right = tuple[Kind, str, AclOperation]
PARTS = ("", "_dead_letters", "_batches")
ON_TOPICS = (Op.WRITE, Op.CREATE, Op.DESCRIBE_CONFIGS)
RIGHTS: list[Right] = [
    *((Kind.TOPIC, f"late{part}", operation) for part in PARTS for operation in ON_TOPICS),
    (Kind.TOPIC, "late_batches", Op.READ),
    (Kind.TRANSACTIONAL_ID, "waterclock-sink-late", Op.WRITE),
]


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(access=Access(users=("admin:secret", "carol:hers")), settings=SETTINGS) as broker:
        yield broker


def give(broker: Broker, rights: Sequence[Right]) -> None:
    """Carol has these, and no others."""
    literal, allow = ResourcePatternType.LITERAL, AclPermissionType.ALLOW
    made = [AclBinding(kind, name, literal, "User:carol", "*", operation, allow) for kind, name, operation in rights]
    admin = AdminClient(login(broker, "admin", "secret"))
    for done in admin.create_acls(made).values():
        done.result()


def run(broker: Broker) -> None:
    """A pipeline's sink: the topics are made, a batch is written; another start sees it and goes on."""
    for number in (0, 1):
        with closing(TopicSink(broker.bootstrap, "late", partitions=1, settings=CAROL)) as sink:
            sink.open(SCHEMA)
            assert apply_once(sink, batch(number)) is True


def test_the_rights_that_the_document_names_are_enough(broker: Broker) -> None:
    give(broker, RIGHTS)
    run(broker)


def test_and_the_document_names_them() -> None:
    (line,) = re.findall(r"- ACLs: .*?\.$", (ROOT / "docs" / "topics.md").read_text(), re.S | re.M)
    for _, _, operation in RIGHTS:
        assert operation.name.title().replace("_", "") in line


@pytest.mark.parametrize("missing", RIGHTS, ids=[f"{name} {operation.name}" for _, name, operation in RIGHTS])
def test_with_one_of_them_missing_it_is_refused_in_words(missing: Right, broker: Broker) -> None:
    """A right to write was taken for a connection that breaks, and so was that to read what was written last."""
    give(broker, [right for right in RIGHTS if right != missing])
    with pytest.raises(UsageError, match=r"(?i)late.*: .*authorization failed") as raised:
        run(broker)
    assert not str(raised.value).endswith("..")
