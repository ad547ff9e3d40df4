"""Settings read and changed by clients: DescribeConfigs, IncrementalAlterConfigs, AlterConfigs, ListConfigResources.

Topics, this broker, and all brokers together have settings: resources of the kinds 2 and 4 (without a name: all brokers).
Loggers, client metrics and groups have none here.

Rule 1: a resource checks before it changes: all changes to it hold together, or none does; resources of one request stand
    for themselves.
Rule 2: an answer says that a change was made once it is durable.
Source: KIP-133, KIP-226 (at run time), KIP-339 (incremental), KIP-569 (types and documentation), KIP-1142 (resources).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, TypeAlias

from waterclock.broker.api.table import DENIED, Api
from waterclock.broker.api.waiting import Countdown, NotKept
from waterclock.broker.folder.runtime import ALL, AT_START, BY_ALL, BY_NOBODY, DYNAMIC, ConfigEntry, RuntimeSettings
from waterclock.broker.folder.topics import Topic, Topics, why_illegal
from waterclock.broker.security.access import Access
from waterclock.broker.security.acls import CLUSTER_NAME, Operation, ResourceType
from waterclock.broker.settings import ADVERTISED, SETTINGS, TOPIC_SETTINGS, TYPES, Setting, check_topic
from waterclock.broker.store import Then
from waterclock.broker.wire import answers
from waterclock.broker.wire.codec import Request
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


DESCRIBE: Final = 32
ALTER: Final = 33
ALTER_INCREMENTALLY: Final = 44
LIST: Final = 74
GUARDED_BY: Final = {TOPIC: ResourceType.TOPIC, 32: ResourceType.GROUP}  # all others: the cluster
SET, DELETE, APPEND, SUBTRACT = range(4)
LISTED_KINDS: Final = frozenset({TOPIC, BROKER, 8, 16, 32})

# the settings that a resource has now, and the changes in the request -> the settings that it shall have
ConfigChange = Callable[[Resource, tuple[Any, ...]], dict[str, str]]


class ConfigApis:
    """The APIs about settings."""

    def __init__(self, resources: Resources, not_kept: NotKept) -> None:
        self._resources, self._not_kept = resources, not_kept

    def apis(self) -> dict[int, Api]:
        return {
            DESCRIBE: Api(self.describe, 1, 4),
            ALTER: Api(partial(self.alter, change=_replaced), 0, 2),
            ALTER_INCREMENTALLY: Api(partial(self.alter, change=_incremental), 0, 1),
            LIST: Api(self.list, 0, 1),
        }

    def describe(self, request: Request) -> None:
        resources = request.body.resources
        rows = (self._result(request, requested) for requested in resources)
        answers.answer(request, "results", rows, len(resources) * len(TOPIC_SETTINGS))

    def _result(self, request: Request, requested: Any) -> Any:
        error, message, rows = Error.NONE, "", []
        try:
            _check(request, Operation.DESCRIBE_CONFIGS, requested)
            resource = self._resources.find(requested.resource_type, requested.resource_name)
            wanted = set(requested.configuration_keys or resource.names())
            rows = [self._row(request, resource, name) for name in resource.names() if name in wanted]
        except ResourceRefusal as refused:
            error, message = refused.error, str(refused)
        return request.make(
            "DescribeConfigsResult", error_code=error, error_message=message, resource_type=requested.resource_type,
            resource_name=requested.resource_name, configs=tuple(rows),
        )  # fmt: skip

    def _row(self, request: Request, resource: Resource, name: str) -> Any:
        setting = resource.setting(name)
        assert setting is not None
        synonyms = resource.words(name) if request.body.include_synonyms else []
        return request.make(
            "DescribeConfigsResourceResult", **described(resource, name),
            synonyms=tuple(
                request.make("DescribeConfigsSynonym", name=word.name, value=word.text, source=word.source)
                for word in synonyms
            ),
            config_type=TYPES[setting.kind],
            documentation=setting.doc if getattr(request.body, "include_documentation", False) else None,
        )  # fmt: skip

    def alter(self, request: Request, change: ConfigChange) -> None:
        requested = request.body.resources
        times = Counter((one.resource_type, one.resource_name) for one in requested)
        rows: list[Any] = [None] * len(requested)
        several = Countdown(len(requested), lambda: request.answer(responses=tuple(rows)))

        def row(number: int, error: Error, message: str | None) -> None:
            rows[number] = request.make(
                "AlterConfigsResourceResponse", error_code=error, error_message=message,
                resource_type=requested[number].resource_type, resource_name=requested[number].resource_name,
            )  # fmt: skip

        for number, one in enumerate(requested):
            row(number, Error.NONE, None)
            try:
                if times[one.resource_type, one.resource_name] > 1:
                    raise ResourceRefusal(Error.INVALID_REQUEST, "A resource may stand in a request once only.")
                _check(request, Operation.ALTER_CONFIGS, one)
                self._alter(request, one, change, several, partial(row, number))
            except ResourceRefusal as refused:
                row(number, refused.error, str(refused))
                several.settled()

    def _alter(
        self,
        request: Request,
        requested: Any,
        change: ConfigChange,
        several: Countdown,
        row: Callable[[Error, str | None], None],
    ) -> None:
        if requested.resource_type == TOPIC and not requested.resource_name:
            raise ResourceRefusal(Error.INVALID_REQUEST, "There are no settings of all topics: change the broker's.")
        resource = self._resources.find(requested.resource_type, requested.resource_name)
        given = change(resource, requested.configs)
        resource.check(given)
        if request.body.validate_only:
            several.settled()
        else:
            resource.replace(given, several.after(lambda: row(*self._not_kept.why())))

    def list(self, request: Request) -> None:
        kinds = set(getattr(request.body, "resource_types", ())) if request.version else {16}
        unknown = kinds - LISTED_KINDS
        found = [] if unknown else [(kind, name) for kind, name in self._resources.all() if kind in (kinds or {kind})]
        request.answer(
            error_code=Error.UNSUPPORTED_VERSION if unknown else Error.NONE,
            config_resources=tuple(
                request.make("ConfigResource", resource_name=name, resource_type=kind) for kind, name in found
            ),
        )


def _check(request: Request, operation: Operation, requested: Any) -> None:
    """Refused if the client may not do that to the settings of a topic, of a group, or of brokers."""
    kind = GUARDED_BY.get(requested.resource_type, ResourceType.CLUSTER)
    name = CLUSTER_NAME if kind is ResourceType.CLUSTER else requested.resource_name
    if not request.may(operation, kind, name):
        raise ResourceRefusal(DENIED[kind], "Authorization failed.")


def _checked(requested: tuple[Any, ...]) -> tuple[Any, ...]:
    """Refused if a name comes twice, or without its value."""
    if len({one.name for one in requested}) < len(requested):
        raise ResourceRefusal(Error.INVALID_REQUEST, "A setting may stand in a request once only.")
    for one in requested:
        if one.value is None and getattr(one, "config_operation", SET) != DELETE:
            raise ResourceRefusal(Error.INVALID_REQUEST, f"A value is missing for {one.name}")
    return requested


def _replaced(resource: Resource, requested: tuple[Any, ...]) -> dict[str, str]:
    """AlterConfigs: what is given replaces everything."""
    return {one.name: one.value for one in _checked(requested)}


def _incremental(resource: Resource, requested: tuple[Any, ...]) -> dict[str, str]:
    """IncrementalAlterConfigs: set, delete, append to a list, subtract from a list."""
    given = dict(resource.given)
    for one in _checked(requested):
        if one.config_operation == SET:
            given[one.name] = one.value
        elif one.config_operation == DELETE:
            given.pop(one.name, None)
        else:
            given[one.name] = _as_list(resource, given, one)
    return given


def _as_list(resource: Resource, given: Mapping[str, str], requested: Any) -> str:
    if requested.config_operation not in (APPEND, SUBTRACT):
        raise ResourceRefusal(Error.INVALID_REQUEST, f"There is no operation {requested.config_operation}")
    setting = resource.setting(requested.name)
    if setting is None or setting.kind != "list":
        raise ResourceRefusal(
            Error.INVALID_CONFIG, f"{requested.name} is no list: it can be neither appended to nor subtracted from."
        )
    has = _parts(given[requested.name] if requested.name in given else resource.words(requested.name)[0].text)
    named = _parts(requested.value)
    if requested.config_operation == SUBTRACT:
        return ",".join(part for part in has if part not in named)
    return ",".join(has + [part for part in named if part not in has])


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]
