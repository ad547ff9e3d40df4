"""From topic to topic on Apache Kafka, killed at each step: `make test-servers` runs it, with BROKERS=ours,apache."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from tests.local.crash_driver import STEPS
from tests.local.places import found, into
from tests.local.running import driven, run_locally
from tests.local.test_kills import plain
from tests.relay.brokers import ON_APACHE, running
from tests.sinks.stores import COUNTERS, SCHEMA, TopicStore, batch
from tests.spark.pipelines import orders
from tests.spark.topics import Sender, make_topic_pipeline
from waterclock.kafka.admin import Admin
from waterclock.sinks import apply_once

pytestmark = [*ON_APACHE, pytest.mark.long(seconds=40)]


def test_what_is_killed_and_what_is_folded_is_as_on_ours(tmp_path: Path) -> None:
    with running("apache", tmp_path / "kafka") as kafka:
        Admin({"bootstrap.servers": kafka.bootstrap}).make("orders", 3)
        Sender(kafka.bootstrap, "orders").orders(orders(120))
        stores = [TopicStore(kafka.bootstrap) for _ in range(2)]
        peace, killed = (
            into(plain(make_topic_pipeline(tmp_path / name, kafka.bootstrap, "orders", more="per_batch = 30")), store)
            for name, store in zip(("peace", "killed"), stores, strict=True)
        )
        run_locally(peace)
        for step in STEPS[:-1]:
            assert driven(killed, step, 2) is None
        assert driven(killed) is not None
        assert found(stores[1]) == found(stores[0])
        assert len(found(stores[0])[0]) > 300
        check_folded(TopicStore(kafka.bootstrap))


def check_folded(store: TopicStore) -> None:
    with closing(store.sink()) as sink:
        sink.open(SCHEMA)
        for number in range(4):
            apply_once(sink, replace(batch(number), is_logged=True))
        sink.fold("q", 2)
    with closing(store.sink()) as again:
        again.open(SCHEMA)
        assert again.inputs("q") == [(2, "offsets 2"), (3, "offsets 3")]
        assert again.totals() == {name: 4 * value for name, value in COUNTERS.items()}
