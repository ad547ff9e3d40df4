"""Apache Kafka's own tools and its Java clients, as they come from Maven, against either broker."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from tests.conformance.batches import LONG_AGO_MS, Record, batch, values
from tests.conformance.dialogue import EARLIEST, LATEST, Dialogue
from tests.conformance.groups import committed, offset_of
from tests.conformance.transactions import Transactional
from waterclock.bench.servers import apache

pytestmark = pytest.mark.servers
TOOLS = "org.apache.kafka.tools."
TOPICS, OFFSETS, GROUPS = (
    TOOLS + "TopicCommand",
    TOOLS + "GetOffsetShell",
    TOOLS + "consumer.group.ConsumerGroupCommand",
)
TRANSACTIONS = TOOLS + "TransactionsCommand"
PRODUCER, CONSUMER = TOOLS + "ConsoleProducer", TOOLS + "consumer.ConsoleConsumer"
WITHIN_S = 90

Run = Callable[..., str]


@pytest.fixture
def run(bootstrap: str) -> Run:
    """Run a tool with `--bootstrap-server` and return what it prints; a failure is an error with its words."""
    apache.fetch()

    def start(tool: str, *arguments: str, given: str = "", code: int = 0) -> str:
        done = subprocess.run(
            apache.tool(tool, "--bootstrap-server", bootstrap, *arguments),
            input=given,
            capture_output=True,
            text=True,
            timeout=WITHIN_S,
            check=False,
        )
        assert done.returncode == code, f"{done.stdout}\n{done.stderr}"
        return done.stdout + (done.stderr if code else "")

    return start


def facts(answer: str) -> list[dict[str, Any]]:
    """The lines of JSON that a verifiable client writes."""
    return [json.loads(line) for line in answer.splitlines() if line.startswith("{")]


def numbered(dialogue: Dialogue, topic: str, count: int) -> None:
    for number in range(count):
        dialogue.produce(topic, batch(b"%d" % number))


def test_topics_are_made_described_grown_and_deleted(run: Run, dialogue: Dialogue, name: str) -> None:
    made = run(TOPICS, "--create", "--topic", name, "--partitions", "2", "--config", "retention.ms=7777")
    assert f"Created topic {name}." in made
    answer = run(TOPICS, "--describe", "--topic", name)
    assert "PartitionCount: 2" in answer
    assert "retention.ms=7777" in answer
    run(TOPICS, "--alter", "--topic", name, "--partitions", "3")
    assert len(dialogue.metadata(name).partitions) == 3
    run(TOPICS, "--delete", "--topic", name)
    assert name not in run(TOPICS, "--list").split()


def test_a_topic_that_is_there_is_refused_in_words(run: Run, topic: str) -> None:
    answer = run(TOPICS, "--create", "--topic", topic, code=1)
    assert "already exists" in answer


def test_lines_go_in_and_come_out(run: Run, topic: str) -> None:
    run(PRODUCER, "--topic", topic, given="one\ntwo\nthree\n")
    answer = run(CONSUMER, "--topic", topic, "--from-beginning", "--max-messages", "3")
    assert answer.split() == ["one", "two", "three"]


@pytest.mark.parametrize("compression", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_lines_go_in_and_come_out(run: Run, dialogue: Dialogue, topic: str, compression: str) -> None:
    run(PRODUCER, "--topic", topic, "--compression-codec", compression, given="one\ntwo\n")
    assert dialogue.read(topic)[0].attributes & 7 == ["none", "gzip", "snappy", "lz4", "zstd"].index(compression)
    assert run(CONSUMER, "--topic", topic, "--from-beginning", "--max-messages", "2").split() == ["one", "two"]


def test_keys_headers_and_timestamps_are_printed(run: Run, dialogue: Dialogue, topic: str) -> None:
    dialogue.produce(topic, batch(Record(b"v", b"k", LONG_AGO_MS, (("h", b"x"),))))
    shown = [f"--formatter-property=print.{what}=true" for what in ("key", "headers", "timestamp", "offset")]
    answer = run(CONSUMER, "--topic", topic, "--from-beginning", "--max-messages", "1", *shown)
    assert answer.split() == [f"CreateTime:{LONG_AGO_MS}", "Offset:0", "h:x", "k", "v"]


def test_the_consumer_reads_what_is_committed_only(run: Run, dialogue: Dialogue, topic: str, name: str) -> None:
    producer = Transactional(dialogue, name, new=True)
    for value, end in ((b"one", producer.commit), (b"gone", producer.abort), (b"two", producer.commit)):
        producer.put(topic, value)
        end()
    level = ["--isolation-level", "read_committed"]
    answer = run(CONSUMER, "--topic", topic, "--from-beginning", "--max-messages", "2", *level)
    assert answer.split() == ["one", "two"]


@pytest.mark.parametrize("by_offset", [True, False])
def test_a_transaction_that_hangs_is_found_and_aborted(
    run: Run, dialogue: Dialogue, topic: str, name: str, by_offset: bool
) -> None:
    producer = Transactional(dialogue, name)
    producer.put(topic, b"hangs")
    dialogue.produce(topic, batch(b"behind it"))
    assert str(producer.id) in run(TRANSACTIONS, "describe-producers", "--topic", topic, "--partition", "0")
    who = ["--producer-id", str(producer.id), "--producer-epoch", str(producer.epoch), "--coordinator-epoch", "0"]
    run(TRANSACTIONS, "abort", "--topic", topic, "--partition", "0", *(["--start-offset", "0"] if by_offset else who))
    assert dialogue.offset(topic, LATEST, isolation=1).offset == 3
    answer = run(
        CONSUMER, "--topic", topic, "--from-beginning", "--max-messages", "1", "--isolation-level", "read_committed"
    )
    assert answer.split("\n")[0] == "behind it"


def test_the_verifiable_producer_is_acknowledged_each_time(run: Run, dialogue: Dialogue, topic: str) -> None:
    answer = facts(run(TOOLS + "VerifiableProducer", "--topic", topic, "--max-messages", "500", "--acks", "-1"))
    sent = [fact for fact in answer if fact["name"] == "producer_send_success"]
    assert [fact["offset"] for fact in sent] == list(range(500))
    assert dialogue.offset(topic, LATEST).offset == 500


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_the_verifiable_consumer_reads_all_and_commits(
    run: Run, dialogue: Dialogue, topic: str, name: str, protocol: str
) -> None:
    numbered(dialogue, topic, 20)
    asked = ["--topic", topic, "--group-id", name, "--max-messages", "20", "--reset-policy", "earliest"]
    answer = facts(run(TOOLS + "VerifiableConsumer", *asked, "--group-protocol", protocol))
    events = [fact["name"] for fact in answer]
    assert {"partitions_assigned", "records_consumed", "offsets_committed", "shutdown_complete"} <= set(events)
    assert sum(fact["count"] for fact in answer if fact["name"] == "records_consumed") == 20
    assert offset_of(dialogue.wire, name, topic).committed_offset == 20


def test_the_producer_of_java_writes_transactions(run: Run, dialogue: Dialogue, topic: str, name: str) -> None:
    # In the new protocol where the broker tells of transaction.version 2.
    asked = ["--topic", topic, "--num-records", "200", "--record-size", "10", "--throughput", "-1"]
    run(TOOLS + "ProducerPerformance", *asked, "--transactional-id", name, "--transaction-duration-ms", "50")
    found = dialogue.read(topic, isolation_level=1)
    assert len(values(found)) == 200
    assert any(b.is_control for b in found)
    assert (
        dialogue.wire.ask("describe_transactions", 0, transactional_ids=[name]).transaction_states[0].transaction_state
        == "CompleteCommit"
    )


def test_offsets_of_a_topic_are_told(run: Run, dialogue: Dialogue, topic: str) -> None:
    dialogue.produce(topic, batch(*(Record(b"v", timestamp_ms=LONG_AGO_MS + 10 * n) for n in range(5))))
    for asked, offset in (("-3", 4), (str(LONG_AGO_MS + 15), 2)):
        assert run(OFFSETS, "--topic", topic, "--time", asked).split() == [f"{topic}:0:{offset}"]


def test_a_group_is_described_with_its_lag(run: Run, dialogue: Dialogue, topic: str, name: str) -> None:
    numbered(dialogue, topic, 10)
    committed(dialogue.wire, topic, 4, group_id=name)
    answer = run(GROUPS, "--describe", "--group", name, "--offsets").split("\n")
    (line,) = [line.split() for line in answer if line.startswith(name)]
    assert line[1:6] == [topic, "0", "4", "10", "6"]


def test_groups_are_listed_with_their_states(run: Run, dialogue: Dialogue, topic: str, name: str) -> None:
    committed(dialogue.wire, topic, 1, group_id=name)
    answer = [line.split() for line in run(GROUPS, "--list", "--state").splitlines()]
    assert [name, "Empty"] in answer


def test_offsets_of_a_group_are_reset(run: Run, dialogue: Dialogue, topic: str, name: str) -> None:
    numbered(dialogue, topic, 10)
    committed(dialogue.wire, topic, 4, group_id=name)
    run(GROUPS, "--reset-offsets", "--group", name, "--topic", topic, "--to-latest", "--execute")
    assert offset_of(dialogue.wire, name, topic).committed_offset == 10
    run(GROUPS, "--reset-offsets", "--group", name, "--topic", topic, "--shift-by", "-3", "--execute")
    assert offset_of(dialogue.wire, name, topic).committed_offset == 7


def test_offsets_and_groups_are_deleted(run: Run, dialogue: Dialogue, topic: str, name: str) -> None:
    committed(dialogue.wire, topic, 4, group_id=name)
    run(GROUPS, "--delete-offsets", "--group", name, "--topic", topic)
    assert offset_of(dialogue.wire, name, topic).committed_offset == -1
    committed(dialogue.wire, topic, 4, group_id=name)
    run(GROUPS, "--delete", "--group", name)
    assert name not in run(GROUPS, "--list").split()


def test_records_are_deleted(run: Run, dialogue: Dialogue, topic: str, tmp_path: Any) -> None:
    numbered(dialogue, topic, 10)
    file = tmp_path / "offsets.json"
    file.write_text(json.dumps({"partitions": [{"topic": topic, "partition": 0, "offset": 6}], "version": 1}))
    assert "low_watermark: 6" in run(TOOLS + "DeleteRecordsCommand", "--offset-json-file", str(file))
    assert dialogue.offset(topic, EARLIEST).offset == 6


def test_settings_are_changed_and_described(run: Run, topic: str) -> None:
    place = ["--entity-type", "topics", "--entity-name", topic]
    run("kafka.admin.ConfigCommand", *place, "--alter", "--add-config", "max.message.bytes=4321")
    assert "max.message.bytes=4321" in run("kafka.admin.ConfigCommand", *place, "--describe")


def test_transactions_are_listed_and_described(run: Run, dialogue: Dialogue, topic: str, name: str) -> None:
    producer = Transactional(dialogue, name)
    producer.put(topic, b"open")
    assert [name, "1", str(producer.id), "Ongoing"] in [
        [words[0], "1", words[2], words[3]]
        for line in run(TOOLS + "TransactionsCommand", "list").splitlines()
        if len(words := line.split()) >= 4
    ]
    answer = run(TOOLS + "TransactionsCommand", "describe", "--transactional-id", name)
    assert f"{topic}-0" in answer
    producers = run(TOOLS + "TransactionsCommand", "describe-producers", "--topic", topic, "--partition", "0")
    assert str(producer.id) in producers
    producer.abort()


def test_the_versions_of_the_broker_are_told(run: Run, bootstrap: str) -> None:
    answer = run(TOOLS + "BrokerApiVersionsCommand")
    assert bootstrap in answer
    assert "Fetch(1): 4 to 18" in answer
