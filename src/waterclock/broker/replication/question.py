"""What the other broker says of itself: whether it follows, or leads. And a leader that asks its follower, over and over.

    the other broker                        the leader
    follows                                 goes on serving, for LEASE_S from the question on
    leads in a later epoch                  is deposed
    leads in an earlier one, is another     goes on: it is not this one's follower any more, and not its leader either
        cluster's, or nobody listens there
    says nothing                            holds its clients for SILENT_S from the first question on; then it goes on,
                                            with a line in the log: it cannot know

Rule 1: a question that took longer than PATIENCE_S allows says nothing: this process stood still meanwhile.
Rule 2: a port where nobody listens has no leader behind it; a process that stands still does listen.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from typing import Final, NamedTuple

from waterclock.broker.folder.identity import NO_NODE
from waterclock.broker.replication.journal import TOPIC
from waterclock.broker.replication.lease import ASKER, LEASE_S, LeaderLease
from waterclock.broker.replication.link import Link, LinkLost, NobodyListens
from waterclock.broker.security.link import LinkAccess
from waterclock.broker.wire.errors import Error

EVERY_S: Final = LEASE_S / 4
AGAIN_S: Final = 0.1
PATIENCE_S: Final = 1.0
SILENT_S: Final = 3.0
LATER: Final = 1 << 30  # the epoch of one that leads and does not say in which: a broker of an earlier version
log = logging.getLogger("waterclock.broker")


class Word(Enum):
    """What was heard."""

    FOLLOWS = "follows"
    LEADS = "leads"
    GONE = "is not there"
    SILENT = "says nothing"


class LeadershipReply(NamedTuple):
    """`epoch` is the one it leads in; `why` is for the log."""

    word: Word
    epoch: int = -1
    why: str = ""


class Question:
    """Asks the broker at `address`, which should be of `cluster` (None: of any); `node` asks. The connection is kept."""

    def __init__(self, address: str, node: int, cluster: str | None, access: LinkAccess) -> None:
        self.address = address
        self._node = node
        self._cluster = cluster
        self._link = Link(address, ASKER, access)
        self._connected = False
        self._leads = False

    async def ask(self) -> LeadershipReply:
        """Ask once; it takes PATIENCE_S at most."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                return await self._asked()
        except NobodyListens as gone:
            return LeadershipReply(Word.GONE, why=str(gone))
        except (LinkLost, TimeoutError) as silent:
            self.close()
            return LeadershipReply(Word.SILENT, why=str(silent) or f"{self.address} does not answer")

    async def _asked(self) -> LeadershipReply:
        if self._connected:
            with suppress(LinkLost):
                return await self._epoch()
            self.close()  # it was started anew, perhaps as another
        await self._link.connect()
        cluster, leader = await self._link.leader()
        if self._cluster is not None and cluster != self._cluster:
            self.close()
            return LeadershipReply(Word.GONE, why=f"{self.address} is a broker of another cluster")
        self._leads = leader not in (NO_NODE, self._node)
        self._connected = True
        return await self._epoch()

    async def _epoch(self) -> LeadershipReply:
        """By its epoch as a leader; a follower refuses to say one."""
        error, epoch, _ = await self._link.end_of_epoch(self._node, TOPIC, 0, 0)
        if error == Error.NOT_LEADER_OR_FOLLOWER or (error and not self._leads):
            return LeadershipReply(Word.FOLLOWS)
        return LeadershipReply(Word.LEADS, LATER if error else epoch)

    def close(self) -> None:
        """Drop the connection."""
        self._connected = False
        self._link.close()


class FollowerWatch:
    """Keeps `lease` as long as the follower follows. `epoch` is its own; `deposed(address, epoch)` hears of a later."""

    def __init__(self, lease: LeaderLease, epoch: int, deposed: Callable[[str, int], None]) -> None:
        self._lease = lease
        self._epoch = epoch
        self._deposed = deposed
        self._question: Question | None = None
        self._changed = asyncio.Event()
        self._alone = False  # it went on without the follower, and has not heard of it since
        self._silent_ns: int | None = None  # since when it has asked in vain
        self.says = ""
        """What it logged last."""

    def follow(self, question: Question) -> None:
        """This is to be asked from now on."""
        if self._question is not None:
            self._question.close()
        self._question = question
        self._alone = False
        self._silent_ns = None
        self._lease.begin()
        self._changed.set()

    async def run(self) -> None:
        """Ask until it is cancelled."""
        await self._changed.wait()
        while (question := self._question) is not None:
            began_ns = self._lease.now_ns()
            said = await question.ask()
            if question is self._question:
                self._take(question.address, said, began_ns)
            if self._lease.holds:  # the next question is due at once if somebody waits
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._lease.asked.wait(), EVERY_S)
            else:
                await asyncio.sleep(AGAIN_S)

    def _take(self, address: str, said: LeadershipReply, began_ns: int) -> None:
        if said.word is Word.LEADS and said.epoch > self._epoch:
            self._deposed(address, said.epoch)
        elif said.word is not Word.SILENT:
            self._say(f"{address} leads in an earlier epoch, and is no follower" if said.word is Word.LEADS else "")
            self._alone, self._silent_ns = False, None
            self._lease.renew(began_ns)
        elif self._may_go_on(began_ns):
            self._say(
                f"the follower at {address} has not said for {SILENT_S:.0f} s whether it follows: {said.why}. This broker "
                f"goes on without it; if it was promoted meanwhile, two brokers lead"
            )
            self._alone = True
            self._lease.renew(self._lease.now_ns())

    def _may_go_on(self, began_ns: int) -> bool:
        """After a question without an answer: whether this one was asked long enough, or goes on alone already."""
        now_ns = self._lease.now_ns()
        if self._lease.holds or now_ns - began_ns > int(2 * PATIENCE_S * 1e9):  # Rule 1
            self._silent_ns = None
            return self._alone and self._lease.holds
        if self._silent_ns is None:
            self._silent_ns = began_ns
        return now_ns - self._silent_ns >= int(SILENT_S * 1e9)

    def _say(self, what: str) -> None:
        if what != self.says:
            self.says = what
            if what:
                log.warning("%s", what)

    def close(self) -> None:
        """Ask no more."""
        question, self._question = self._question, None
        if question is not None:
            question.close()
