"""Whether the leader may answer: its follower may have been promoted while this process, or its machine, stood still. So it
asks its follower, over and over.

    the lease                   a request that was just read
    holds, or nobody follows    is served
    is over                     is held until the follower has said that it still follows, or is gone
    is lost: it was deposed     closes its connection

    the other broker                        the leader
    follows                                 goes on serving, for LEASE_S from the question on
    leads in a later epoch                  is deposed
    leads in an earlier one, is another     goes on: it is not this one's follower any more, and not its leader either
        cluster's, or nobody listens there
    says nothing                            holds its clients for SILENT_S from the first question on; then it goes on,
                                            with a line in the log: it cannot know

Rule 1: the clock is read after the request was: at whatever moment this process stood still, one that was sent meanwhile is
    not served. An answer to what was read in time may go out late: it was true while the client waited for it.
Rule 2: the lease counts from the moment at which the question was sent, never from when it was answered: the answer may
    have lain in the socket for an hour.
Rule 3: a new leader serves nobody before the old one has heard of it, refuses its connection, or OVER_S has passed since
    the new one has its port: tenure.py. OVER_S is longer than LEASE_S: clocks do not run alike.
Rule 4: the clock goes on while the machine sleeps, and is never set: clock.py.
Rule 5: who logs in, and the other broker, are served always: it is they who say what has become of the lease.
Rule 6: a question that took longer than PATIENCE_S allows says nothing: this process stood still meanwhile.
Rule 7: a port where nobody listens has no leader behind it; a process that stands still does listen.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from typing import Any, Final, NamedTuple, Protocol

from waterclock.broker.folder.identity import NO_NODE
from waterclock.broker.replication.journal import TOPIC
from waterclock.broker.replication.link import LastSentence, Link, LinkLost, NobodyListens
from waterclock.broker.security.link import LinkAccess
from waterclock.broker.wire.errors import Error

LEASE_S: Final = 2.0
OVER_S: Final = 2.5
ASKER: Final = "waterclock-leader"  # the client id of a broker's question whether another leads
FOLLOWERS: Final = "waterclock-follower@"
LOGIN: Final = frozenset({17, 18, 36})
MOST_HELD: Final = 64 << 20  # bytes; a connection whose request is one too many is closed
FOREVER_NS: Final = 1 << 62
EVERY_S: Final = LEASE_S / 4
AGAIN_S: Final = 0.1
PATIENCE_S: Final = 1.0
SILENT_S: Final = 3.0
LATER: Final = 1 << 30  # the epoch of one that leads and does not say in which: a broker of an earlier version
log = logging.getLogger("waterclock.broker")


class AskingConnection(Protocol):
    """What the lease needs of the connection that a request came by."""

    fd: int
    client_id: str
    principal: str | None

    def peer(self) -> str: ...

    def close(self) -> None: ...


class GuardedServer(Protocol):
    """What serves requests, and asks `keeps` about each, if there is one."""

    keeps: Any

    def __call__(self, connection: Any, data: memoryview, /) -> object: ...


class LeaderLease:
    """`now_ns()` goes on while the machine sleeps."""

    def __init__(self, now_ns: Callable[[], int]) -> None:
        self.now_ns = now_ns
        self._serve: GuardedServer | None = None
        self.asked = asyncio.Event()
        """Set if somebody waits for the follower's word."""
        self._until_ns, self._lost = FOREVER_NS, False
        self._held: list[tuple[AskingConnection, bytearray]] = []  # Produce writes offsets into what it was sent
        self._bytes = 0

    @property
    def holds(self) -> bool:
        """Whether this broker leads, as far as it can know."""
        return self.now_ns() <= self._until_ns

    def guard(self, serve: GuardedServer) -> None:
        """What `serve` is to serve is looked at first, as soon as there is a follower."""
        self._serve = serve
        self._guard()

    def _guard(self) -> None:
        if self._serve is not None and self._until_ns != FOREVER_NS:
            self._serve.keeps = self.keeps

    def begin(self) -> None:
        """There is a follower from now on, which has not said anything yet."""
        self._until_ns = -1
        self._guard()
        self.asked.set()

    def renew(self, since_ns: int) -> None:
        """At `since_ns` the follower followed; what was held is served, if that is not too long ago."""
        if self._lost:
            return
        self._until_ns = since_ns + int(LEASE_S * 1e9)
        if not self.holds:
            return
        self.asked.clear()
        for connection, request in self._taken():  # in its order; what is not served in time is held anew
            try:
                if connection.fd >= 0 and self._serve is not None:
                    self._serve(connection, memoryview(request))
            except Exception as error:
                log.warning("closed the connection of %s: %s: %s", connection.peer(), type(error).__name__, error)
                connection.close()

    def lose(self) -> None:
        """Another broker leads: nobody is answered here any more."""
        self._until_ns, self._lost = -1, True
        self._guard()
        for connection, _ in self._taken():
            connection.close()

    # For each request

    def keeps(self, connection: AskingConnection, key: int, request: memoryview) -> bool:
        """Whether a request, with its header, must not be served now."""
        if self.now_ns() <= self._until_ns:
            return False
        if key in LOGIN or connection.client_id == ASKER or connection.client_id.startswith(FOLLOWERS):
            return False  # Rule 5
        if self._lost or self._bytes + len(request) > MOST_HELD:
            connection.close()
            return True
        self._held.append((connection, bytearray(request)))
        self._bytes += len(request)
        self.asked.set()
        return True

    def _taken(self) -> list[tuple[AskingConnection, bytearray]]:
        held, self._held, self._bytes = self._held, [], 0
        return [(connection, request) for connection, request in held if connection.fd >= 0]


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
        self.says = LastSentence()

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
            self.says.log(f"{address} leads in an earlier epoch, and is no follower" if said.word is Word.LEADS else "")
            self._alone, self._silent_ns = False, None
            self._lease.renew(began_ns)
        elif self._may_go_on(began_ns):
            self.says.log(
                f"the follower at {address} has not said for {SILENT_S:.0f} s whether it follows: {said.why}. This broker "
                f"goes on without it; if it was promoted meanwhile, two brokers lead"
            )
            self._alone = True
            self._lease.renew(self._lease.now_ns())

    def _may_go_on(self, began_ns: int) -> bool:
        """After a question without an answer: whether this one was asked long enough, or goes on alone already."""
        now_ns = self._lease.now_ns()
        if self._lease.holds or now_ns - began_ns > int(2 * PATIENCE_S * 1e9):  # Rule 6
            self._silent_ns = None
            return self._alone and self._lease.holds
        if self._silent_ns is None:
            self._silent_ns = began_ns
        return now_ns - self._silent_ns >= int(SILENT_S * 1e9)

    def close(self) -> None:
        """Ask no more."""
        question, self._question = self._question, None
        if question is not None:
            question.close()
