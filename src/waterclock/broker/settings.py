"""The broker's settings, under Kafka's names, with Kafka's defaults if they make sense on one machine.

Rule 1: one table. What a topic may say differently has its topic's name in it; what a topic does not say, the broker does.
Rule 2: values come as text, from `--set KEY=VALUE` and from clients, and are checked when they are set.
Rule 3: BOUNDS has a number's type, as clients get it, and how low and how high it goes. A number without a row is an int,
    of 32 bits, without bounds.
Rule 4: a topic's own segments are 1 MiB or larger, as everywhere in Kafka; the broker's own may be smaller, for tests.
Source: broker and topic configuration of Apache Kafka's documentation.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from waterclock.errors import UsageError, meant

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


LONGEST: Final = 2**63 - 1
HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS
LEADER_THROTTLED: Final = "leader.replication.throttled.replicas"
FOLLOWER_THROTTLED: Final = "follower.replication.throttled.replicas"
AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


@dataclass(frozen=True)
class Setting:
    """One setting: its name, the topic's name for it (or None), how text becomes a value, its default, its sense."""

    name: str
    topic: str | None
    read: Callable[[str], Any]
    default: str
    doc: str

    @property
    def kind(self) -> str:
        """The type's name, as clients get it."""
        kind = KINDS.get(self.read, "string")
        return BOUNDS.get(self.name, ANY_INT).kind if kind == "number" else kind


def _int(text: str) -> int:
    if not re.fullmatch(r"[+-]?[0-9]+", text):
        raise ValueError("is not a number")
    return int(text)


