"""What clients do: each workload makes its topics, spawns its clients, and holds what is there in the end against them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

from tests.simulation.capture import workload as capture
from tests.simulation.clients import compaction, groups, lives, log, rights, trimming
from tests.simulation.kafka import Kafka
from tests.simulation.relay import workload as relay
from tests.simulation.rules import workload as rules


@dataclass(frozen=True)
class Workload:
    """`share`: how many universes have it. `settings`: what the broker needs for it, from its first start on."""

    name: str
    share: float
    begin: Callable[[Any], Awaitable[None]]
    verify: Callable[[Any, Kafka], Awaitable[None]]
    settings: Mapping[str, str] = field(default_factory=dict)


WORKLOADS = (
    Workload("producers", 0.9, log.producers, log.judged),
    Workload("transactions", 0.8, log.transactions, log.judged),
    Workload("transform", 0.8, log.transform, log.judged),
    Workload("readers", 0.8, log.readers, log.judged),
    Workload("committer", 0.6, log.committer, log.judged),
    Workload("members", 0.4, log.members, log.judged),
    Workload("compaction", 0.2, compaction.begin, compaction.verify, {"log.cleaner.backoff.ms": "300"}),
    Workload("retention", 0.2, trimming.retention, trimming.retained, {"log.retention.check.interval.ms": "300"}),
    Workload("deletions", 0.2, trimming.deletions, trimming.deleted),
    Workload("lives", 0.2, lives.begin, lives.verify),
    Workload("rights", 0.15, rights.begin, rights.verify, rights.SETTINGS),
    Workload("groups", 0.25, groups.begin, groups.verify, groups.SETTINGS),
    Workload("capture", 0.1, capture.begin, capture.verify),
    *([Workload("rules", 0.1, rules.begin, rules.verify)] if find_spec("pyspark") else []),
    Workload("relay", 0.1, relay.begin, relay.verify),  # the last one: the date jumps
    *([Workload("local", 0, rules.begin_local, rules.verify)] if find_spec("pyspark") else []),  # by its name alone
)
