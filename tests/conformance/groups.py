"""A member of a group of the classic protocol over the plain wire. Answers come back unchecked."""

from __future__ import annotations

from typing import Any

from tests.conformance.dialogue import GROUP, Dialogue
from tests.conformance.wire import Wire


class Member:
    """One member with a connection of its own, since a join waits for the others."""

    def __init__(self, bootstrap: str, group: str, instance: str | None = None, **fields: Any) -> None:
        self.address, self.wire = bootstrap, Wire(bootstrap, "member")
        self.group, self.instance, self.id, self.generation = group, instance, "", -1
        times = {"session_timeout": 10_000, "rebalance_timeout": 5_000}
        protocols = [{"name": "range", "metadata": b"mine"}]
        self._fields = {**times, "protocol_type": "consumer", "protocols": protocols, **fields}
        Dialogue(self.wire).find_coordinator(group, GROUP)

    def _identity(self, **fields: Any) -> dict[str, Any]:
        return {"group_id": self.group, "member_id": self.id, "group_instance_id": self.instance, **fields}

    def ask_to_join(self, version: int = 7, **fields: Any) -> None:
        """Send a JoinGroup without waiting for its answer."""
        self._version = version
        self.wire.send("join_group", version, **{**self._identity(), **self._fields, **fields})

    def joined(self) -> Any:
        """The answer to `ask_to_join`; the member knows its id and generation from then on."""
        answer = self.wire.receive("join_group", self._version)
        if answer.member_id:
            self.id = answer.member_id
        if answer.error_code == 0:
            self.generation = answer.generation_id
        return answer

    def join(self, version: int = 7, **fields: Any) -> Any:
        """Join; where the coordinator wants the id that it gave to be shown (KIP-394), once more with it."""
        self.ask_to_join(version, **fields)
        answer = self.joined()
        if answer.error_code.name == "member_id_required":
            self.ask_to_join(version, **fields)
            answer = self.joined()
        return answer

    def sync(self, version: int = 5, **assignments: bytes) -> Any:
        """SyncGroup; a leader gives the assignments by member id."""
        named = [{"member_id": member, "assignment": data} for member, data in assignments.items()]
        fields = self._identity(generation_id=self.generation, protocol_type="consumer", protocol_name="range")
        return self.wire.ask("sync_group", version, **fields, assignments=named)

    def settle(self) -> Member:
        """Join and sync as the only member."""
        assert self.join().error_code == 0
        assert self.sync(**{self.id: b"all"}).error_code == 0
        return self

    def heartbeat(self, **fields: Any) -> str:
        named = self._identity(generation_id=self.generation)
        return str(self.wire.ask("heartbeat", 4, **{**named, **fields}).error_code.name)

    def leave(self, **fields: Any) -> Any:
        one = {"member_id": self.id, "group_instance_id": self.instance, **fields}
        return self.wire.ask("leave_group", 5, group_id=self.group, members=[one])

    def commit(self, topic: str, offset: int, **fields: Any) -> str:
        """OffsetCommit of partition 0; the value is the partition's error."""
        named = self._identity(generation_id_or_member_epoch=self.generation)
        return committed(self.wire, topic, offset, **{**named, **fields})

    def described(self) -> Any:
        return self.wire.ask("describe_groups", 5, groups=[self.group]).groups[0]


def committed(wire: Wire, topic: str, offset: int, *, partition: int = 0, version: int = 8, **fields: Any) -> str:
    """OffsetCommit of one partition, by default as nobody's member."""
    part = {"partition_index": partition, "committed_offset": offset, "committed_leader_epoch": 3}
    topics = [{"name": topic, "partitions": [{**part, "committed_metadata": fields.pop("metadata", "m")}]}]
    named = {"generation_id_or_member_epoch": -1, "member_id": "", "retention_time": -1, **fields}
    return str(wire.ask("offset_commit", version, topics=topics, **named).topics[0].partitions[0].error_code.name)


def offset_of(wire: Wire, group: str, topic: str, *, partition: int = 0, stable: bool = False) -> Any:
    """OffsetFetch of one partition."""
    topics = [{"name": topic, "partition_indexes": [partition]}]
    wanted = {"group_id": group, "topics": topics, "member_epoch": -1}
    answer = wire.ask("offset_fetch", 9, groups=[wanted], require_stable=stable).groups[0]
    assert answer.error_code == 0, answer
    return answer.topics[0].partitions[0]
