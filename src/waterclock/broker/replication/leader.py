"""The leader's side of replication: its follower comes with its first fetch, and is remembered.

    waterclock-follower@HOST:PORT/ID    the client id of a follower's connection: where clients may find it, who it is

Rule 1: a follower counts from the moment on at which it is durable that there is one: the store is journaled, and every
    new partition waits for it. One that comes while another was heard of lately is refused.
Rule 2: a fetch with a later epoch than ours comes from a new leader: this broker is deposed, and serves no more.
Rule 3: a client that calls itself a replica and has no follower's name is a client.
Rule 4: with fewer replicas in sync than the broker's min.insync.replicas the store takes nothing that the follower would
    get: it refuses before that stands anywhere. What belongs to one broker is taken always: a follower can come.
Rule 5: if clients say who they are, only the link's user may follow, depose, or read what only followers read.
Rule 6: what stood in the store when this broker started may be unknown to its follower, and nobody was told that it was
    done. Until the follower has it, coordinators answer COORDINATOR_LOAD_IN_PROGRESS, as Kafka's do while they read
    theirs: a client that asks again would else be told of a commit that a promotion takes back.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from waterclock.broker.log.partition import Partition
from waterclock.broker.replication.highs import KeptHighs
from waterclock.broker.replication.journal import TOPIC, Journal, copied, nobody_waits
from waterclock.broker.replication.lease import AskingConnection
from waterclock.broker.replication.replicas import Replicas
from waterclock.broker.statistics import ReplicationStatistics
from waterclock.broker.store import Entry, Forget, Store, Then
from waterclock.broker.wire.errors import Error
from waterclock.outside import uuid

if TYPE_CHECKING:
    from waterclock.broker.folder.identity import Identity
    from waterclock.broker.wire.fetch import FetchRequest

NAME: Final = re.compile(r"waterclock-follower@(.+)/([0-9a-f]{32})")
NAMESPACE: Final = "self"
JOURNAL_KEYS: Final = (TOPIC.encode(), uuid.uuid5(uuid.NAMESPACE_OID, TOPIC).bytes)  # by its name, and as if by an id
SAYS: Final = {
    True: "fewer replicas are in sync than min.insync.replicas asks for: groups' offsets, transactions, topics and what "
    "else the store keeps are refused until the follower is back. If it will not be, lower min.insync.replicas",
    False: "enough replicas are in sync: what the store keeps is taken again",
}
log = logging.getLogger("waterclock.broker")


class KnownFollower(NamedTuple):
    """Where a follower listens (HOST:PORT), and an id that no other folder has."""

    address: str
    id: str

    def name(self) -> str:
        """Its client id.

        >>> KnownFollower.of(KnownFollower("127.0.0.1:9093", "0" * 32).name()).address
        '127.0.0.1:9093'
        """
        return f"waterclock-follower@{self.address}/{self.id}"

    @classmethod
    def of(cls, client_id: str) -> KnownFollower | None:
        """The follower with that client id; None for anybody else's."""
        found = NAME.fullmatch(client_id)
        return None if found is None else cls(found[1], found[2])


