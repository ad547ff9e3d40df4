"""Which values a setting may have: its type, as clients get it, and how low and how high it goes.

Rule 1: a number without a row is an int, of 32 bits, without bounds.
Rule 2: a topic's own segments are 1 MiB or larger, as everywhere in Kafka; the broker's own may be smaller, for tests.
Source: topic and broker configuration of Apache Kafka's documentation.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from waterclock.errors import UsageError

# the numbers of DescribeConfigs for the types
TYPES: Final = {"boolean": 1, "string": 2, "int": 3, "short": 4, "long": 5, "double": 6, "list": 7}
SIZES: Final = {"int": 2**31, "long": 2**63}


class SettingBounds(NamedTuple):
    """The type, the lowest and the highest value; None if there is no bound."""

    kind: str
    lowest: float | None = None
    highest: float | None = None


ANY_INT: Final = SettingBounds("int")
BOUNDS: Final = {
    "connections.max.idle.ms": SettingBounds("long"),
    "default.replication.factor": SettingBounds("int", 1, 1),
    "fetch.max.bytes": SettingBounds("int", 1024),
    "log.cleaner.backoff.ms": SettingBounds("long", 0),
    "log.cleaner.delete.retention.ms": SettingBounds("long", 0),
    "log.cleaner.max.compaction.lag.ms": SettingBounds("long", 1),
    "log.cleaner.min.cleanable.ratio": SettingBounds("double", 0, 1),
    "log.cleaner.min.compaction.lag.ms": SettingBounds("long", 0),
    "log.flush.interval.messages": SettingBounds("long", 1),
    "log.flush.interval.ms": SettingBounds("long", 0),
    "log.index.interval.bytes": SettingBounds("int", 0),
    "log.index.size.max.bytes": SettingBounds("int", 4),
    "log.message.timestamp.after.max.ms": SettingBounds("long", 0),
    "log.message.timestamp.before.max.ms": SettingBounds("long", 0),
    "log.retention.bytes": SettingBounds("long"),
    "log.retention.check.interval.ms": SettingBounds("long", 1),
    "log.retention.ms": SettingBounds("long", -1),
    "log.roll.jitter.ms": SettingBounds("long", 0),
    "log.roll.ms": SettingBounds("long", 1),
    "log.segment.bytes": SettingBounds("int", 1),
    "log.segment.delete.delay.ms": SettingBounds("long", 0),
    "max.connections": SettingBounds("int", 0),
    "message.max.bytes": SettingBounds("int", 0),
    "min.insync.replicas": SettingBounds("int", 1),
    "node.id": SettingBounds("int", 0),
    "num.partitions": SettingBounds("int", 1),
    "offsets.retention.check.interval.ms": SettingBounds("long", 1),
    "offsets.retention.minutes": SettingBounds("int", 1),
    "queued.max.request.bytes": SettingBounds("long"),
    "queued.max.unauthenticated.bytes": SettingBounds("long"),
    "replica.lag.time.max.ms": SettingBounds("long"),
    "socket.request.max.bytes": SettingBounds("int", 1),
    "segment.bytes": SettingBounds("int", 1 << 20),
}


def check(name: str, used: str, text: str, value: Any) -> None:
    """UsageError if the number `value`, read from `text`, cannot be the setting's.

    `name` is the broker's name for it, `used` the name that was used.

    >>> check("log.retention.ms", "retention.ms", "-5", -5)
    Traceback (most recent call last):
        ...
    waterclock.errors.UsageError: Invalid value -5 for configuration retention.ms: must be -1 or more
    """
    bounds = BOUNDS.get(used) or BOUNDS.get(name, ANY_INT)
    size = SIZES.get(bounds.kind)
    if size is not None and not -size <= value < size:
        raise refused(used, text, f"is no number of type {bounds.kind.upper()}")
    if bounds.lowest is not None and not value >= bounds.lowest:
        raise refused(used, text, f"must be {bounds.lowest} or more")
    if bounds.highest is not None and not value <= bounds.highest:
        raise refused(used, text, f"must be {bounds.highest} or less")


def refused(name: str, text: str, why: str) -> UsageError:
    """The error for a value that cannot be."""
    return UsageError(f"Invalid value {text} for configuration {name}: {why}")
