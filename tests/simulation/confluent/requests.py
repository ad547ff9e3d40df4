"""Requests of Kafka's protocol as dictionaries: kio's names of APIs and fields."""

from __future__ import annotations

import io
from datetime import timedelta
from functools import cache, lru_cache
from importlib import import_module
from typing import Any, get_args, get_type_hints

from confluent_kafka import KafkaError, KafkaException
from kio.serial import entity_reader, entity_writer

from tests.simulation.kafka import Gone, Kafka

VERSIONS = {
    "produce": 7, "fetch": 11, "list_offsets": 4, "metadata": 10, "offset_fetch": 7, "join_group": 5, "sync_group": 3,
    "heartbeat": 3, "leave_group": 3, "describe_groups": 4, "create_topics": 5, "delete_records": 1,
    "init_producer_id": 4, "add_partitions_to_txn": 2, "add_offsets_to_txn": 2, "end_txn": 2, "txn_offset_commit": 3,
    "describe_configs": 2, "offset_commit": 8,
}  # fmt: skip
ALIKE = 512
"""Requests and answers that are kept: most of a consumer's are like the last one."""
AWAY = frozenset((5, 6, 7, 13, 14, 15, 16, 19, 20, 51, 56))  # the same may be asked again
_written: dict[str, bytes] = {}


@cache
def _schema(api: str) -> tuple[Any, Any, Any]:
    name = "".join(word.title() for word in api.split("_"))
    place = f"kio.schema.{api}.v{VERSIONS[api]}"
    kind = getattr(import_module(f"{place}.request"), f"{name}Request")
    answer = getattr(import_module(f"{place}.response"), f"{name}Response")
    return kind, entity_writer(kind), entity_reader(answer)


@cache
def _kinds(entity: Any) -> dict[str, Any]:
    """The entities that a field is an array of."""
    inner = {
        name: [a for h in (hint, *get_args(hint)) for a in get_args(h)] for name, hint in get_type_hints(entity).items()
    }
    return {name: kind for name, some in inner.items() for kind in some if hasattr(kind, "__type__")}


def _made(entity: Any, values: dict[str, Any]) -> Any:
    kinds, made = _kinds(entity), dict[str, Any]()
    for name, value in values.items():
        kind = kinds.get(name)
        is_several = isinstance(value, list)
        made[name] = tuple(one if kind is None else _made(kind, one) for one in value) if is_several else value
    return entity(**made)


async def ask(kafka: Kafka, api: str, /, timeout_s: float = 10.0, **values: Any) -> Any:
    """The answer; Gone if none came."""
    kind, write, _ = _schema(api)
    known = f"{api} {values}"
    if (body := _written.get(known)) is None:
        out = io.BytesIO()
        write(out, _made(kind, values))
        if len(_written) == ALIKE:
            _written.clear()
        body = _written[known] = out.getvalue()
    answer = await kafka.connection().call(kind.__api_key__, kind.__version__, body, timeout_s, kind.__flexible__)
    return _read(api, answer.data[answer.at :])


@lru_cache(ALIKE)
def _read(api: str, data: bytes) -> Any:
    return _schema(api)[2](data, 0)[0]


def ms(count: float) -> timedelta:
    return timedelta(milliseconds=int(count))


def error(code: int, **kinds: bool) -> KafkaError:
    """librdkafka's or Kafka's."""
    return KafkaError(int(code), KafkaError(int(code)).str(), **kinds)


def raised(code: int, **kinds: bool) -> KafkaException:
    return KafkaException(error(code, **kinds))


def by_topic(places: Any, topic: str, rows: str) -> list[dict[str, Any]]:
    """Rows of ((topic, number), row) as arrays of topics that have arrays of rows."""
    found: dict[str, list[Any]] = {}
    for (name, _), row in places:
        found.setdefault(name, []).append(row)
    return [{topic: name, rows: some} for name, some in found.items()]


async def partitions(kafka: Kafka, topic: str) -> tuple[int, int]:
    """The error that Kafka has of a topic, and how many partitions there are."""
    (found,) = (await topics(kafka, [topic])).values()
    return int(found.error_code), len(found.partitions)


async def metadata(kafka: Kafka, names: list[str] | None) -> Any:
    """Of these topics, or of all; and who the brokers are."""
    rows = None if names is None else [{"topic_id": None, "name": name} for name in names]
    return await ask(
        kafka, "metadata", topics=rows, allow_auto_topic_creation=False, include_cluster_authorized_operations=False,
        include_topic_authorized_operations=False,
    )  # fmt: skip


async def topics(kafka: Kafka, names: list[str] | None) -> dict[str, Any]:
    return {one.name: one for one in (await metadata(kafka, names)).topics}


async def offset_of(kafka: Kafka, place: tuple[str, int], when: int, committed: bool) -> tuple[int, int]:
    """An error, and the offset of a moment: -1 is the end, -2 the beginning."""
    row = {"partition_index": place[1], "timestamp": when}
    answer = await ask(
        kafka, "list_offsets", replica_id=-1, isolation_level=int(committed),
        topics=[{"name": place[0], "partitions": [row]}],
    )  # fmt: skip
    found = answer.topics[0].partitions[0]
    if found.error_code in (6, 16):
        kafka.close()
    return int(found.error_code), found.offset


__all__ = ["AWAY", "Gone", "Kafka", "ask", "by_topic", "error", "metadata", "ms", "offset_of", "partitions", "raised",
           "topics"]  # fmt: skip