class Leader:
    """`journal_of()` opens the journal; `deposed(address, epoch)` hears of a new leader, `attached(address)` of a follower.

    `user` is who may follow: everybody (None), or the user of that name ("": nobody).
    """

    def __init__(
        self,
        identity: Identity,
        store: Store,
        replicas: Replicas,
        journal_of: Callable[[], Journal],
        deposed: Callable[[str, int], None],
        attached: Callable[[str], None],
        user: str | None = None,
    ) -> None:
        self._identity = identity
        self._store = store
        self.replicas = replicas
        self._journal_of = journal_of
        self._deposed = deposed
        self._attached = attached
        self._user = user
        self.journal: Journal | None = None
        self._follower: KnownFollower | None = None
        self._coming: KnownFollower | None = None
        self._highs = KeptHighs(store)
        self._stranger = ""
        self.refuses = False
        """Whether the last commit was refused by Rule 4."""
        self.loading = False
        """Whether the store may hold what the follower of before never got (Rule 6)."""
        self._when_loaded: list[Callable[[], object]] = []
        self.epoch: int = store.load(NAMESPACE).get("epoch", 0)  # since when it leads; the first leader's is 0

    def remember(self, partitions: Iterable[Partition]) -> None:
        """Go on with the follower of the last time, if there was one, or wait for the leader of before."""
        kept = self._store.load(NAMESPACE)
        known = kept.get("follower")
        if known is None:
            if kept.get("deposed") is not None:
                self.replicas.follower = self._identity.other  # it counts as a replica, and is not in sync
                for partition in partitions:
                    self._highs.restore(partition)
                    self.replicas.lead(partition)
                self._store.journal(self._commit)
                # it stays on the list of brokers: clients that drop one from theirs may wait for it for minutes
                self._identity.peer, self._identity.peer_at = self._identity.other, kept["deposed"]["address"]
            return
        self._attach(known["node"], KnownFollower(known["address"], known["id"]))
        for partition in partitions:
            self._highs.restore(partition)
            self.replicas.expect(partition)
        if self.journal is not None:
            self.journal.partition.high = self.journal.partition.start
            self.replicas.expect(self.journal.partition)
            self.loading = True
            self.journal.when_copied(0, self._loaded)
            log.warning(
                "groups and transactions are served once replica %d has what the store held at this start, or counts no "
                "more", known["node"],
            )  # fmt: skip

    def when_loaded(self, deed: Callable[[], object]) -> None:
        """Run `deed` once the follower has all that stood in the store at the start, or now if there is none."""
        if self.loading:
            self._when_loaded.append(deed)
        else:
            deed()

    def _loaded(self) -> None:
        self.loading = False
        log.warning("groups and transactions are served")
        for deed in self._when_loaded:
            deed()

    def keep_highs(self, partitions: Iterable[Partition]) -> float | None:
        """Remember how far readers may read; None if that is remembered, or there is no other broker (rhythm.py)."""
        return None if self.replicas.follower is None else self._highs.keep(partitions)

    def journal_at(self, key: bytes, number: int) -> Partition | None:
        """The journal, for a follower that asks for it."""
        return self.journal.partition if self.journal is not None and key in JOURNAL_KEYS and not number else None

    def admits(self, client: AskingConnection) -> bool:
        """Whether a connection may do what followers do. Rule 5."""
        if self._user is None or (self._user and client.principal == self._user):
            return True
        if (stranger := f"{KnownFollower.of(client.client_id)} {client.principal}") != self._stranger:
            self._stranger = stranger
            log.warning(
                "%s, logged in as %r, wants to follow, and may not: %s", client.peer(), client.principal,
                f"the link's user is {self._user!r}" if self._user else "this broker has no --link-login",
            )  # fmt: skip
        return False

    def meets(self, client_id: str, replica: int) -> Error:
        """A request of a follower: it is known from now on, or soon; or it is one too many."""
        follower = KnownFollower.of(client_id)
        if follower is None:
            return Error.NOT_LEADER_OR_FOLLOWER
        if follower == self._follower:
            self.replicas.heard()
            return Error.NONE
        if replica == self._identity.node:
            return Error.DUPLICATE_BROKER_REGISTRATION
        if self._follower is not None and self._follower.id != follower.id and self.replicas.alive:
            return Error.DUPLICATE_BROKER_REGISTRATION
        if follower != self._coming:
            self._coming = follower
            value = {"node": replica, "address": follower.address, "id": follower.id}
            known = [Entry(NAMESPACE, "follower", value), Entry(NAMESPACE, "node", self._identity.node)]

            def came(done: bool) -> None:
                if self._coming == follower:
                    self._coming = None
                if not done:
                    return
                try:
                    self._attach(replica, follower)
                except OSError as error:  # it asks again
                    log.error(
                        "replica %d cannot follow yet, since the disk refuses the journal for it: %s. It asks again",
                        replica,
                        error,
                    )
                else:
                    log.warning("replica %d follows, at %s", replica, follower.address)

            self._store.commit(known, came)
        return Error.REPLICA_NOT_AVAILABLE  # it asks again

    def is_over(self, client_id: str, request: FetchRequest) -> bool:
        """Whether a new leader says so: the epoch in its request for the journal is later than ours."""
        follower = KnownFollower.of(client_id)
        for key, rows in request.topics if follower is not None else ():
            epoch = max((row.leader_epoch for row in rows), default=-1)
            if follower is not None and key in JOURNAL_KEYS and epoch > self.epoch:
                self._deposed(follower.address, epoch)
                return True
        return False

    def _attach(self, node: int, follower: KnownFollower) -> None:
        """OSError, and nothing has changed, if the journal cannot be opened."""
        journal = self.journal or self._journal_of()
        if self._follower is None or self._follower.id != follower.id:
            self.replicas.attach(node)
        self._follower = follower
        self._identity.peer, self._identity.peer_at = node, follower.address
        self._attached(follower.address)
        if self.journal is None:
            self.journal = journal
            self._store.journal(self._commit)
            self._store.tell_all(journal.reset)

    def _commit(self, changes: list[Entry | Forget], then: Then | None) -> Then:
        """A commit of the store goes into the journal, once there is one; OSError if too few are in sync. Rule 4."""
        if copied(changes):
            if (too_few := self.too_few) != self.refuses:
                self.refuses = too_few
                log.warning(SAYS[too_few])
            if too_few:
                raise OSError("fewer replicas are in sync than min.insync.replicas asks for")
        return (then or nobody_waits) if self.journal is None else self.journal.commit(changes, then)

    @property
    def too_few(self) -> bool:
        """Whether fewer replicas are in sync than a commit of the store needs."""
        if self.journal is None:
            return self.replicas.leader_is_too_few
        return self.journal.partition.deposed or bool(self.replicas.refused(self.journal.partition))

    def statistics(self) -> ReplicationStatistics:
        """The follower's address and state."""
        return self.replicas.statistics(self._follower.address if self._follower is not None else "")


def id_of(store: Store) -> str:
    """An id that no other broker's folder has, made at its first question; OSError if it cannot be kept."""
    kept: Any = store.load(NAMESPACE).get("id")
    if kept is None:
        store.commit_at_once(Entry(NAMESPACE, "id", kept := uuid.uuid4().hex))
    return str(kept)
