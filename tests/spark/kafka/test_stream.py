"""What the planner of a stream of topics finds out of a broker and hands to the workers; no session is started."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock, patch

import pytest

if not all(map(importlib.util.find_spec, ("pyspark", "confluent_kafka", "kio"))):
    pytest.skip("needs waterclock[spark,kafka,broker]", allow_module_level=True)

from pyspark.sql.streaming.datasource import ReadMaxRows

from tests.spark.topics import Sender, make_topic_pipeline
from waterclock.clock import ManualClock
from waterclock.errors import UsageError
from waterclock.spark.checkpoint.folder import Checkpoint
from waterclock.spark.packing.packs import FIRST
from waterclock.spark.streams import stream_of
from waterclock.streaming import buckets, frames
from waterclock.streaming.layout import END_US
from waterclock.streaming.toml.config import load
from waterclock.streaming.topics import planner as planning
from waterclock.testing import Broker


@contextmanager
def planner(file: Path, live: bool = True) -> Iterator[Any]:
    """The reader that Spark would be given for the pipeline in `file`."""
    config, made = load(file), []
    checkpoint = Checkpoint(config.checkpoint)
    checkpoint.heartbeats.mkdir(parents=True, exist_ok=True)
    session: Any = MagicMock(dataSource=SimpleNamespace(register=made.append))
    with closing(stream_of(config.source, config.rules, config.watermark_delay_us, checkpoint)) as stream:
        stream._by_python(session, live)  # type: ignore[attr-defined]
    (source,) = made
    reader = source({}).streamReader(None)
    yield reader
    reader.stop()


def told_the_connector(file: Path) -> Any:
    """Where Spark's own connector is told to begin, for the pipeline in `file`."""
    config, session = load(file), MagicMock()
    checkpoint = Checkpoint(config.checkpoint)
    checkpoint.heartbeats.mkdir(parents=True, exist_ok=True)
    with closing(stream_of(config.source, config.rules, config.watermark_delay_us, checkpoint)) as stream:
        stream._by_connector(session)  # type: ignore[attr-defined]
    return json.loads(session.readStream.format.return_value.options.call_args.kwargs["startingOffsets"])


@pytest.mark.parametrize("starting", ["latest", "earliest", "2026-01-01T00:00:00Z"])
def test_where_the_first_batch_begins_is_found_out_once(
    kafka_broker: Broker, kafka_topic: str, tmp_path: Path, starting: str
) -> None:
    topic = f"{kafka_topic}-first"
    kafka_broker.create_topic(topic, 2)
    sender = Sender(kafka_broker.bootstrap, topic)
    sender.put(*"012")
    file = make_topic_pipeline(tmp_path, kafka_broker.bootstrap, topic, more=f'starting = "{starting}"')
    with planner(file) as first:
        begun = first.initialOffset()
    assert begun == {topic: {"0": 3 if starting == "latest" else 0, "1": 0}}
    sender.put(*"345")
    with planner(file) as again:
        assert again.initialOffset() == begun


@pytest.mark.parametrize("first", ["python", "connector"])
def test_the_other_way_begins_where_the_first_one_began(
    kafka_broker: Broker, kafka_topic: str, tmp_path: Path, first: str
) -> None:
    # killed in its first batch, then by the other way: "latest" was later by then, and what lay between was lost
    topic = f"{kafka_topic}-other-way"
    kafka_broker.create_topic(topic, 2)
    sender = Sender(kafka_broker.bootstrap, topic)
    sender.put(*"012")
    file = make_topic_pipeline(tmp_path, kafka_broker.bootstrap, topic, more='starting = "latest"')

    def by_python() -> Any:
        with planner(file) as reader:
            return reader.initialOffset()

    def by_connector() -> Any:
        return told_the_connector(file)

    one, other = (by_python, by_connector) if first == "python" else (by_connector, by_python)
    assert one() == {topic: {"0": 3, "1": 0}}
    sender.put(*"345")
    assert other() == {topic: {"0": 3, "1": 0}}


def test_what_a_batch_of_the_close_passed_over_came_after_the_close(
    kafka_broker: Broker, kafka_topic: str, tmp_path: Path
) -> None:
    # Spark's connector cannot stop where the close was: its batch reads on, and what it passes over counted as read
    topic = f"{kafka_topic}-passed-over"
    kafka_broker.create_topic(topic, 1)
    Sender(kafka_broker.bootstrap, topic).put(*"01234")
    config = load(make_topic_pipeline(tmp_path, kafka_broker.bootstrap, topic, way="connector"))
    checkpoint = Checkpoint(config.checkpoint)
    (checkpoint.path / "offsets").mkdir(parents=True)
    checkpoint.heartbeats.mkdir()
    (checkpoint.path / "offsets" / "0").write_text(f'v1\n{{}}\n{{"{topic}":{{"0":3}}}}\n-')
    checkpoint.close()
    (checkpoint.path / "offsets" / "1").write_text(f'v1\n{{}}\n{{"{topic}":{{"0":5}}}}\n{{"logOffset":0}}')
    with (
        closing(stream_of(config.source, config.rules, config.watermark_delay_us, checkpoint)) as stream,
        pytest.raises(UsageError, match="2 records came after that"),
    ):
        stream.refuse_if_closed()


