"""Members of either protocol that do one thing at a time, in whatever order they are called: for random histories.

Rule 1: `reads` is what a member reads at this moment. Two members that read the same partition are a broker's fault.
Rule 2: a member does what real clients do: one that is eager lets go of everything before it joins again, one that is
    cooperative reads on; a leader of those gives nobody what another has not let go of.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterable
from typing import Any, Protocol

from tests.broker.groups.clients import LEAVE, Answer, Turned
from tests.broker.groups.consumer_members import Reader
from tests.broker.groups.old_readers import COOPERATIVE, OldReader, Part, assignment, parts
from waterclock.broker.groups.embedded import read_subscription
from waterclock.broker.wire.errors import Error


class Someone(Protocol):
    """One member of either protocol."""

    name: str

    @property
    def reads(self) -> set[Part]: ...

    def step(self) -> None:
        """Go on by one request or one answer."""

    def goes(self) -> None:
        """Leave, and close."""

    def dies(self) -> None:
        """Close without a word."""

    def moves(self, served: Turned) -> None:
        """The broker is another process: connect anew."""


class Old:
    """A consumer of the classic protocol."""

    def __init__(self, served: Turned, name: str, way: str) -> None:
        self.name, self.way = name, way
        self._reader = OldReader(served, name, way=way)
        self._reader.session = 30_000
        self._joining: Answer | None = None
        self._syncing: Answer | None = None
        self._join()

    @property
    def reads(self) -> set[Part]:
        return self._reader.reads

    def step(self) -> None:
        if self._joining is not None:
            if not self._joining.waiting:
                self._joined(self._joining.get())
        elif self._syncing is not None:
            if not self._syncing.waiting:
                self._synced(self._syncing.get())
        else:
            error = self._reader.beats()
            if error:
                self._refused(error)

    def _join(self) -> None:
        if self.way != COOPERATIVE:
            self._reader.reads = set()
        self._syncing = None
        self._joining = self._reader.joins(protocols=self._reader.says(), session=30_000, rebalance=30_000)

    def _joined(self, joined: Any) -> None:
        self._joining = None
        if joined.error_code == Error.MEMBER_ID_REQUIRED:
            self._reader.member = joined.member_id
            self._join()
        elif joined.error_code:
            self._refused(joined.error_code)
        else:
            self._reader.takes(type("Got", (), {"get": lambda _: joined})())
            self._syncing = self._reader.syncs(divided(joined.members, self.way))

    def _synced(self, synced: Any) -> None:
        self._syncing = None
        if synced.error_code:
            self._refused(synced.error_code)
            return
        before, self._reader.reads = self._reader.reads, set(parts(synced.assignment))
        if before - self._reader.reads:
            self._join()  # a cooperative one tells that it has let go

    def _refused(self, error: int) -> None:
        assert error in (Error.REBALANCE_IN_PROGRESS, Error.ILLEGAL_GENERATION, Error.UNKNOWN_MEMBER_ID), error
        if error != Error.REBALANCE_IN_PROGRESS:
            self._reader.reads = set()  # lost
        if error == Error.UNKNOWN_MEMBER_ID:
            self._reader.member = ""
        self._join()

    def goes(self) -> None:
        leaver = OldReader(self._reader.served, "leaver")  # its own connection may wait for an answer
        row = {"member_id": self._reader.member, "group_instance_id": None, "reason": None}
        leaver.ask(LEAVE, 5, group_id="g", members=[row])
        leaver.close()
        self.dies()

    def dies(self) -> None:
        self._reader.close()
        self._reader.reads = set()

    def moves(self, served: Turned) -> None:
        before, waited = self._reader, self._joining is not None or self._syncing is not None
        before.close()
        self._reader = OldReader(served, self.name, way=self.way)
        self._reader.member, self._reader.generation = before.member, before.generation
        self._reader.reads, self._reader.session = before.reads, before.session
        if waited:
            self._join()


class New:
    """A consumer of the new protocol. What it is told it does at a later step."""

    def __init__(self, served: Turned, name: str) -> None:
        self.name, self._reader = name, Reader(served, name)
        self._reader.joins(rebalance=30_000)

    @property
    def reads(self) -> set[Part]:
        return {("t", number) for _, number in self._reader.reads}

    def step(self) -> None:
        if self._reader.reads != self._reader.assigned_now and random.random() < 0.5:
            kept = self._reader.reads & self._reader.assigned_now
            self._reader.reads = kept if kept != self._reader.reads else set(self._reader.assigned_now)
            return
        rows = [{"topic_id": topic, "partitions": [number]} for topic, number in self._reader.reads]
        answer = self._reader.beat(topic_partitions=rows)
        if answer.error_code in (Error.UNKNOWN_MEMBER_ID, Error.FENCED_MEMBER_EPOCH, Error.GROUP_ID_NOT_FOUND):
            self._reader.reads, self._reader.assigned_now = set(), set()
            self._reader.joins(rebalance=30_000)
        else:
            self._reader.remembers(answer)

    def goes(self) -> None:
        self._reader.leaves()
        self.dies()

    def dies(self) -> None:
        self._reader.close()
        self._reader.reads = set()

    def moves(self, served: Turned) -> None:
        before = self._reader
        before.close()
        self._reader = Reader(served, self.name)
        self._reader.member, self._reader.epoch = before.member, before.epoch
        self._reader.reads, self._reader.assigned_now = before.reads, before.assigned_now


def divided(members: Iterable[Any], way: str, partitions: int = 6) -> dict[str, bytes]:
    """What a leader gives to whom: neighbours to each, but nothing that another one still reads."""
    rows = list(members)
    if not rows:
        return {}
    says = {row.member_id: read_subscription(row.metadata) for row in rows}
    owner = {part: who for who, said in says.items() for part in (said.owned if said and way == COOPERATIVE else ())}
    shares: dict[str, list[Part]] = {row.member_id: [] for row in rows}
    for number in range(partitions):
        who = rows[number * len(rows) // partitions].member_id
        if owner.get(("t", number), who) == who:
            shares[who].append(("t", number))
    return {who: assignment(share) for who, share in shares.items()}


def in_order(seed: int) -> random.Random:
    """The chances of one history; those within members come from the module's own, seeded alike."""
    random.seed(seed)
    return random.Random(struct.pack(">q", seed))
