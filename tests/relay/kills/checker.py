"""The records of an episode, held against the promises. It knows the relay's document and nothing of its source.

    lost       a request is in the input, and its message is neither delivered nor cancelled; or it was acknowledged, and is
               not in the input
    twice      a message stands in its topic twice, or a request was answered or put aside twice
    strange    something is delivered, answered or put aside that nobody asked for, or not as it was asked for
    early      a message was delivered before it was due
    overtaken  of one partition and one target partition, a message was delivered behind one that was due later, or that was
               due at the same time and stands behind it in the input
    untrue     an answer is not what the deliveries say

Rule 1: the input, as a reader of committed records saw it, is what was asked for.
Rule 2: a message that came into the input less than `LATE_MS` before the other one was due may be overtaken by that: the
        relay may not have read it yet.
Rule 3: what is pending under an id when a command comes is what stands before it in the input and was neither delivered nor
        taken by an earlier command. Each message that was not delivered was taken by the first command behind it.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

LATE_MS = 15_000
Origin = tuple[int, int]  # partition and offset in the input


class Record(NamedTuple):
    """A record as a reader of committed records saw it."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Mapping[str, bytes | None]
    timestamp_ms: int


class Violation(NamedTuple):
    """A promise that was broken, and by what."""

    kind: str
    what: str


class Late(NamedTuple):
    """A message: by how much it was late, where its request stands, when it was expected and when it came."""

    ms: int
    origin: Origin
    expected_ms: int
    came_ms: int


class Asked(NamedTuple):
    """A request of the input."""

    origin: Origin
    record: Record
    action: str  # schedule, cancel, replace, or bad
    id: bytes
    target: str
    due_ms: int


def asked_of(record: Record) -> Asked:
    """What a record of the input asks for; those of the campaign are bad only where there is no target."""
    headers = record.headers
    action = (headers.get("delay-action") or b"schedule").decode()
    target = (headers.get("deliver-to") or b"").decode()
    if action != "cancel" and not target:
        action = "bad"
    return Asked(
        (record.partition, record.offset), record, action, headers.get("delay-id") or b"", target,
        int(headers.get("deliver-at") or 0),
    )  # fmt: skip


