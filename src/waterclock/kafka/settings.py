"""librdkafka's settings: where they come from, which of them keep a promise. No Kafka client in this file.

Rule 1: what a user gives wins over what only makes a client quiet or quick; what keeps a promise wins over the user.
Rule 2: a secret need not stand in a file: a value {env = "NAME"} is taken from the environment.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from waterclock.errors import UsageError
from waterclock.outside import os

QUIET = {"log_level": "2"}  # a broker that is away is an error of one sentence, not twenty lines a second

# Of a client that outlasts a broker's absence. One that was away for a moment is found at once: one client that waits for
# longer than another would read less than it delivers. One that is away for long is looked for every two seconds; if its
# machine refuses the connection, librdkafka 2.16 looks after half of the first of these, however long that lasts.
LASTING = {"reconnect.backoff.ms": 50, "reconnect.backoff.max.ms": 2_000}

_READING = {  # setting -> its value, and why nobody else may say it
    "isolation.level": ("read_committed", "only committed records are read"),
    "auto.offset.reset": ("error", "a reader knows where it begins"),
    "enable.auto.commit": ("false", "offsets are kept with the results"),
    "enable.auto.offset.store": ("false", "offsets are kept with the results"),
    "enable.partition.eof": ("true", "the end of a partition must be seen"),
}
READING = {name: value for name, (value, _) in _READING.items()}
WHY_READING = {name: why for name, (_, why) in _READING.items()}

SENDING = {
    "acks": "all",
    "enable.idempotence": True,
    "partitioner": "murmur2_random",  # as Kafka's own clients: who else writes by key finds the same partition
    "compression.type": "lz4",
    "linger.ms": 5,
    "queue.buffering.max.messages": 200_000,
    "queue.buffering.max.kbytes": 262_144,
    "message.max.bytes": 1_000_000_000,  # how large a message may be is for the topic to say
    "delivery.report.only.error": True,
    "allow.auto.create.topics": False,  # a misspelt name must not become a topic: who wants one makes it
}

WHY_SENDING = {
    **dict.fromkeys(("acks", "request.required.acks"), "what was written is with all replicas"),
    "enable.idempotence": "each record is written once",
    "transactional.id": "a transaction belongs to what it writes to",
    "partitioner": "records of one key stand in one partition, where Kafka's own clients put them",
    "isolation.level": "only committed records are read",
}


# What only makes a producer quick -> the names that librdkafka knows it by.
USERS = {
    "linger.ms": {"linger.ms", "queue.buffering.max.ms"},
    "compression.type": {"compression.type", "compression.codec"},
    **{name: {name} for name in ("queue.buffering.max.messages", "queue.buffering.max.kbytes", "message.max.bytes")},
}


def producing(given: Mapping[str, Any], own: Mapping[str, Any] = SENDING) -> dict[str, Any]:
    """Rule 1, for a producer that is to have its `own` settings.

    >>> producing({"queue.buffering.max.ms": "0", "acks": "1"}, {"linger.ms": 5, "acks": "all"})
    {'queue.buffering.max.ms': '0', 'acks': 'all'}
    """
    return {**given, **{name: own[name] for name in own if USERS.get(name, set()).isdisjoint(given)}}


def base_settings(servers: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """What every client at `servers` has in common; `given` are a user's, for TLS, SASL and the like.

    >>> base_settings("h:9092", {"client.id": "me"})
    {'log_level': '2', 'client.id': 'me', 'bootstrap.servers': 'h:9092'}
    """
    return {**QUIET, **given, "bootstrap.servers": servers}


def refuse_own(where: str, given: Iterable[str], own: Mapping[str, str]) -> None:
    """Raise UsageError if one of the settings `given` in `where` is in `own`: setting -> why it cannot be set.

    >>> refuse_own("[source.client]", ["isolation.level"], WHY_READING)
    Traceback (most recent call last):
    ...
    waterclock.errors.UsageError: [source.client]: 'isolation.level' cannot be set: only committed records are read
    """
    for name in given:
        if name in own:
            raise UsageError(f"{where}: {name!r} cannot be set: {own[name]}")


def from_text(where: str, text: str) -> dict[str, str]:
    """Settings from a text: `key=value`, a line each; # begins a comment. UsageError for another line, and for what keeps a
    promise, unless it is said as we have it.

    >>> from_text("--kafka-config", "# TLS\\nsecurity.protocol = ssl")
    {'security.protocol': 'ssl'}
    """
    settings = {}
    for line in (line.strip() for line in text.splitlines()):
        if line and not line.startswith("#"):
            key, sign, value = line.partition("=")
            if not sign:
                raise UsageError(f"{where}: the line {key.split()[0]!r} is no KEY=VALUE.")
            settings[key.strip()] = value.strip()
    promised = {**SENDING, **READING}
    others = [name for name in settings if settings[name].lower() != str(promised.get(name, "")).lower()]
    refuse_own(where, others, {**WHY_READING, **WHY_SENDING})
    return settings


def from_file(where: str, path: str | None) -> dict[str, str]:
    """Settings from a file as `from_text` reads it, none without one. UsageError if it cannot be read."""
    if path is None:
        return {}
    try:
        return from_text(where, Path(path).read_text())
    except OSError as error:
        raise UsageError(f"{where} {path} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{where} {path} is no text in UTF-8: {error.reason} at {error.start}.") from None


def from_environment(where: str, given: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The settings with each {env = "NAME"} replaced by what the environment holds; tables in tables too (rule 2).

    UsageError if the variable is not set.
    """
    resolved: dict[str, Any] = {}
    for name, value in given.items():
        if isinstance(value, Mapping) and value.keys() == {"env"}:
            resolved[name] = _variable(where, f"{prefix}{name}", value["env"])
        else:
            nested = isinstance(value, Mapping)
            resolved[name] = from_environment(where, value, f"{prefix}{name}.") if nested else value
    return resolved


def _variable(where: str, name: str, variable: Any) -> str:
    if not isinstance(variable, str) or not os.environ.get(variable):
        raise UsageError(
            f"{where}: {name!r} is to come from the environment, and the variable {variable!r} is not set there"
        )
    return os.environ[variable]
