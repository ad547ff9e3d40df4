"""Members of groups that speak Kafka's protocol by hand, and a broker whose time is turned by hand.

Rule 1: fields have the names of `kio`; one that a version lacks is left out.
Rule 2: `send` does not wait for the answer: `Answer.waiting` tells, with everything that was sent before dealt with.
Rule 3: joins and syncs are with the broker when the call is over: what the next one sends comes after them.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from kio.schema.index import api_key_map

from tests.conformance.wire import Wire
from waterclock.broker import Broker
from waterclock.clock import ManualClock

FIND, JOIN, HEARTBEAT, LEAVE, SYNC, DESCRIBE, LIST, DELETE = 10, 11, 12, 13, 14, 15, 16, 42
PATIENCE_S = 30  # a disk that others keep busy may take seconds
COMMIT, FETCH, REMOVE, CREATE_TOPICS, METADATA, DELETE_TOPICS = 8, 9, 47, 19, 3, 20


class Turned:
    """A broker under a ManualClock."""

    def __init__(self, settings: Mapping[str, str] | None = None, data: str | os.PathLike[str] | None = None) -> None:
        patient = {"connections.max.idle.ms": str(10**12)}  # tests turn time by hours between two requests
        self.broker = Broker(data, settings={**patient, **(settings or {})}, clock=ManualClock())

    @property
    def bootstrap(self) -> str:
        return self.broker.bootstrap

    def advance_ms(self, duration_ms: int) -> None:
        """Turn time; what was sent before it is dealt with first, and what it asks of the disk is there after it."""
        self.settle()
        self.broker.advance_s(duration_ms / 1000)
        self.settle()

    def settle(self) -> None:
        """Everything that was sent has been read, is durable, and is answered as far as it will be for now."""
        for _ in range(2):  # the second call comes after what was readable when the first came
            self.broker.call(lambda: None)
        durable = threading.Event()
        self.broker.call(lambda: self.broker.inside.store.commit((), lambda done: durable.set()))
        assert durable.wait(PATIENCE_S)
        for _ in range(2):
            self.broker.call(lambda: None)

    def __enter__(self) -> Turned:
        self.broker.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.broker.close()


class Answer:
    """The answer to one request, now or later."""

    def __init__(self, client: Client, api: str, version: int) -> None:
        self._client, self._api, self._version = client, api, version

    @property
    def waiting(self) -> bool:
        """Whether the broker keeps it back."""
        self._client.served.settle()
        return self._client.wire.is_quiet(0)

    def get(self) -> Any:
        """Wait for it, and read it to the last byte."""
        return self._client.wire.receive(self._api, self._version)


class Client:
    """One connection."""

    def __init__(self, served: Turned, client_id: str = "tester") -> None:
        self.served, self.client_id = served, client_id
        self.wire = Wire(served.bootstrap, client_id, patience_s=PATIENCE_S)

    def send(self, api: int, version: int, /, **fields: Any) -> Answer:
        self.wire.send(api_key_map[api], version, **fields)
        return Answer(self, api_key_map[api], version)

    def ask(self, api: int, version: int, /, **fields: Any) -> Any:
        return self.send(api, version, **fields).get()

    def close(self) -> None:
        self.wire.close()

    # What tests say most

    def create_topic(self, name: str, partitions: int = 1) -> None:
        row = {"name": name, "num_partitions": partitions, "replication_factor": 1, "assignments": [], "configs": []}
        answer = self.ask(CREATE_TOPICS, 7, topics=[row], timeout=10_000, validate_only=False)
        assert answer.topics[0].error_code == 0

    def topic_id(self, name: str) -> Any:
        answer = self.ask(
            METADATA, 12, topics=[{"name": name, "topic_id": None}], allow_auto_topic_creation=False,
            include_topic_authorized_operations=False,
        )  # fmt: skip
        return answer.topics[0].topic_id

    def commit(
        self, group: str, offset: int, *, topic: str = "t", partition: int = 0, version: int = 9, member: str = "",
        generation: int = -1, instance: str | None = None, metadata: str | None = None, retention: int = -1,
        topic_id: Any = None,
    ) -> int:  # fmt: skip
        row = {"partition_index": partition, "committed_offset": offset, "committed_leader_epoch": 0}
        rows = [{"name": topic, "topic_id": topic_id, "partitions": [{**row, "committed_metadata": metadata}]}]
        answer = self.ask(
            COMMIT, version, group_id=group, generation_id_or_member_epoch=generation, member_id=member,
            group_instance_id=instance, retention_time=retention, topics=rows,
        )  # fmt: skip
        return int(answer.topics[0].partitions[0].error_code)

    def fetched(self, group: str, topic: str = "t", partition: int = 0, *, stable: bool = False, **who: Any) -> Any:
        """The row of one partition."""
        group_row = {
            "group_id": group,
            "member_id": None,
            "member_epoch": -1,
            **who,
            "topics": [{"name": topic, "partition_indexes": [partition]}],
        }
        answer = self.ask(FETCH, 9, groups=[group_row], require_stable=stable)
        if answer.groups[0].error_code:
            return answer.groups[0]
        return answer.groups[0].topics[0].partitions[0]

    def state(self, group: str) -> str:
        answer = self.ask(DESCRIBE, 5, groups=[group], include_authorized_operations=False)
        return str(answer.groups[0].group_state)

    def listed(self, *, states: list[str] | None = None, types: list[str] | None = None) -> list[Any]:
        return list(self.ask(LIST, 5, states_filter=states or [], types_filter=types or []).groups)


class Person(Client):
    """A member of the group "g", that remembers who it is."""

    def __init__(
        self, served: Turned, client_id: str = "tester", group: str = "g", instance: str | None = None
    ) -> None:
        super().__init__(served, client_id)
        self.group, self.instance = group, instance
        self.member, self.generation = "", -1
        self.kind, self.protocol = "consumer", "range"

    def joins(
        self, *, version: int = 9, session: int = 10_000, rebalance: int = 60_000, kind: str = "consumer",
        protocols: Mapping[str, bytes] | None = None,
    ) -> Answer:  # fmt: skip
        """Send JoinGroup."""
        said = {"range": b"m"} if protocols is None else protocols
        self.kind = kind
        answer = self.send(
            JOIN, version, group_id=self.group, session_timeout=session, rebalance_timeout=rebalance,
            member_id=self.member, group_instance_id=self.instance, protocol_type=kind, reason=None,
            protocols=[{"name": name, "metadata": data} for name, data in said.items()],
        )  # fmt: skip
        self.served.settle()
        return answer

    def comes(self, **said: Any) -> Answer:
        """JoinGroup with a member id asked for first, where that must be."""
        if said.get("version", 9) >= 4 and not self.member and self.instance is None:
            promised = self.joins(**said).get()
            assert promised.error_code == 79
            self.member = promised.member_id
        return self.joins(**said)

    def takes(self, answer: Answer) -> Any:
        """Read an answer to JoinGroup, and remember it."""
        joined = answer.get()
        assert joined.error_code == 0, joined
        self.member, self.generation = joined.member_id, joined.generation_id
        self.protocol = joined.protocol_name
        return joined

    def syncs(self, shares: Mapping[str, bytes] | None = None, *, version: int = 5, **said: Any) -> Answer:
        rows = [{"member_id": member, "assignment": share} for member, share in (shares or {}).items()]
        fields = {
            "group_id": self.group, "generation_id": self.generation, "member_id": self.member,
            "group_instance_id": self.instance, "protocol_type": self.kind, "protocol_name": self.protocol,
            "assignments": rows,
        }  # fmt: skip
        answer = self.send(SYNC, version, **{**fields, **said})
        self.served.settle()
        return answer

    def beats(self, **said: Any) -> int:
        """The error of a heartbeat."""
        fields = {
            "group_id": self.group, "generation_id": self.generation, "member_id": self.member,
            "group_instance_id": self.instance,
        }  # fmt: skip
        return int(self.ask(HEARTBEAT, 4, **{**fields, **said}).error_code)

    def leaves(self) -> int:
        row = {"member_id": self.member, "group_instance_id": self.instance, "reason": None}
        answer = self.ask(LEAVE, 5, group_id=self.group, members=[row])
        return int(answer.members[0].error_code)

    def commits(self, offset: int, **said: Any) -> int:
        """The error of a commit for partition 0 of the topic "t"."""
        who = {"member": self.member, "generation": self.generation, "instance": self.instance}
        return self.commit(self.group, offset, **{**who, **said})


def stable_group(*people: Person, **said: Any) -> None:
    """These people, the first leading, are a stable group in one generation; each has its name as its share."""
    answers = [people[0].comes(**said)]
    if len(people) > 1:
        people[0].takes(answers[0])
        answers += [person.comes(**said) for person in people[1:]]
        answers[0] = people[0].joins(**said)
    for person, answer in zip(people, answers, strict=True):
        person.takes(answer)
    shares = {person.member: person.client_id.encode() for person in people}
    for person in people:
        assert person.syncs(shares).get().error_code == 0


@contextmanager
def people(served: Turned, *names: str, group: str = "g") -> Iterator[list[Person]]:
    """Several, closed in the end."""
    some = [Person(served, name, group) for name in names]
    try:
        yield some
    finally:
        for person in some:
            person.close()
