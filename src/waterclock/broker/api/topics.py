"""Topics made, grown and deleted: each answer goes out once the change is durable."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from waterclock.broker.api.table import Api
from waterclock.broker.topics import MOST_PARTITIONS, Topic, Topics, legal
from waterclock.broker.wire.codec import Request
from waterclock.broker.wire.errors import Error
from waterclock.errors import UsageError

if TYPE_CHECKING:
    from waterclock.broker.settings import Settings

CREATE: Final = 19
DELETE: Final = 20
GROW: Final = 37
UNSET: Final = -1

Refusal = tuple[Error, str]


class Several:
    """An answer about several topics, sent when the last of them is settled."""

    def __init__(self, count: int, answer: Callable[[], None]) -> None:
        self._left, self._answer = count + 1, answer
        self.settled()

    def settled(self, done: bool = True) -> None:
        self._left -= 1
        if not self._left:
            self._answer()


class TopicApis:
    """CreateTopics, DeleteTopics and CreatePartitions. `gone(topic)` is told of each that is deleted."""

    def __init__(self, topics: Topics, settings: Settings, gone: Callable[[Topic], None]) -> None:
        self._topics, self._settings, self._gone = topics, settings, gone

    def apis(self) -> dict[int, Api]:
        return {CREATE: Api(self.create, 2, 7), DELETE: Api(self.delete, 1, 6), GROW: Api(self.grow, 0, 3)}

    # CreateTopics

    def create(self, request: Request) -> None:
        asked = request.body.topics
        names = [topic.name for topic in asked]
        rows: list[Any] = [None] * len(asked)
        several = Several(len(asked), lambda: request.answer(topics=tuple(rows)))
        for place, topic in enumerate(asked):
            twice = names.count(topic.name) > 1
            refusal = (Error.INVALID_REQUEST, "Duplicate topic name.") if twice else self._create_refused(topic)
            if refusal is not None or request.body.validate_only:
                rows[place] = self._created(request, topic, refusal)
                several.settled()
                continue
            new = self._topics.create(topic.name, self._partitions(topic), _given(topic), several.settled)
            rows[place] = self._created(request, topic, None, new)

    def _create_refused(self, asked: Any) -> Refusal | None:
        if not legal(asked.name):
            return Error.INVALID_TOPIC_EXCEPTION, f"Topic name {asked.name!r} is illegal: letters, digits, . _ - only"
        if asked.name in self._topics.by_name:
            return Error.TOPIC_ALREADY_EXISTS, f"Topic '{asked.name}' already exists."
        if asked.assignments and (asked.num_partitions != UNSET or asked.replication_factor != UNSET):
            return Error.INVALID_REQUEST, "Both partitions and assignments were given"
        if not asked.assignments and (asked.num_partitions == 0 or asked.num_partitions < UNSET):
            return Error.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value."
        if self._partitions(asked) > MOST_PARTITIONS:
            return Error.INVALID_PARTITIONS, f"At most {MOST_PARTITIONS} partitions"
        if not asked.assignments and asked.replication_factor not in (UNSET, 1):
            return Error.INVALID_REPLICATION_FACTOR, self._factor(asked.replication_factor)
        return self._settings_refused(asked)

    @staticmethod
    def _factor(factor: int) -> str:
        if factor <= 0:
            return "Replication factor must be larger than 0."
        return f"A replication factor of {factor} cannot be reached: there is one broker."

    def _settings_refused(self, asked: Any) -> Refusal | None:
        from waterclock.broker.settings import TopicSettings

        try:
            TopicSettings(self._settings).replace(_given(asked))
        except UsageError as error:
            return Error.INVALID_CONFIG, str(error)
        return None

    def _partitions(self, asked: Any) -> int:
        if asked.assignments:
            return len(asked.assignments)
        return int(self._settings["num.partitions"] if asked.num_partitions == UNSET else asked.num_partitions)

    def _created(self, request: Request, asked: Any, refusal: Refusal | None, topic: Topic | None = None) -> Any:
        error, message = refusal or (Error.NONE, None)
        return request.make(
            "CreatableTopicResult", name=asked.name, topic_id=topic.id if topic else None, error_code=error,
            error_message=message, topic_config_error_code=0, num_partitions=self._partitions(asked) if not error else -1,
            replication_factor=1 if not error else -1, configs=() if not error else None,
        )  # fmt: skip

    # DeleteTopics

    def delete(self, request: Request) -> None:
        asked = self._to_delete(request.body)
        rows = [self._deleted(request, *one) for one in asked]
        several = Several(len(asked), lambda: request.answer(responses=tuple(rows)))
        for _, _, topic, error in asked:
            if topic is None or error:
                several.settled()
                continue
            self._topics.delete(topic, several.settled)
            self._gone(topic)

    def _to_delete(self, body: Any) -> list[tuple[str | None, Any, Topic | None, Error]]:
        """Name, id, topic and error of each topic named."""
        topics, named = self._topics, getattr(body, "topics", None)
        rows: list[tuple[str | None, Any, Topic | None, Error]] = []
        if named is None:
            pairs = [(name, None) for name in body.topic_names]
        else:
            pairs = [(topic.name, topic.topic_id) for topic in named]
        for name, topic_id in pairs:
            topic = topics.by_id.get(topic_id) if topic_id else topics.by_name.get(name)
            missing = Error.UNKNOWN_TOPIC_ID if topic_id else Error.UNKNOWN_TOPIC_OR_PARTITION
            error = Error.NONE if topic else missing
            if topic is not None and not self._settings["delete.topic.enable"]:
                error = Error.TOPIC_DELETION_DISABLED
            rows.append((topic.name if topic else name, topic.id if topic else topic_id, topic, error))
        return rows

    def _deleted(self, request: Request, name: str | None, topic_id: Any, topic: Topic | None, error: Error) -> Any:
        message = (
            None
            if not error
            else "Topic deletion is disabled."
            if topic
            else "This server does not host this topic-partition."
        )
        return request.make(
            "DeletableTopicResult", name=name, topic_id=topic_id, error_code=error, error_message=message
        )

    # CreatePartitions

    def grow(self, request: Request) -> None:
        asked = request.body.topics
        rows: list[Any] = []
        several = Several(len(asked), lambda: request.answer(results=tuple(rows)))
        for one in asked:
            error, message = self._grow_refused(one) or (Error.NONE, None)
            rows.append(
                request.make("CreatePartitionsTopicResult", name=one.name, error_code=error, error_message=message)
            )
            if error or request.body.validate_only:
                several.settled()
            else:
                self._topics.grow(self._topics.by_name[one.name], one.count, several.settled)

    def _grow_refused(self, asked: Any) -> Refusal | None:
        topic = self._topics.by_name.get(asked.name)
        if topic is None:
            return Error.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{asked.name}' does not exist."
        has = len(topic.partitions)
        if asked.count <= has:
            word = "already has" if asked.count == has else "currently has"
            return Error.INVALID_PARTITIONS, f"Topic {word} {has} partition(s), and {asked.count} is not more."
        if asked.count > MOST_PARTITIONS:
            return Error.INVALID_PARTITIONS, f"At most {MOST_PARTITIONS} partitions"
        if asked.assignments is not None and len(asked.assignments) != asked.count - has:
            return (
                Error.INVALID_REPLICA_ASSIGNMENT,
                f"{asked.count - has} assignments are needed, got {len(asked.assignments)}",
            )
        return None


def _given(asked: Any) -> dict[str, str]:
    return {config.name: config.value for config in asked.configs if config.value is not None}