def test_a_pipeline_that_was_closed_before_any_batch_was_closed_where_it_began(
    kafka_broker: Broker, kafka_topic: str, tmp_path: Path
) -> None:
    topic = f"{kafka_topic}-no-batch"
    kafka_broker.create_topic(topic, 1)
    Sender(kafka_broker.bootstrap, topic).put(*"012")
    file = make_topic_pipeline(tmp_path, kafka_broker.bootstrap, topic, more='starting = "latest"')
    with planner(file):
        pass
    checkpoint = Checkpoint(load(file).checkpoint)
    checkpoint.close()
    with closing(
        stream_of((config := load(file)).source, config.rules, config.watermark_delay_us, checkpoint)
    ) as stream:
        stream.refuse_if_closed()
        Sender(kafka_broker.bootstrap, topic).put("3")
        with pytest.raises(UsageError, match="1 record came after that"):
            stream.refuse_if_closed()


def test_a_partition_that_is_gone_holds_nobody_back_though_its_batch_brings_no_record(
    kafka_broker: Broker, kafka_topic: str, tmp_path: Path
) -> None:
    topic = f"{kafka_topic}-stays"
    kafka_broker.create_topic(topic, 1)
    Sender(kafka_broker.bootstrap, topic).put("0")
    file = make_topic_pipeline(tmp_path, kafka_broker.bootstrap, topic, more='on_loss = "go on"')
    before = {topic: {"0": 1}, "was-there": {"0": 7}}
    with planner(file) as reader, patch.object(planning, "_FORGOTTEN_AFTER_S", 0.1):
        after = reader.latestOffset(before, ReadMaxRows(10))
        assert after == {topic: {"0": 1}}
        rows = [
            row for share in reader.partitions(before, after) for each in reader.read(share) for row in each.to_pylist()
        ]
        assert reader.partitions(after, after) == []
    told = {row["bucket"]: frames.from_bytes(row["frame"]).to_pydict() for row in rows}
    expected = {"partition": [f"{topic}/0", "was-there/0"], "watermark": [None, END_US]}
    assert told == dict.fromkeys(buckets.labels(buckets.BUCKETS), expected)


def test_a_partition_that_is_gone_is_told_of_though_its_batch_reads_nothing_but_aborted_records(
    kafka_broker: Broker, kafka_topic: str, tmp_path: Path
) -> None:
    # nobody told of it, and no later batch knows: it held the watermark back until the close
    topic = f"{kafka_topic}-aborted"
    kafka_broker.create_topic(topic, 1)
    sender = Sender(kafka_broker.bootstrap, topic, transactional_id=topic)
    sender.producer.init_transactions(30)
    sender.in_transaction("never", committed=False)
    file = make_topic_pipeline(tmp_path, kafka_broker.bootstrap, topic, more='on_loss = "go on"')
    with planner(file) as reader:
        (share,) = reader.partitions({topic: {"0": 0}, "was-there": {"0": 7}}, {topic: {"0": 2}})
        rows = [row for each in reader.read(share) for row in each.to_pylist()]
    (told,) = (frames.from_bytes(row["frame"]).to_pydict() for row in rows if row["bucket"] == FIRST)
    assert told == {"partition": [f"{topic}/0", "was-there/0"], "watermark": [None, END_US]}


def test_a_partition_that_the_ending_does_not_name_is_read_to_its_end(
    kafka_broker: Broker, kafka_topic: str, tmp_path: Path
) -> None:
    topic = f"{kafka_topic}-ending"
    kafka_broker.create_topic(topic, 2)
    for partition in range(2):
        Sender(kafka_broker.bootstrap, topic).put(*"0123", partition=partition)
    more = f"ending = {{ '{topic}' = {{ 0 = 3 }} }}"
    with planner(make_topic_pipeline(tmp_path, kafka_broker.bootstrap, topic, more=more), live=False) as reader:
        assert reader.latestOffset(reader.initialOffset(), ReadMaxRows(100)) == {topic: {"0": 3, "1": 4}}


def test_a_partition_that_is_away_for_a_while_is_not_forgotten(
    kafka_broker: Broker, kafka_topic: str, tmp_path: Path
) -> None:
    topic = f"{kafka_topic}-away"
    kafka_broker.create_topic(topic, 1)
    Sender(kafka_broker.bootstrap, topic).put(*"012")
    file = make_topic_pipeline(tmp_path, kafka_broker.bootstrap, topic, more='on_loss = "go on"')
    with planner(file) as reader, patch.object(planning, "_GONE_AFTER_S", 0.0):
        looks = iter([[], [], [(topic, 0)]])  # as of a broker that has just started and does not know its topics yet
        with patch.object(reader._planned().client, "partitions", lambda topics: next(looks)):
            assert reader.latestOffset({topic: {"0": 2}}, ReadMaxRows(10)) == {topic: {"0": 3}}


def test_batches_that_follow_each_other_at_once_do_not_each_wait_for_the_ends_of_the_topics(
    kafka_broker: Broker, kafka_topic: str, tmp_path: Path
) -> None:
    topic, clock = f"{kafka_topic}-ends", ManualClock()
    kafka_broker.create_topic(topic, 1)
    sender = Sender(kafka_broker.bootstrap, topic)
    sender.put(*"012")
    config = load(make_topic_pipeline(tmp_path, kafka_broker.bootstrap, topic))
    made: Any = stream_of(config.source, config.rules, config.watermark_delay_us, Checkpoint(config.checkpoint))
    with closing(made) as stream, patch.object(stream._door(), "clock", clock):
        assert stream.progress({}) == (0, 3)
        sender.put(*"34")
        assert stream.progress({}) == (0, 3)
        clock.advance_s(0.6)
        assert stream.progress({}) == (0, 5)
