"""What each command shows Prometheus, of records whose every field is filled: pages.txt has the names, kinds, helps, labels
and values. Who has a dashboard or an alert of them relies on each."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("kio")

from tests.web.reading import read_back
from waterclock.broker import statistics as broker
from waterclock.cdc import statistics as cdc
from waterclock.purgatory import PurgatoryStatistics
from waterclock.relay import statistics as relay
from waterclock.streaming import statistics as spark

BROKER = broker.BrokerStatistics(
    connections=1, requests={"Produce": 3, "Fetch": 2}, bytes_in=4, bytes_out=5, records_in=6, record_bytes_in=7,
    topics=8, partitions=9,
    purgatories={"produce": PurgatoryStatistics(10, 11, 12, 13, 14), "fetch": PurgatoryStatistics(0, 0, 0, 0, 0)},
    flushes=broker.FlushStatistics(15, 16, 17.0, 18.5), groups={"Stable": 19, "Empty": 20}, group_members=21,
    transactions={"Ongoing": 22}, replication=broker.ReplicationStatistics(True, "a:1", 23, 24),
    scrub=broker.ScrubStatistics(25, 26, 27), lags={"g": broker.GroupLag("Stable", 28, 29, 30)},
)  # fmt: skip
RELAY = relay.RelayStatistics(
    "g", "delays", 1, 2, {"replaced": 3, "cancelled": 4}, 5, 6, 7, 8, 9, 10, 11, {"1": 1, "more": 2}, 2500, 1500,
    {0: relay.PartitionStatistics(1, 2, 3500, 4, 5, True, 6, 7, 8, 9, 10, 11, 12, 13),
     1: relay.PartitionStatistics(0, 0, None, 0, 0, False)},
    {2: relay.StandbyStatistics(1, 2, 3, 4, "no room"), 3: relay.StandbyStatistics()}, 4,
)  # fmt: skip
PIPELINE = spark.PipelineStatistics(
    "orders", 3, 7,
    {"events": 1, "results": 2, "released": 3, "reordered": 4, "duplicates": 5, "late": 6, "dead_letters": 7,
     "heartbeats": 8, "held": 9, "pending": 10, "state_bytes": 11, "of_a_later_version": 12},
    0.5, 0.25, 1_000_000, 4_500_000, 11_000_000, "records", {"a/b/0": 5, "c/11": 0}, 16, 2_000,
    {"take": spark.Phase(0.5, 1.5, 3), "sink": spark.Phase(0.25, 0.75, 3)},
)  # fmt: skip
FILES = spark.PipelineStatistics("files", unit="files", behind={"": 4})
CAPTURE = cdc.CaptureStatistics(1, 2, 3, 4, "a-1-2", 5, 6, 7, 8)

PAGES = {
    "broker": lambda: broker.prometheus(BROKER),
    "relay": lambda: relay.prometheus(RELAY),
    "run": lambda: spark.prometheus(PIPELINE) + spark.prometheus(FILES),
    "cdc": lambda: cdc.prometheus("shop", CAPTURE),
}
PARTS = [part.partition("\n") for part in Path(__file__).with_name("pages.txt").read_text().split("== ")[1:]]
EXPECTED = {name: page for name, _, page in PARTS}


@pytest.mark.parametrize("command", PAGES)
def test_a_command_shows_prometheus_these_metrics_and_no_others(command: str) -> None:
    page = PAGES[command]()
    assert sorted(page.splitlines()) == sorted(filter(None, EXPECTED[command].splitlines()))
    assert len(read_back(page)) == len({line for line in page.splitlines() if line.startswith("# TYPE")})


@pytest.mark.parametrize("record", [BROKER, RELAY, PIPELINE, CAPTURE], ids=lambda record: type(record).__name__)
def test_no_field_of_a_record_is_forgotten(record: object) -> None:
    """A figure is on the page, or stands here with what else shows it."""
    shown_elsewhere = {
        "batch_id", "events_per_second", "results_per_second", "now_us", "unit",  # Prometheus makes rates itself
        "lateness_ms", "lateness_worst_ms", "partitions_of_topic", "spans", "place",  # for a person, in the JSON
        "letters", "waits", "fullest", "watermarks", "held_keys",  # likewise: texts, and labels without end
        "flushes", "replication", "scrub",  # records with fields of their own
    }  # fmt: skip
    silent = {field.name for field in fields(record) if not field.metadata}  # type: ignore[arg-type]
    assert silent <= shown_elsewhere
