"""Topics made, grown and deleted; and what one broker answers always alike: no election, no quota, no partition that moves.

Rule 1: an answer goes out once the change is durable. So does a refusal, once somebody else's change of that topic which
    is on its way is: who is told that a topic exists may hold the broker to it (Kafka's controller does so too).
Rule 2: a follower takes over at an election: broker/follower.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from waterclock.broker.api.table import Api, may_with_cluster, may_with_topic
from waterclock.broker.api.waiting import Countdown, NotKept, Refusal
from waterclock.broker.folder.topics import MOST_PARTITIONS, Topic, Topics, why_illegal
from waterclock.broker.security.acls import Operation
from waterclock.broker.settings import TOPIC_SETTINGS, check_topic
from waterclock.broker.wire import answers
from waterclock.broker.wire.codec import Request
from waterclock.broker.wire.errors import Error
from waterclock.errors import UsageError
from waterclock.outside import uuid

if TYPE_CHECKING:
    from waterclock.broker.folder.identity import Identity
    from waterclock.broker.folder.runtime import RuntimeSettings
    from waterclock.broker.store import Then

CREATE: Final = 19
DELETE: Final = 20
GROW: Final = 37
UNSET: Final = -1

TWICE: Final = Error.INVALID_REQUEST, "Duplicate topic name."
FORBIDDEN: Final = Error.TOPIC_AUTHORIZATION_FAILED, "Authorization failed."
NO_SUCH_ID: Final = Error.UNKNOWN_TOPIC_ID, "There is no topic with this id."
NO_SUCH_NAME: Final = Error.UNKNOWN_TOPIC_OR_PARTITION, "There is no topic with this name."


class ToDelete(NamedTuple):
    """A topic as it was named, what it is, and why it stays."""

    name: str | None
    topic_id: Any
    topic: Topic | None
    refusal: Refusal | None


class TopicApis:
    """CreateTopics, DeleteTopics and CreatePartitions. `gone(topic)` is called for each that is deleted."""

    def __init__(
        self,
        identity: Identity,
        topics: Topics,
        runtime: RuntimeSettings,
        gone: Callable[[Topic], None],
        not_kept: NotKept,
    ) -> None:
        self._identity = identity
        self._topics = topics
        self._runtime = runtime
        self._gone = gone
        self._settings, self._not_kept = runtime.settings, not_kept

    def apis(self) -> dict[int, Api]:
        return {CREATE: Api(self.create, 2, 7), DELETE: Api(self.delete, 1, 6), GROW: Api(self.grow, 0, 3)}

    def _refuse(self, refusal: Refusal | None, then: Then, *named: str | uuid.UUID | None) -> None:
        """Nothing is to be done for this one: rule 1. Who may not know of a topic does not wait for it."""
        waiting = None if refusal in (None, TWICE, FORBIDDEN) else self._topics.waiting_for(*named)
        if waiting is None:
            then(True)
        else:
            waiting.append(then)

    # CreateTopics

    def create(self, request: Request) -> None:
        answers.do(request, self._create_all(request), len(request.body.topics))

    def _create_all(self, request: Request) -> Iterator[None]:
        times = Counter(topic.name for topic in request.body.topics)
        requested = {topic.name: topic for topic in request.body.topics}
        rows: dict[str, Any] = {}
        several = Countdown(len(requested), lambda: answers.answer(request, "topics", rows.values(), len(rows)))
        for name, topic in requested.items():
            may = may_with_cluster(request, Operation.CREATE) or may_with_topic(request, Operation.CREATE, name)
            refusal = TWICE if times[name] > 1 else self._create_refused(topic) if may else FORBIDDEN
            rows[name] = self._created(request, topic, refusal, uuid.uuid4())
            then = several.after(partial(self._not_created, request, topic, rows))
            if refusal is not None or request.body.validate_only:
                self._refuse(refusal, then, name, self._topics.namesakes.of(name))
            else:
                made = self._topics.create(name, self._partitions(topic), _given(topic), then)
                rows[name] = self._created(request, topic, None, made.id)
            yield

    def _not_created(self, request: Request, requested: Any, rows: dict[str, Any]) -> None:
        rows[requested.name] = self._created(request, requested, self._not_kept.why(), uuid.uuid4())

    def _create_refused(self, requested: Any) -> Refusal | None:
        illegal = why_illegal(requested.name)
        if illegal is not None:
            return Error.INVALID_TOPIC_EXCEPTION, illegal
        if requested.name in self._topics.by_name or requested.name in self._topics.making:
            return Error.TOPIC_ALREADY_EXISTS, f"Topic '{requested.name}' already exists."
        namesake = self._topics.namesakes.of(requested.name)
        if namesake is not None:
            return Error.INVALID_TOPIC_EXCEPTION, f"Topic '{requested.name}' differs from '{namesake}' in . and _ only"
        return self._settings_refused(requested) or self._size_refused(requested)

    def _size_refused(self, requested: Any) -> Refusal | None:
        if requested.assignments:
            return self._assignments_refused(requested) or self._no_room(requested)
        if requested.num_partitions == 0 or requested.num_partitions < UNSET:
            return Error.INVALID_PARTITIONS, f"A topic has 1 partition or more, got {requested.num_partitions}"
        if self._partitions(requested) > MOST_PARTITIONS:
            return Error.POLICY_VIOLATION, f"At most {MOST_PARTITIONS} partitions"
        if requested.replication_factor != UNSET and requested.replication_factor not in range(
            1, len(self._brokers()) + 1
        ):
            there = len(self._brokers())
            return Error.INVALID_REPLICATION_FACTOR, f"A replication factor is 1 to {there}: so many brokers are there"
        return self._no_room(requested)

    def _no_room(self, requested: Any) -> Refusal | None:
        no_room = self._topics.maker.why_no_room(self._partitions(requested))
        return None if no_room is None else (Error.POLICY_VIOLATION, no_room)

    def _brokers(self) -> set[int]:
        return {node for node, _, _ in self._identity.brokers()}

    def _assignments_refused(self, requested: Any) -> Refusal | None:
        if requested.num_partitions != UNSET or requested.replication_factor != UNSET:
            return Error.INVALID_REQUEST, "With assignments, partitions and replication factor are both -1"
        numbers = [one.partition_index for one in requested.assignments]
        wrong = next((f"partition {number} is assigned twice" for number in numbers if numbers.count(number) > 1), None)
        wrong = wrong or self._wrong_brokers(requested.assignments)
        if wrong is None and sorted(numbers) != list(range(len(numbers))):
            wrong = "the partitions of an assignment are numbered from 0 without a gap"
        return None if wrong is None else (Error.INVALID_REPLICA_ASSIGNMENT, wrong)

    def _wrong_brokers(self, assignments: Any) -> str | None:
        """What is wrong with the brokers that partitions are wanted on: all of them have every partition."""
        known = self._brokers()
        for one in assignments:
            brokers = one.broker_ids
            strangers = [broker for broker in brokers if broker not in known]
            if not brokers:
                return "an assignment names no broker for a partition"
            if strangers:
                return f"an assignment names broker {strangers[0]}, which is not there"
            if len(set(brokers)) < len(brokers):
                return "an assignment names a broker twice for one partition"
        return None

    @staticmethod
    def _settings_refused(requested: Any) -> Refusal | None:
        nulls = [config.name for config in requested.configs if config.value is None]
        if nulls:
            return Error.INVALID_CONFIG, f"A value is missing for {', '.join(nulls)}"
        try:
            check_topic(_given(requested))
        except UsageError as error:
            return Error.INVALID_CONFIG, str(error)
        return None

    def _partitions(self, requested: Any) -> int:
        if requested.assignments:
            return len(requested.assignments)
        return int(self._settings["num.partitions"] if requested.num_partitions == UNSET else requested.num_partitions)

    def _created(self, request: Request, requested: Any, refusal: Refusal | None, topic_id: uuid.UUID) -> Any:
        error, message = refusal or (Error.NONE, None)
        sees = may_with_topic(request, Operation.DESCRIBE_CONFIGS, requested.name)
        hidden = Error.NONE if error or sees else Error.TOPIC_AUTHORIZATION_FAILED
        withheld = bool(error or hidden)
        return request.make(
            "CreatableTopicResult", name=requested.name, topic_id=None if error else topic_id, error_code=error,
            error_message=message, topic_config_error_code=hidden,
            num_partitions=-1 if withheld else self._partitions(requested),
            replication_factor=-1 if withheld else len(self._brokers()),
            configs=() if withheld else self._configs(request, requested),
        )  # fmt: skip

    def _configs(self, request: Request, requested: Any) -> tuple[Any, ...]:
        if not request.has("CreatableTopicConfigs"):
            return ()
        given = _given(requested)
        words = [(name, self._runtime.topic_words(name, given)[0]) for name in sorted(TOPIC_SETTINGS)]
        return tuple(
            request.make(
                "CreatableTopicConfigs", name=name, value=word.text, read_only=False, config_source=word.source,
                is_sensitive=False,
            )
            for name, word in words
        )  # fmt: skip

    # DeleteTopics

    def delete(self, request: Request) -> None:
        body = request.body
        named = getattr(body, "topics", None)
        pairs = [(t.name, t.topic_id) for t in named] if named is not None else [(n, None) for n in body.topic_names]
        requested = [self._one_to_delete(request, *pair, times) for pair, times in Counter(pairs).items()]
        answers.do(request, self._delete_all(request, requested), len(requested))

    def _delete_all(self, request: Request, requested: list[ToDelete]) -> Iterator[None]:
        rows = [self._deleted(request, one) for one in requested]
        several = Countdown(len(requested), lambda: answers.answer(request, "responses", rows, len(rows)))

        def failed(row_number: int) -> None:
            rows[row_number] = self._deleted(request, requested[row_number]._replace(refusal=self._not_kept.why()))

        for row_number, one in enumerate(requested):
            then = several.after(partial(failed, row_number))
            if one.topic is not None and not one.refusal:
                self._topics.delete(one.topic, then, partial(self._gone, one.topic))
            else:
                self._refuse(one.refusal, then, one.topic_id or one.name)
            yield

    def _one_to_delete(self, request: Request, name: str | None, topic_id: Any, times: int) -> ToDelete:
        topic = self._topics.changeable(topic_id or name or "")
        if times == 1 and (name is None) != (not topic_id):
            hidden = self._may_not_delete(request, name, topic_id, topic)
            if hidden is not None:
                return hidden
        refusal = self._delete_refused(name, topic_id, topic, times)
        if topic is None or (name is not None and topic_id):
            return ToDelete(name, topic_id, None, refusal)
        return ToDelete(topic.name, topic.id, topic, refusal)

    @staticmethod
    def _may_not_delete(request: Request, name: str | None, topic_id: Any, topic: Topic | None) -> ToDelete | None:
        """The row of a topic that the client may not delete: it says no more than the client may know."""
        called = name if topic is None else topic.name
        if called is None or may_with_cluster(request, Operation.DELETE):
            return None
        sees = may_with_topic(request, Operation.DESCRIBE, called)
        if may_with_topic(request, Operation.DELETE, called) or (sees and topic is None):
            return None
        return ToDelete(name if name is not None or not sees else called, topic_id, None, FORBIDDEN)

    def _delete_refused(self, name: str | None, topic_id: Any, topic: Topic | None, times: int) -> Refusal | None:
        if name is not None and topic_id:
            return Error.INVALID_REQUEST, "A topic is named by its name or its id, not by both"
        if name is None and not topic_id:
            return Error.INVALID_REQUEST, "A topic needs a name or an id"
        if times > 1:
            return TWICE if name is not None else (Error.INVALID_REQUEST, "Duplicate topic id.")
        if topic is None and topic_id:
            return NO_SUCH_ID
        if topic is None:
            return NO_SUCH_NAME
        if not self._settings["delete.topic.enable"]:
            return Error.TOPIC_DELETION_DISABLED, "Topic deletion is disabled."
        return None

    @staticmethod
    def _deleted(request: Request, one: ToDelete) -> Any:
        error, message = one.refusal or (Error.NONE, None)
        return request.make(
            "DeletableTopicResult", name=one.name, topic_id=one.topic_id, error_code=error, error_message=message
        )

    # CreatePartitions

    def grow(self, request: Request) -> None:
        answers.do(request, self._grow_all(request), len(request.body.topics))

    def _grow_all(self, request: Request) -> Iterator[None]:
        times = Counter(one.name for one in request.body.topics)
        requested = {one.name: one for one in request.body.topics}
        rows: dict[str, Any] = {}
        several = Countdown(len(requested), lambda: answers.answer(request, "results", rows.values(), len(rows)))
        for name, one in requested.items():
            yield
            may = may_with_topic(request, Operation.ALTER, name)
            refusal = TWICE if times[name] > 1 else self._grow_refused(one) if may else FORBIDDEN
            rows[name] = self._grown(request, name, refusal)

            def failed(name: str = name) -> None:
                rows[name] = self._grown(request, name, self._not_kept.why())

            then = several.after(failed)
            if refusal is not None or request.body.validate_only:
                self._refuse(refusal, then, name)
            else:
                self._topics.grow(self._topics.by_name[name], one.count, then)

    @staticmethod
    def _grown(request: Request, name: str, refusal: Refusal | None) -> Any:
        error, message = refusal or (Error.NONE, None)
        return request.make("CreatePartitionsTopicResult", name=name, error_code=error, error_message=message)

    def _grow_refused(self, requested: Any) -> Refusal | None:
        topic = self._topics.changeable(requested.name)
        if topic is None:
            return Error.UNKNOWN_TOPIC_OR_PARTITION, None
        has = topic.planned
        if requested.count <= has:
            return (
                Error.INVALID_PARTITIONS,
                f"Topic '{requested.name}' has {has} partition(s); {requested.count} is not more.",
            )
        if requested.count > MOST_PARTITIONS:
            return Error.INVALID_PARTITIONS, f"At most {MOST_PARTITIONS} partitions"
        if (no_room := self._topics.maker.why_no_room(requested.count - has)) is not None:
            return Error.POLICY_VIOLATION, no_room
        if requested.assignments is None:
            return None
        wrong = self._wrong_brokers(requested.assignments)
        if len(requested.assignments) != requested.count - has:
            wrong = f"{requested.count - has} assignments are needed, got {len(requested.assignments)}"
        return None if wrong is None else (Error.INVALID_REPLICA_ASSIGNMENT, wrong)


def _given(requested: Any) -> dict[str, str]:
    return {config.name: config.value for config in requested.configs}


ELECT_LEADERS: Final = 43
LIST_REASSIGNMENTS: Final = 46
DESCRIBE_QUOTAS: Final = 48
NOTHING_THERE: Final = {
    LIST_REASSIGNMENTS: Api(lambda r: r.answer(error_code=Error.NONE, error_message=None, topics=()), 0, 0),
    DESCRIBE_QUOTAS: Api(lambda r: r.answer(error_code=Error.NONE, error_message="", entries=()), 0, 1),
}


class SingleBrokerApis:
    """ElectLeaders, ListPartitionReassignments and DescribeClientQuotas of a leader: its partitions are led already."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics

    def apis(self) -> dict[int, Api]:
        return {ELECT_LEADERS: Api(self.elect, 0, 2), **NOTHING_THERE}

    def elect(self, request: Request) -> None:
        def result(topic: str, number: int) -> Error:
            there = self._topics.partition(topic, number) is not None
            return Error.ELECTION_NOT_NEEDED if there else Error.UNKNOWN_TOPIC_OR_PARTITION

        answer_election(request, result)


def answer_election(request: Request, result: Callable[[str, int], Error], error: Error = Error.NONE) -> None:
    """Answer for each partition that was named `result(topic, number)`; if all were meant, `error` alone."""
    rows = []
    for requested in request.body.topic_partitions or ():
        found = [(number, result(requested.topic, number)) for number in requested.partitions]
        results = tuple(
            request.make(
                "PartitionResult", partition_id=number, error_code=one, error_message=one.name if one else None
            )
            for number, one in found
        )
        rows.append(request.make("ReplicaElectionResult", topic=requested.topic, partition_result=results))
    request.answer(error_code=error, replica_election_results=tuple(rows))
