"""Settings read and changed by clients: DescribeConfigs, IncrementalAlterConfigs, AlterConfigs, ListConfigResources.

Rule 1: all changes to a resource hold together, or none does; resources of one request stand for themselves.
Rule 2: an answer says that a change was made once it is durable.
Source: KIP-133, KIP-226 (at run time), KIP-339 (incremental), KIP-569 (types and documentation), KIP-1142 (resources).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from waterclock.broker.api.countdown import Countdown
from waterclock.broker.api.demands import ERRORS
from waterclock.broker.api.overdue import NotKept
from waterclock.broker.api.resources import BROKER, TOPIC, Resource, ResourceRefusal, Resources, described
from waterclock.broker.api.table import Api
from waterclock.broker.bounds import TYPES
from waterclock.broker.security.acls import CLUSTER_NAME, Operation, ResourceType
from waterclock.broker.settings import TOPIC_SETTINGS
from waterclock.broker.wire import portions
from waterclock.broker.wire.codec import Request
from waterclock.broker.wire.errors import Error

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
        portions.answer(request, "results", rows, len(resources) * len(TOPIC_SETTINGS))

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
        raise ResourceRefusal(ERRORS[kind], "Authorization failed.")


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
