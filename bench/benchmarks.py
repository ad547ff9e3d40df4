"""Every benchmark: what it measures, its table, and its options.

Rule 1: what is measured stands in the benchmark's own room; here is only which. Imports stand inside, as each needs other
        packages, and the options are made at every start of `waterclock`.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from waterclock.bench import tables

TURNED = 100_000  # requests a second where the clock is turned by hand
TIMERS_ALONE = {
    "driver": "what a program pays that uses an AsyncTimer, beside what its loop has",
    "floor": "the parts of an add, a cancel and an expiry that are not the wheel",
    "kafka": "Kafka's SystemTimer beside the compiled wheel and ArrayWheel",
    "heaps": "Java's heaps and Netty's wheel beside the compiled wheel",
    "levels": "what the number of levels costs",
    "ticking": "a thread that ticks beside one that sleeps until the next bucket",
}
DEEDS = 100_000  # of a driver, a round
Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Benchmark:
    """Measures, and shows what it measured; the rest is for its help."""

    measure: Callable[[argparse.Namespace, Tell], Any]
    table: Callable[[Any], str]
    what: str
    sizes: str  # what --sizes are
    defaults: Mapping[str, str]  # its options
    quick: Mapping[str, str] = field(default_factory=dict)  # those that --quick puts in their place
    parts: Mapping[str, str] = field(default_factory=dict)  # an option for each part that can be measured alone


def _timers(arguments: argparse.Namespace, tell: Tell) -> dict[str, Any]:
    from waterclock.bench.kafka.harness import built
    from waterclock.bench.kafka.heaps import JavaHeaps
    from waterclock.bench.kafka.timers import KafkaTimer
    from waterclock.bench.timers import driver, floor, lateness, levels, loop, memory, ticking, verbs

    sizes, rounds, seconds = arguments.sizes, arguments.rounds, arguments.seconds
    if any(getattr(arguments, part) for part in TIMERS_ALONE):
        return _parts_of_timers(arguments, tell)
    with built(tell) as java:
        by_verb = verbs.measure(verbs.CONTENDERS, sizes, rounds, tell, [KafkaTimer(java, tell), JavaHeaps(java, tell)])
    return {
        "pending": sizes,
        "rounds": rounds,
        **by_verb,
        "memory": memory.measure(verbs.CONTENDERS, sizes, tell),
        "lateness": lateness.measure(seconds, tell),
        "driver": driver.measure(DEEDS, rounds, tell),
        "floor": floor.measure(sizes, rounds, tell),
        "loop": loop.measure(min(loop.TIMERS, max(sizes)), seconds, rounds, tell),
        "levels": levels.measure(max(sizes), rounds, tell),
        "ticking": ticking.measure(tell),
    }


def _parts_of_timers(arguments: argparse.Namespace, tell: Tell) -> dict[str, Any]:
    from waterclock.bench.kafka.harness import built
    from waterclock.bench.kafka.heaps import JavaHeaps
    from waterclock.bench.kafka.timers import KafkaTimer
    from waterclock.bench.timers import driver, floor, levels, ticking, verbs

    sizes, rounds = arguments.sizes, arguments.rounds
    found: dict[str, Any] = {"pending": sizes, "rounds": rounds}
    if arguments.kafka or arguments.heaps:
        with built(tell) as java:
            rivals = [
                *([KafkaTimer(java, tell)] if arguments.kafka else []),
                *([JavaHeaps(java, tell)] if arguments.heaps else []),
            ]
            ours = verbs.CONTENDERS[: 2 if arguments.kafka else 1]
            found |= verbs.measure(ours, sizes, rounds, tell, rivals)
    if arguments.driver:
        found["driver"] = driver.measure(DEEDS, rounds, tell)
    if arguments.floor:
        found["floor"] = floor.measure(sizes, rounds, tell)
    if arguments.levels:
        found["levels"] = levels.measure(max(sizes), rounds, tell)
    if arguments.ticking:
        found["ticking"] = ticking.measure(tell)
    return found


def _idle(arguments: argparse.Namespace, tell: Tell) -> list[dict[str, Any]]:
    from waterclock.bench.timers import idle

    return [one for size in arguments.sizes for one in idle.measure(size, arguments.seconds, tell)]


def _idle_table(figures: Any) -> str:
    from waterclock.bench.timers.idle import table

    return table(figures)


def _wheel(arguments: argparse.Namespace, tell: Tell) -> dict[str, Any]:
    from waterclock.bench.timers import verbs

    sizes, rounds = arguments.sizes, arguments.rounds
    return {"pending": sizes, "rounds": rounds, **verbs.measure(verbs.STANDARD, sizes, rounds, tell)}


def _purgatory(arguments: argparse.Namespace, tell: Tell) -> dict[str, Any]:
    from waterclock.bench.kafka.harness import built
    from waterclock.bench.kafka.purgatory import KafkaPurgatory
    from waterclock.bench.purgatory import load, turned, verbs

    with built(tell) as found:
        kafka = KafkaPurgatory(found)
        return {
            "ns": verbs.measure(arguments.sizes, arguments.rounds, tell, kafka),
            "turned": turned.measure(min(TURNED, max(arguments.rates)), arguments.seconds, tell),
            "rates": load.measure(arguments.rates, arguments.seconds, tell, kafka),
            "notes": kafka.notes,
        }


def _pipeline(arguments: argparse.Namespace, tell: Tell) -> dict[str, Any]:
    from waterclock.bench import pipeline

    others = [name for name in arguments.contenders if name not in ("spark", "floor")]
    who = pipeline.EVERYBODY if "spark" in arguments.contenders else pipeline.BESIDE_NOTHING
    found: dict[str, Any] = {"by_hand": []}
    for rows_a_batch in arguments.sizes if len(others) < len(arguments.contenders) else []:
        with tempfile.TemporaryDirectory() as folder:
            runs = pipeline.measure(rows_a_batch, arguments.rounds, Path(folder), tell, who)
        found["by_hand"] += pipeline.table(runs, rows_a_batch)
    if others:
        from waterclock.bench.processors import campaign

        found["processors"] = campaign.measure(others, arguments.events, arguments.rounds, tell)
    return found


def _pipeline_table(figures: dict[str, Any]) -> str:
    from waterclock.bench.processors.table import table

    by_hand = [tables.pipeline(figures["by_hand"])] if figures["by_hand"] else []
    return "\n\n".join([*by_hand, *([table(figures["processors"])] if "processors" in figures else [])])


def _held(arguments: argparse.Namespace, tell: Tell) -> list[dict[str, Any]]:
    from waterclock.bench import held

    return held.measure(arguments.sizes, arguments.open, arguments.rounds, tell)


def _cores(arguments: argparse.Namespace, tell: Tell) -> list[dict[str, Any]]:
    from waterclock.bench import cores

    return cores.measure(arguments.sizes, arguments.rounds, tell)


def _cores_table(figures: list[dict[str, Any]]) -> str:
    from waterclock.bench.cores import table

    return table(figures)


def _bucket(arguments: argparse.Namespace, tell: Tell) -> list[dict[str, Any]]:
    from waterclock.bench import bucket

    return bucket.measure(arguments.sizes, arguments.rounds, tell)


def _latency(arguments: argparse.Namespace, tell: Tell) -> dict[str, Any]:
    from waterclock.bench.latency import campaign

    return campaign.measure(arguments.rounds, arguments.seconds, tell)


def _cdc(arguments: argparse.Namespace, tell: Tell) -> list[dict[str, Any]]:
    from waterclock.bench.cdc import campaign

    return campaign.measure(arguments.sizes, arguments.rounds, tell)


def _broker(arguments: argparse.Namespace, tell: Tell) -> dict[str, Any]:
    from waterclock.bench.broker import campaign

    return campaign.measure(arguments.sizes, arguments.rounds, arguments.seconds, tell)


def _neighbours(arguments: argparse.Namespace, tell: Tell) -> dict[str, Any]:
    from waterclock.bench.neighbours import campaign

    return campaign.measure(arguments.seconds, tell)


def _neighbours_table(figures: dict[str, Any]) -> str:
    from waterclock.bench.neighbours.campaign import table

    return table(figures)


def _damage(arguments: argparse.Namespace, tell: Tell) -> dict[str, Any]:
    from waterclock.bench.damage import campaign
    from waterclock.bench.damage.contenders import OURS

    return campaign.measure(arguments.rounds, arguments.ours, tell, [OURS] if arguments.ours else [])


def _damage_table(figures: dict[str, Any]) -> str:
    from waterclock.bench.damage.campaign import table

    return table(figures)


def _polling(arguments: argparse.Namespace, tell: Tell) -> dict[str, Any]:
    from waterclock.bench.polling import campaign

    return campaign.measure(arguments.sizes, arguments.rounds, arguments.seconds, tell)


def _polling_table(figures: dict[str, Any]) -> str:
    from waterclock.bench.polling.table import table

    return table(figures)


def _relay(arguments: argparse.Namespace, tell: Tell) -> dict[str, Any]:
    from waterclock.bench.relay import campaign, store

    found = {} if arguments.store else campaign.measure(arguments.sizes, arguments.seconds, tell, arguments.alone)
    return {**found, "store": store.figures(max(arguments.sizes), tell)}


def _relay_table(figures: dict[str, Any]) -> str:
    from waterclock.bench.relay.table import table

    return table(figures)


def _broker_table(figures: dict[str, Any]) -> str:
    from waterclock.bench.broker.table import table

    return table(figures)


BENCHMARKS: dict[str, Benchmark] = {
    "timers": Benchmark(
        _timers,
        tables.timers,
        (
            "what adding, cancelling and expiring cost beside others; memory, lateness, an asyncio loop, levels. "
            "Kafka's own timer, Java's heaps and Netty's wheel are among them where java, javac and mvn are on the PATH"
        ),
        "timers pending",
        {"sizes": "1k,100k,1M,10M", "rounds": "5", "seconds": "10"},
        {"sizes": "1k,1M", "rounds": "2", "seconds": "2"},
        parts=TIMERS_ALONE,
    ),
    "purgatory": Benchmark(
        _purgatory,
        tables.purgatory,
        (
            "what a delayed operation costs at rising rates, and which rate is held. "
            "Kafka's own purgatory beside it where java, javac and mvn are on the PATH"
        ),
        "operations pending, for the verbs",
        {"sizes": "1k,100k", "rounds": "5", "rates": "10k,25k,50k,100k,150k,200k", "seconds": "10"},
    ),
    "wheel": Benchmark(
        _wheel,
        tables.verbs,
        "the wheels beside the standard library, nothing to be installed",
        "timers pending",
        {"sizes": "1k,100k,1M", "rounds": "5"},
    ),
    "pipeline": Benchmark(
        _pipeline,
        _pipeline_table,
        (
            "the pipeline on both engines beside code by hand for Spark, Apache Flink and Kafka Streams (needs Spark; the "
            "last two java, javac and mvn on the PATH; half an hour)"
        ),
        "rows a batch, for the contenders spark and floor",
        {"sizes": "40k", "contenders": "spark,flink,flink-rocksdb,streams", "events": "100k,700k", "rounds": "1"},
    ),
    "held": Benchmark(
        _held,
        tables.held,
        "what a batch costs when more is held: keys, and open expectations; the size of the checkpoint (needs Spark)",
        "keys held",
        {"sizes": "20k,200k", "open": "1M", "rounds": "1"},
    ),
    "cores": Benchmark(
        _cores,
        _cores_table,
        "a pipeline on one core and on two of a standalone cluster that it starts (needs Spark, Java and two cores)",
        "rows a batch",
        {"sizes": "100k", "rounds": "1"},
    ),
    "bucket": Benchmark(
        _bucket,
        tables.bucket,
        "what an event costs one bucket, by part: the compiled engine beside the plain one, in process",
        "keys held",
        {"sizes": "20k,200k,2M", "rounds": "1"},
    ),
    "latency": Benchmark(
        _latency,
        tables.live_latency,
        (
            "from producing a message to its committed row, on both engines, beside Spark alone and a consumer alone "
            "(needs Spark; PostgreSQL too where it is there)"
        ),
        "",
        {"rounds": "1", "seconds": "60"},
    ),
    "broker": Benchmark(
        _broker,
        _broker_table,
        (
            "throughput, latency, transactions, memory and starts of the broker, alone and with many connections. "
            "Apache Kafka is beside it where java and mvn are on the PATH; 10 GB of disk"
        ),
        "connections and partitions, for the growth",
        {"sizes": "1,100,1k", "rounds": "3", "seconds": "5"},
    ),
    "neighbours": Benchmark(
        _neighbours,
        _neighbours_table,
        "a well-behaved client of the broker beside each kind of hostile one (5,000 connections; 2 GB of memory)",
        "",
        {"seconds": "20"},
    ),
    "damage": Benchmark(
        _damage,
        _damage_table,
        "one file of a server damaged, and who then misses acknowledged messages without being told",
        "",
        {"rounds": "3"},
        parts={"ours": "waterclock's broker, with every damage of every file"},
    ),
    "polling": Benchmark(
        _polling,
        _polling_table,
        (
            "a table of tasks that workers poll, beside a Timer: lateness, what idling costs, bursts "
            "(needs PostgreSQL; ten minutes)"
        ),
        "tasks pending, due in 100 days",
        {"sizes": "1k,100k,1M", "rounds": "3", "seconds": "4"},
        {"sizes": "10k", "rounds": "1", "seconds": "0.3"},
    ),
    "relay": Benchmark(
        _relay,
        _relay_table,
        (
            "delayed messages: how late, how quick, what they cost while they wait, on our broker, and on Apache Kafka "
            "where java and mvn are on the PATH; Redis, a polled table, procrastinate where they are there (12 minutes)"
        ),
        "messages pending, due within a week",
        {"sizes": "1M", "seconds": "5"},
        {"sizes": "20k", "seconds": "0.3"},
        {
            "store": "the relay's files alone, without Kafka",
            "alone": "the relay on waterclock's broker, without the others",
        },
    ),
    "cdc": Benchmark(
        _cdc,
        tables.cdc,
        "logs of MariaDB and PostgreSQL into the broker, beside Debezium (Java 17, Maven) and mysql-replication (MariaDB)",
        "row changes in the binlog",
        {"sizes": "300k", "rounds": "3"},
    ),
    "idle": Benchmark(
        _idle,
        _idle_table,
        "a server of many connections whose idle timeouts move with each message, kept in five ways (two minutes)",
        "connections",
        {"sizes": "20k", "seconds": "10"},
        {"sizes": "1k", "seconds": "3.5"},
    ),
}