class Checker:
    """Of one episode; `topic` is the input's name. `acknowledged`: of the requests that Kafka took."""

    def __init__(self, topic: str, records: Iterable[Record], acknowledged: Iterable[Origin]) -> None:
        self._topic, self._acknowledged = topic, list(acknowledged)
        by_topic: dict[str, list[Record]] = defaultdict(list)
        for record in records:
            by_topic[record.topic].append(record)
        self.asked = {one.origin: one for one in map(asked_of, by_topic.pop(topic, []))}
        self._replies = by_topic.pop(f"{topic}.replies", [])
        self._letters = by_topic.pop(f"{topic}.dead", [])
        by_topic.pop(f"{topic}.settled", None)
        self._delivered = by_topic
        self._commands: dict[tuple[int, bytes], list[Asked]] = defaultdict(list)
        for one in sorted(self.asked.values(), key=lambda one: one.origin):
            if one.action in ("cancel", "replace"):
                self._commands[one.origin[0], one.id].append(one)
        self.fired = Counter(self._origin(record, "delayed-from") for each in by_topic.values() for record in each)

    def _origin(self, record: Record, header: str) -> Origin:
        return _parsed(self._topic, (record.headers.get(header) or b"").decode())

    def messages(self) -> Iterator[Asked]:
        """The requests that are to be delivered, but for cancels of them."""
        return (one for one in self.asked.values() if one.action in ("schedule", "replace"))

    def taken_by(self, message: Asked) -> Asked | None:
        """The first command behind a message that means it."""
        if not message.id:
            return None
        behind = (one for one in self._commands.get((message.origin[0], message.id), ()) if one.origin > message.origin)
        return next(behind, None)

    def unfinished(self) -> int:
        """How many requests have neither an effect nor an answer yet."""
        answered = {_parsed(self._topic, json.loads(reply.value or b"{}")["request"]) for reply in self._replies}
        letters = {self._origin(letter, "dead-from") for letter in self._letters}
        return sum(
            one.origin not in letters if one.action == "bad"
            else (one.action != "schedule" and one.origin not in answered)
            or (one.action != "cancel" and not self.fired[one.origin] and self.taken_by(one) is None)
            for one in self.asked.values()
        )  # fmt: skip

    def violations(self) -> list[Violation]:
        """All that are found."""
        found = [*self._lost(), *self._twice(), *self._strange(), *self._early(), *self._overtaken(), *self._untrue()]
        return [*found, *self._put_aside()]

    def _lost(self) -> Iterator[Violation]:
        for origin in self._acknowledged:
            if origin not in self.asked:
                yield Violation("lost", f"{origin} was acknowledged and is not in the input")
        for message in self.messages():
            if not self.fired[message.origin] and self.taken_by(message) is None:
                yield Violation("lost", f"{message}")

    def _twice(self) -> Iterator[Violation]:
        for origin, count in self.fired.items():
            if count > 1:
                yield Violation("twice", f"{origin} was delivered {count} times")

    def _strange(self) -> Iterator[Violation]:
        for topic, records in self._delivered.items():
            for record in records:
                asked = self.asked.get(self._origin(record, "delayed-from"))
                if asked is None or asked.action not in ("schedule", "replace"):
                    yield Violation("strange", f"nobody asked for {record}")
                elif (topic, record.key, record.value) != (asked.target, asked.record.key, asked.record.value):
                    yield Violation("strange", f"{record} is not what {asked} asked for")
                elif int(record.headers.get("delayed-until") or 0) != asked.due_ms:
                    yield Violation("strange", f"{record} does not say when it was due: {asked}")

    def _early(self) -> Iterator[Violation]:
        for records in self._delivered.values():
            for record in records:
                asked = self.asked.get(self._origin(record, "delayed-from"))
                if asked is not None and record.timestamp_ms < asked.due_ms:
                    yield Violation("early", f"{record} by {asked.due_ms - record.timestamp_ms} ms")

    def _overtaken(self) -> Iterator[Violation]:
        for records in self._delivered.values():
            latest: dict[tuple[int, int], Asked] = {}
            for record in sorted(records, key=lambda record: (record.partition, record.offset)):
                asked = self.asked.get(self._origin(record, "delayed-from"))
                if asked is None:
                    continue
                way = record.partition, asked.origin[0]
                before = latest.setdefault(way, asked)
                if (asked.due_ms, asked.origin) >= (before.due_ms, before.origin):
                    latest[way] = asked
                elif asked.record.timestamp_ms + LATE_MS < before.due_ms:
                    yield Violation("overtaken", f"{asked} by {before}")

    def _untrue(self) -> Iterator[Violation]:
        told: dict[Origin, list[tuple[str, int]]] = defaultdict(list)
        for reply in self._replies:
            said = json.loads(reply.value or b"{}")
            told[_parsed(self._topic, said["request"])].append((said["outcome"], said["count"]))
        for (partition, id), commands in self._commands.items():
            named = [one for one in self.messages() if one.id == id and one.origin[0] == partition]
            for command in commands:
                true = self._true_answer(command, named)
                if told.pop(command.origin, []) != [true]:
                    yield Violation("untrue", f"{command} should hear {true} once")
        for origin in told:
            yield Violation("strange", f"an answer to {origin}, which asked nothing")

    def _true_answer(self, command: Asked, named: list[Asked]) -> tuple[str, int]:
        """Rule 3."""
        before = [one for one in named if one.origin < command.origin]
        delivered = any(self.fired[one.origin] for one in before)
        gone = [one for one in before if not self.fired[one.origin]]
        count = sum(self.taken_by(one) is command for one in gone)
        done = {"cancel": "cancelled", "replace": "replaced"}[command.action]
        if count or (gone and not delivered and command.action == "cancel"):
            return done, count
        return "already delivered" if delivered else "unknown", 0

    def _put_aside(self) -> Iterator[Violation]:
        letters = Counter(self._origin(letter, "dead-from") for letter in self._letters)
        for one in self.asked.values():
            if (letters.pop(one.origin, 0)) != (one.action == "bad"):
                yield Violation("strange", f"{one} is not put aside as it should be")
        for origin in letters:
            yield Violation("strange", f"{origin} is put aside, and is not in the input")

    def latest(self) -> Late:
        """What was delivered latest, counted from when it was due and had come."""
        late = (
            Late(record.timestamp_ms - expected_ms, asked.origin, expected_ms, record.timestamp_ms)
            for records in self._delivered.values()
            for record in records
            if (asked := self.asked.get(self._origin(record, "delayed-from"))) is not None
            for expected_ms in (max(asked.due_ms, asked.record.timestamp_ms),)
        )
        return max(late, default=Late(0, (-1, -1), 0, 0))


def _parsed(topic: str, place: str) -> Origin:
    head, partition, offset = place.rsplit("-", 2) if place.count("-") >= 2 else ("", "-1", "-1")
    return (int(partition), int(offset)) if head == topic else (-1, -1)
