"""What the relay promises, as a list: every request that was written, and what may have become of it.

Rule 1: it is made from the contract (docs/relay.md) and knows nothing of the relay's code.
Rule 2: it looks at what came between two rests. At a rest the relays have read all that is in the input and have nothing
    left to do, so nothing that is due may be pending, and no command unanswered.
Rule 3: `known` is a request that the owner has read before it delivers anything after this moment: one from before the
    last rest, or one that was written while no relay ran (a new owner reads the input before it delivers).
Rule 4: where the wall clock stands back by a second or less, a relay waits for it, also with what is due already.
Rule 5: an id of which nothing is known but a request that was put aside is unknown, or said to be cancelled.
Rule 6: where the contract leaves two outcomes open, both are allowed, and what follows must agree with the one that came.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import combinations, product
from typing import Any

from tests.relay.reader import Seen

STEP_MS = 1_000  # rule 4
REMEMBERED_MS = 7 * 24 * 3_600_000  # so long after it was due an id is known
HOUR_MS = 3_600_000
CONTROLS = {"deliver-to", "deliver-at", "delay", "delay-id", "delay-action", "delayed-from", "delayed-until"}


@dataclass
class Request:
    """A record of the input; `action` is schedule, cancel, replace, or bad where it belongs to the dead letters."""

    action: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    id: str = ""
    target: str = ""
    due_ms: int = 0
    known: bool = False
    ran_ms: int = 0  # the latest time at which any relay had run when it was written
    became: str = "pending"  # or: fired, cancelled, at a rest

    @property
    def place(self) -> tuple[int, int]:
        return self.partition, self.offset

    @property
    def order(self) -> tuple[int, int]:
        return self.due_ms, self.offset


@dataclass
class Oracle:
    """`now_ms` is the wall clock, `ran_ms` the latest at which a relay ran since the last rest, `ever_ms` at all."""

    topic: str
    now_ms: int
    ran_ms: int = 0
    ever_ms: int = 0
    times_ms: set[int] = field(default_factory=set)  # of all runs
    requests: dict[tuple[int, int], Request] = field(default_factory=dict)
    fresh: list[Request] = field(default_factory=list)

    def write(self, request: Request) -> None:
        request.ran_ms = self.ever_ms
        self.requests[request.place] = request
        self.fresh.append(request)

    def run(self) -> None:
        """A relay runs, at this moment of its clock."""
        self.times_ms.add(self.now_ms)
        self.ran_ms, self.ever_ms = max(self.ran_ms, self.now_ms), max(self.ever_ms, self.now_ms)

    def messages(self) -> list[Request]:
        return [one for one in self.requests.values() if one.action in ("schedule", "replace")]

    def pending(self) -> list[Request]:
        return [one for one in self.messages() if one.became == "pending"]

    def pending_by_hour(self) -> Counter[tuple[int, str]]:
        return Counter((one.due_ms // HOUR_MS, one.target) for one in self.pending())

    @property
    def is_waited_for(self) -> bool:
        """Whether the clock stands back a little (rule 4)."""
        return any(self.now_ms < ran_ms <= self.now_ms + STEP_MS for ran_ms in self.times_ms)

    # At a rest

    def rest(self, delivered: dict[str, list[Seen]], replies: list[Seen], letters: list[Seen]) -> None:
        """Compare with what readers saw since the last one; AssertionError says which promise was broken."""
        for target, seen in delivered.items():
            self._delivered(target, seen)
        self._answered([json.loads(one.value or b"") | {"key": one.key} for one in replies])
        self._aside(letters)
        late = [one for one in self.pending() if one.due_ms <= self.now_ms]
        assert not late or self.is_waited_for, f"due and not delivered at {self.now_ms}: {late}"
        self.fresh.clear()
        self.ran_ms = 0
        for request in self.requests.values():
            request.known = True

    # Promises 1, 2, 3: never early, once, in order

    def _delivered(self, target: str, seen: list[Seen]) -> None:
        came = [(one.partition, self._fired(target, one)) for one in seen]
        for (at, first), (its, second) in combinations(came, 2):
            if at != its or first.partition != second.partition or first.order <= second.order:
                continue
            overtakes = second.known or second.offset < first.offset
            assert not overtakes, f"promise 3: in {target} it came behind {first}, and should before: {second}"

    def _fired(self, target: str, seen: Seen) -> Request:
        headers = seen.headers
        origins = [value or b"" for name, value in headers if name == "delayed-from"]
        assert len(origins) == 1, f"one header says where it comes from: {seen}"
        request = self.requests[self._place(origins[0].decode())]
        assert request.became == "pending", f"promise 2: delivered, and was settled before: {request}, {seen}"
        request.became = "fired"
        assert request.due_ms <= self.ran_ms, f"promise 1: early by {request.due_ms - self.ran_ms} ms: {request}"
        assert (request.target, request.action in ("schedule", "replace")) == (target, True), (
            f"not asked for: {request}, {seen}"
        )
        assert (request.key, request.value) == (seen.key, seen.value), f"altered: {request}, {seen}"
        handed_on = [(name, value) for name, value in request.headers if name not in CONTROLS]
        assert handed_on == [one for one in headers if one[0] not in CONTROLS], f"headers altered: {request}, {seen}"
        assert dict(headers)["delayed-until"] == str(request.due_ms).encode()
        return request

    def _place(self, name: str) -> tuple[int, int]:
        topic, partition, offset = name.rsplit("-", 2)
        assert topic == self.topic
        return int(partition), int(offset)

    # Promise 5: answers are true

    def _answered(self, replies: list[dict[str, Any]]) -> None:
        commands = sorted((one for one in self.fresh if one.action in ("cancel", "replace")), key=lambda one: one.place)
        told = Counter(self._place(reply["request"]) for reply in replies)
        assert told == Counter(one.place for one in commands), f"promise 5: {told} are answers to {commands}"
        by_place = {self._place(reply["request"]): reply for reply in replies}
        for command in commands:
            self._answer(command, by_place[command.place])

    def _answer(self, command: Request, reply: dict[str, Any]) -> None:
        before = [one for one in self.messages() if self._may_see(command, one)]
        taken = [one for one in before if one.became == "pending"]
        for one in taken:
            one.became = "cancelled"
        slow = [one for one in before if one.became == "fired" and command.known and one.due_ms > command.ran_ms]
        assert not slow, f"promise 5: {command} was there before any relay could deliver {slow}"
        assert (reply["id"], reply["action"], reply["key"]) == (command.id, command.action, command.id.encode()), reply
        allowed = (
            {"replaced" if command.action == "replace" else "cancelled"} if taken else self._nothing(command, before)
        )
        wrong = (
            f"promise 5: the answer to {command} is {reply}; it takes {taken}, of {before}: one of {sorted(allowed)}"
        )
        assert (reply["outcome"] in allowed, reply["count"]) == (True, len(taken)), wrong

    def _may_see(self, command: Request, message: Request) -> bool:
        here = message.partition == command.partition and message.offset < command.offset
        return here and message.id == command.id

    def _nothing(self, command: Request, before: Iterable[Request]) -> set[str]:
        """The outcomes where none was pending, with each of the old ones known or forgotten."""
        latest_ms = max(self.ever_ms, self.now_ms)
        aside = any(one.action == "bad" and self._may_see(command, one) for one in self.requests.values())
        choices = [{one.became} | ({""} if one.due_ms < latest_ms - REMEMBERED_MS else set()) for one in before]
        choices.append({"cancelled", ""} if aside else {""})
        return {outcome for known in _sets(choices) for outcome in _outcomes(known, command.action)}

    # Promise 7: what cannot be done goes aside, and nothing else does

    def _aside(self, letters: list[Seen]) -> None:
        bad = {one.place: one for one in self.fresh if one.action == "bad"}
        told = Counter(self._place((dict(one.headers)["dead-from"] or b"").decode()) for one in letters)
        assert told == Counter(bad.keys()), f"promise 7: the letters are {told}, the bad requests {sorted(bad)}"
        for seen in letters:
            request = bad[self._place((dict(seen.headers)["dead-from"] or b"").decode())]
            assert (request.key, request.value) == (seen.key, seen.value), f"altered: {request}, {seen}"
            assert [one for one in seen.headers if not one[0].startswith("dead-")] == request.headers
            assert dict(seen.headers)["dead-reason"], f"without a reason: {seen}"


def _sets(choices: list[set[str]]) -> set[frozenset[str]]:
    """What may be known of several, where each is one of its choices; few kinds, so few sets."""
    sets = {frozenset[str]()}
    for choice in choices:
        sets = {known | {one} for known, one in product(sets, choice)}
    return {known - {""} for known in sets}


def _outcomes(known: frozenset[str], action: str) -> set[str]:
    if "fired" in known:
        return {"already delivered"}
    if "cancelled" in known:
        return {"cancelled"} if action == "cancel" else {"cancelled", "replaced", "unknown"}
    return {"unknown"}