def _bool(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("must be true or false")
    return text.lower() == "true"


def _float(text: str) -> float:
    if not re.fullmatch(r"[0-9.eE+-]+", text):
        raise ValueError("is not a number")
    return float(text)


def _list(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _policy(text: str) -> tuple[str, ...]:
    if not set(_list(text)) <= {"delete", "compact"}:
        raise ValueError("must be delete, compact, or both")
    return _list(text)


def _one_of(*values: str, lowered: bool = False) -> Callable[[str], str]:
    """Reads a setting that is one of a few words; `lowered`: in capitals or not."""
    allowed = f"{', '.join(values[:-1])} or {values[-1]}"

    def read(text: str) -> str:
        word = text.lower() if lowered else text
        if word not in values:
            raise ValueError(f"must be {allowed}")
        return word

    return read


_timestamp_type = _one_of("CreateTime", "LogAppendTime")
_migration = _one_of("disabled", "upgrade", "downgrade", "bidirectional", lowered=True)
_compression = _one_of("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd")


def _authorizer(text: str) -> str:
    if text not in ("", AUTHORIZER):
        raise ValueError(f"must be {AUTHORIZER}, or nothing")
    return text


def _principals(text: str) -> frozenset[str]:
    named = [part.strip() for part in text.split(";") if part.strip()]
    if not all(":" in one for one in named):
        raise ValueError("must be principals such as User:alice, with ; between them")
    return frozenset(named)


def _only(value: str, why: str) -> Callable[[str], str]:
    """What has no meaning here but as it is, and is taken with that value: Kafka's tools copy a topic's settings whole."""

    def read(text: str) -> str:
        if text.lower() != value:
            raise ValueError(f"must be {value or 'empty'} here: {why}")
        return value

    return read


_not_tiered = _only("false", "all records are on this broker's disk, there is no remote storage")
_as_retention = _only("-2", "without remote storage retention.ms and retention.bytes say all of it")
_not_throttled = _only("", "a follower copies as fast as it can")
KINDS: Final[dict[Any, str]] = {
    _int: "number", _float: "number", _bool: "boolean", _list: "list", _policy: "list",
    _not_tiered: "boolean", _as_retention: "long", _not_throttled: "list",
}  # fmt: skip

_TABLE: Final = (
    ("node.id", None, _int, "1", "the broker's id, kept in its folder; of a follower, unless set: not its leader's"),
    ("num.partitions", None, _int, "1", "partitions of a topic that is created without a number"),
    ("default.replication.factor", None, _int, "1", "always 1 here: a follower is not assigned, it follows everything"),
    ("auto.create.topics.enable", None, _bool, "true", "whether asking for a topic's metadata may create it"),
    ("delete.topic.enable", None, _bool, "true", "whether topics may be deleted"),
    ("log.cleanup.policy", "cleanup.policy", _policy, "delete", "delete old segments, compact by key, or both"),
    ("log.retention.ms", "retention.ms", _int, str(7 * DAY_MS), "how long records stay, by their timestamps; -1: for ever"),
    ("log.retention.bytes", "retention.bytes", _int, "-1", "how large a partition may grow; -1: without limit"),
    ("log.segment.bytes", "segment.bytes", _int, str(1 << 30), "how large a file of the log grows"),
    ("log.roll.ms", "segment.ms", _int, str(7 * DAY_MS), "how long a file of the log is written to"),
    ("log.retention.check.interval.ms", None, _int, "300000", "how often retention looks for what is too old"),
    ("log.initial.task.delay.ms", None, _int, "30000", "how long retention, compaction and the scrub wait after a start"),
    ("group.consumer.assignment.interval.ms", None, _int, "1000", "accepted; assignments are made at once here"),
    ("log.segment.delete.delay.ms", "file.delete.delay.ms", _int, "60000", "accepted; files go at once here"),
    ("message.max.bytes", "max.message.bytes", _int, str(1_048_588), "the largest record batch"),
    ("log.message.timestamp.type", "message.timestamp.type", _timestamp_type, "CreateTime", "whose time records have"),
    ("log.message.timestamp.before.max.ms", "message.timestamp.before.max.ms", _int, str(LONGEST), "how old a record is"),
    ("log.message.timestamp.after.max.ms", "message.timestamp.after.max.ms", _int, str(HOUR_MS), "how far ahead"),
    ("min.insync.replicas", "min.insync.replicas", _int, "1", "replicas that acks=all needs in sync"),
    ("compression.type", "compression.type", _compression, "producer", "accepted; batches are kept as they came"),
    ("compression.gzip.level", "compression.gzip.level", _int, "-1", "accepted; nothing is compressed here"),
    ("compression.lz4.level", "compression.lz4.level", _int, "9", "accepted; nothing is compressed here"),
    ("compression.zstd.level", "compression.zstd.level", _int, "3", "accepted; nothing is compressed here"),
    ("log.cleaner.min.cleanable.ratio", "min.cleanable.dirty.ratio", _float, "0.5", "share of new records to compact at"),
    ("log.cleaner.delete.retention.ms", "delete.retention.ms", _int, str(DAY_MS), "how long a deletion stays readable"),
    ("log.cleaner.min.compaction.lag.ms", "min.compaction.lag.ms", _int, "0", "how long a record is safe from compaction"),
    ("log.cleaner.max.compaction.lag.ms", "max.compaction.lag.ms", _int, str(LONGEST), "when compaction is due anyway"),
    ("log.cleaner.backoff.ms", None, _int, "15000", "how often compaction looks for work"),
    ("log.flush.interval.messages", "flush.messages", _int, str(LONGEST), "accepted; every append is flushed here"),
    ("log.flush.interval.ms", "flush.ms", _int, str(LONGEST), "accepted; every append is flushed here"),
    ("log.index.interval.bytes", "index.interval.bytes", _int, "4096", "accepted; 4096 here"),
    ("log.index.size.max.bytes", "segment.index.bytes", _int, str(10 << 20), "accepted; without limit here"),
    ("log.roll.jitter.ms", "segment.jitter.ms", _int, "0", "accepted; none here"),
    ("log.preallocate", "preallocate", _bool, "false", "accepted; never here"),
    ("unclean.leader.election.enable", "unclean.leader.election.enable", _bool, "false", "accepted; there is no election"),
    ("remote.storage.enable", "remote.storage.enable", _not_tiered, "false", "false alone: there is no remote storage"),
    ("remote.log.copy.disable", "remote.log.copy.disable", _not_tiered, "false", "false alone: the same"),
    ("remote.log.delete.on.disable", "remote.log.delete.on.disable", _not_tiered, "false", "false alone: the same"),
    ("log.local.retention.ms", "local.retention.ms", _as_retention, "-2", "-2 alone: as log.retention.ms says"),
    ("log.local.retention.bytes", "local.retention.bytes", _as_retention, "-2", "-2 alone: as log.retention.bytes says"),
    (LEADER_THROTTLED, LEADER_THROTTLED, _not_throttled, "", "empty alone: nothing is throttled"),
    (FOLLOWER_THROTTLED, FOLLOWER_THROTTLED, _not_throttled, "", "empty alone: nothing is throttled"),
    ("socket.request.max.bytes", None, _int, str(100 << 20), "the largest request"),
    ("max.connections", None, _int, "10000", "open connections; one more is closed"),
    ("connections.max.idle.ms", None, _int, "600000", "after which silence a connection is closed"),
    ("queued.max.request.bytes", None, _int, str(512 << 20), "bytes of requests held at once before readers wait"),
    ("queued.max.unauthenticated.bytes", None, _int, str(16 << 20), "the same, of who has not said who he is"),
    ("socket.request.timeout.ms", None, _int, "30000", "in which a request that was begun must arrive; 0: no limit"),
    ("fetch.max.bytes", None, _int, str(55 << 20), "the most that one fetch answers"),
    ("group.min.session.timeout.ms", None, _int, "6000", "the shortest session of a group's member"),
    ("group.max.session.timeout.ms", None, _int, "1800000", "the longest session of a group's member"),
    ("group.initial.rebalance.delay.ms", None, _int, "0", "how long an empty group waits for more members"),
    ("group.max.size", None, _int, str(2**31 - 1), "members of a group"),
    ("group.consumer.session.timeout.ms", None, _int, "45000", "session of a member under the new protocol"),
    ("group.consumer.heartbeat.interval.ms", None, _int, "5000", "heartbeats of a member under the new protocol"),
    ("group.consumer.max.size", None, _int, str(2**31 - 1), "members of a group under the new protocol"),
    ("group.consumer.min.session.timeout.ms", None, _int, "45000", "accepted; groups have no settings of their own"),
    ("group.consumer.max.session.timeout.ms", None, _int, "60000", "accepted; groups have no settings of their own"),
    ("group.consumer.min.heartbeat.interval.ms", None, _int, "5000", "accepted; groups have no settings of their own"),
    ("group.consumer.max.heartbeat.interval.ms", None, _int, "15000", "accepted; groups have no settings of their own"),
    ("group.consumer.assignors", None, _list, "uniform,range", "assignors of the new protocol; the first is the default"),
    ("group.consumer.migration.policy", None, _migration, "bidirectional", "which protocols a group may change between"),
    ("offset.metadata.max.bytes", None, _int, "4096", "text that a committed offset may carry"),
    ("offsets.retention.minutes", None, _int, "10080", "how long offsets of an empty group are kept"),
    ("offsets.retention.check.interval.ms", None, _int, "600000", "how often they are looked at"),
    ("authorizer.class.name", None, _authorizer, "", "who may do what: nothing for no ACLs, or Kafka's StandardAuthorizer"),
    ("super.users", None, _principals, "", "who may do everything whatever the ACLs say: User:alice;User:bob"),
    ("allow.everyone.if.no.acl.found", None, _bool, "false", "whether what no ACL is about is everybody's"),
    ("transaction.max.timeout.ms", None, _int, "900000", "the longest timeout of a transaction"),
    ("transactional.id.expiration.ms", None, _int, str(7 * DAY_MS), "how long an idle transactional id is known"),
    ("transaction.abort.timed.out.transaction.cleanup.interval.ms", None, _int, "10000", "accepted; to the moment here"),
    ("producer.id.expiration.ms", None, _int, str(DAY_MS), "how long an idle producer's sequence is known"),
    ("producer.id.expiration.check.interval.ms", None, _int, "600000", "how often idle producers are looked for"),
    ("replica.lag.time.max.ms", None, _int, "30000", "after which lag a follower is out of sync"),
    ("replica.fetch.wait.max.ms", None, _int, "500", "how long a follower's fetch waits"),
)  # fmt: skip

SETTINGS: Final = {row[0]: Setting(*row) for row in _TABLE}
ADVERTISED: Final = Setting(
    "advertised.listeners", None, _list, "", "where clients find the broker, as --advertise says it"
)
"""Described with the others, and not set by them."""
TOPIC_SETTINGS: Final = {setting.topic: setting for setting in SETTINGS.values() if setting.topic is not None}


def checked(setting: Setting, name: str, text: str) -> Any:
    """The value that `text` stands for; UsageError naming the setting if it stands for none."""
    try:
        value = setting.read(text.strip())
    except ValueError as error:
        raise refused(name, text, str(error)) from error
    if KINDS.get(setting.read) == "number":
        check(setting.name, name, text, value)
    return value


def check_topic(given: Mapping[str, str]) -> None:
    """UsageError if one of these cannot be a topic's."""
    for name, text in given.items():
        if name not in TOPIC_SETTINGS:
            raise UsageError(f"Unknown topic config name: {name}")
        checked(TOPIC_SETTINGS[name], name, text)


class Settings:
    """The broker's own settings: given ones over the defaults.

    >>> Settings({"num.partitions": "3"})["num.partitions"]
    3
    """

    def __init__(self, given: Mapping[str, str] | None = None) -> None:
        self.given: dict[str, str] = {}
        self._values: dict[str, Any] = {name: s.read(s.default) for name, s in SETTINGS.items()}
        for name, text in (given or {}).items():
            self.set(name, text)

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def text(self, name: str) -> str:
        return self.given.get(name, SETTINGS[name].default)

    def set(self, name: str, text: str | None) -> None:
        """Give a setting another value, or with None its default again; UsageError if that cannot be."""
        if name not in SETTINGS:
            hint = meant(name, SETTINGS, "`waterclock broker --settings` lists them")
            raise UsageError(f"There is no setting {name!r}; {hint}")
        setting = SETTINGS[name]
        self._values[name] = checked(setting, name, setting.default if text is None else text)
        self.given.pop(name, None)
        if text is not None:
            self.given[name] = text.strip()


class TopicSettings:
    """What holds for one topic. The fields that every append asks for are kept as attributes."""

    __slots__ = (
        "append_time", "broker", "compact", "given", "max_message_bytes", "min_insync", "segment_bytes", "segment_ms",
        "timestamp_after_ms", "timestamp_before_ms",
    )  # fmt: skip

    def __init__(self, broker: Settings, given: Mapping[str, str] | None = None) -> None:
        self.broker, self.given = broker, dict(given or {})
        self.refresh()

    def __getitem__(self, name: str) -> Any:
        """The value of the topic's setting `name`, such as retention.ms."""
        setting = TOPIC_SETTINGS[name]
        if name in self.given:
            return setting.read(self.given[name])
        return self.broker[setting.name]

    def replace(self, given: Mapping[str, str]) -> None:
        """Other settings of its own from now on; UsageError, and nothing changed, if one cannot be."""
        check_topic(given)
        self.given = {name: text.strip() for name, text in given.items()}
        self.refresh()

    def refresh(self) -> None:
        """Take the attributes from the settings again."""
        self.append_time: bool = self["message.timestamp.type"] == "LogAppendTime"
        self.compact: bool = "compact" in self["cleanup.policy"]
        self.min_insync: int = self["min.insync.replicas"]
        self.max_message_bytes: int = self["max.message.bytes"]
        self.segment_bytes: int = self["segment.bytes"]
        # a compaction never reads the segment that is written to: what is due for one must not stay in it
        self.segment_ms: int = min(self["segment.ms"], self["max.compaction.lag.ms"] if self.compact else LONGEST)
        self.timestamp_after_ms: int = self["message.timestamp.after.max.ms"]
        self.timestamp_before_ms: int = self["message.timestamp.before.max.ms"]
