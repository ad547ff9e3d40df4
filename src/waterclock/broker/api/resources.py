"""What has settings that clients may read and change: topics, this broker, and all brokers together.

Kinds by their number in requests: 2 a topic, 4 a broker (without a name: all). Loggers, client metrics and groups have
none here.

Rule 1: a resource checks before it changes, and then changes altogether.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from waterclock.broker.runtime import ALL, AT_START, BY_ALL, BY_NOBODY, DYNAMIC, ConfigEntry, RuntimeSettings
from waterclock.broker.security.access import Access
from waterclock.broker.settings import ADVERTISED, SETTINGS, TOPIC_SETTINGS, Setting, check_topic
from waterclock.broker.store import Then
from waterclock.broker.topics import Topic, Topics, why_illegal
from waterclock.broker.wire.errors import Error
from waterclock.errors import UsageError

TOPIC: Final = 2
BROKER: Final = 4


class ResourceRefusal(Exception):
    """What is answered instead: an error of the protocol and a sentence."""

    def __init__(self, error: Error, message: str) -> None:
        super().__init__(message)
        self.error = error


class TopicResource:
    """A topic's settings."""

    def __init__(self, topic: Topic, topics: Topics, runtime: RuntimeSettings) -> None:
        self._topic = topic
        self._topics = topics
        self._runtime = runtime

    @property
    def given(self) -> dict[str, str]:
        return self._topic.settings.given

    def names(self) -> list[str]:
        return sorted(TOPIC_SETTINGS)

    def setting(self, name: str) -> Setting | None:
        return TOPIC_SETTINGS.get(name)

    def words(self, name: str) -> list[ConfigEntry]:
        return self._runtime.topic_words(name, self.given)

    def read_only(self, name: str) -> bool:
        return False

    def check(self, given: Mapping[str, str]) -> None:
        try:
            check_topic(given)
        except UsageError as error:
            raise ResourceRefusal(Error.INVALID_CONFIG, str(error)) from error

    def replace(self, given: Mapping[str, str], then: Then) -> None:
        self._topics.configure(self._topic, given, then)


class BrokerResource:
    """This broker's settings, which `listeners` belongs to, or with the level ALL what holds for every broker."""

    def __init__(self, level: str, runtime: RuntimeSettings, listeners: ConfigEntry) -> None:
        self._level = level
        self._runtime = runtime
        self._listeners = listeners

    @property
    def given(self) -> dict[str, str]:
        return self._runtime.levels[self._level]

    def names(self) -> list[str]:
        return sorted([*SETTINGS, ADVERTISED.name]) if self._level != ALL else sorted(SETTINGS.keys() & self.given)

    def setting(self, name: str) -> Setting | None:
        return ADVERTISED if name == ADVERTISED.name else SETTINGS.get(name)

    def words(self, name: str) -> list[ConfigEntry]:
        if name == ADVERTISED.name:
            return [self._listeners]
        if self._level == ALL and name in self.given:
            return [ConfigEntry(name, self.given[name], BY_ALL)]
        return self._runtime.words(name)

    def read_only(self, name: str) -> bool:
        return name not in DYNAMIC

    def check(self, given: Mapping[str, str]) -> None:
        unknown = [name for name in given if self.setting(name) is None]
        if unknown:
            raise ResourceRefusal(Error.INVALID_CONFIG, f"Unknown broker config name: {unknown[0]}")
        fixed = [name for name in given if name not in DYNAMIC]
        if fixed:
            raise ResourceRefusal(Error.INVALID_REQUEST, f"Cannot be changed while the broker runs: {', '.join(fixed)}")
        try:
            self._runtime.check(given)
        except UsageError as error:
            raise ResourceRefusal(Error.INVALID_REQUEST, str(error)) from error

    def replace(self, given: Mapping[str, str], then: Then) -> None:
        self._runtime.replace(self._level, given, then)


Resource: TypeAlias = TopicResource | BrokerResource


class Resources:
    """Finds resources by kind and name, or raises ResourceRefusal. `listeners` says where clients find this broker."""

    def __init__(self, topics: Topics, runtime: RuntimeSettings, listeners: ConfigEntry) -> None:
        self._topics = topics
        self._runtime = runtime
        self._listeners = listeners

    def find(self, kind: int, name: str) -> Resource:
        if kind == BROKER:
            if name in (ALL, self._runtime.this):
                return BrokerResource(name, self._runtime, self._listeners)
            if not name.removeprefix("-").isdecimal():
                raise ResourceRefusal(Error.INVALID_REQUEST, f"A broker's id is a number, got {name!r}")
            raise ResourceRefusal(Error.INVALID_REQUEST, f"This is broker {self._runtime.this}, not {name}")
        if kind != TOPIC:
            raise ResourceRefusal(Error.INVALID_REQUEST, f"Resources of type {kind} have no settings here")
        why = why_illegal(name)
        if why is not None:
            raise ResourceRefusal(Error.INVALID_TOPIC_EXCEPTION, why)
        topic = self._topics.changeable(name)
        if topic is None:
            raise ResourceRefusal(Error.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
        return TopicResource(topic, self._topics, self._runtime)

    def all(self) -> list[tuple[int, str]]:
        """Kind and name of each."""
        return [(BROKER, self._runtime.this), *((TOPIC, name) for name in sorted(self._topics.by_name))]


def advertised(access: Access, host: str, port: int) -> ConfigEntry:
    """Where clients find this broker, as a setting that nobody can set."""
    return ConfigEntry(
        ADVERTISED.name, access.listeners(host, port), BY_NOBODY if access.advertise is None else AT_START
    )


def described(resource: Resource, name: str) -> dict[str, Any]:
    """The fields that every answer has about a setting. None of ours is a secret: those come from files."""
    first = resource.words(name)[0]
    return {
        "name": name,
        "value": first.text,
        "read_only": resource.read_only(name),
        "config_source": first.source,
        "is_sensitive": False,
    }
