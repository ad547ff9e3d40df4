"""A member of a group of the new protocol (KIP-848) over the plain wire. Answers come back unchecked."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from tests.conformance.dialogue import GROUP, Dialogue

JOIN, LEAVE, LEAVE_STATIC = 0, -1, -2
Part = tuple[Any, int]


class Reader:
    """A member: it tells what it owns, and takes what it is given."""

    def __init__(self, dialogue: Dialogue, group: str, topics: list[str], instance: str | None = None) -> None:
        self.dialogue, self.group, self.topics, self.instance = dialogue, group, topics, instance
        self.id, self.epoch = str(uuid4()), JOIN  # since version 1 a member names itself
        self.owned: list[Part] = []
        dialogue.find_coordinator(group, GROUP)

    def beat(self, **fields: Any) -> Any:
        """One heartbeat; the first tells everything."""
        first = {"rebalance_timeout": 5_000, "subscribed_topic_names": self.topics, "topic_partitions": []}
        later = {"rebalance_timeout": -1, "topic_partitions": self._owned()}
        reply = {"group_id": self.group, "member_id": self.id, "member_epoch": self.epoch, "instance_id": self.instance}
        own = first if self.epoch == JOIN else later
        answer = self.dialogue.wire.ask("consumer_group_heartbeat", 1, **{**reply, **own, **fields})
        if answer.error_code == 0:
            self.epoch = answer.member_epoch
            if answer.assignment is not None:
                self.owned = [(t.topic_id, p) for t in answer.assignment.topic_partitions for p in t.partitions]
        return answer

    def _owned(self) -> list[dict[str, Any]]:
        topics = dict.fromkeys(topic for topic, _ in self.owned)
        return [{"topic_id": t, "partitions": [p for topic, p in self.owned if topic == t]} for t in topics]

    def error(self, **fields: Any) -> str:
        return str(self.beat(**fields).error_code.name)

    def described(self) -> Any:
        return self.dialogue.wire.ask("consumer_group_describe", 1, group_ids=[self.group]).groups[0]
