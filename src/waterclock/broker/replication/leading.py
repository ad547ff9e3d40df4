"""The leader's side of replication: its follower comes with its first fetch, and is remembered.

    client_id of a follower's connection    waterclock-follower@HOST:PORT, where clients may find it later

Rule 1: from its first fetch on a follower counts: the store is journaled, and every new partition waits for it.
Rule 2: a fetch with a later epoch than ours comes from a new leader: this broker is deposed, and serves no more.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from waterclock.broker.log.partition import Partition
from waterclock.broker.replication.journal import TOPIC, Journal
from waterclock.broker.replication.replicas import Replicas

if TYPE_CHECKING:
    from waterclock.broker.identity import Identity
    from waterclock.broker.net.connection import Connection
    from waterclock.broker.store import Store
    from waterclock.broker.wire.fetch import FetchRequest

FOLLOWER: Final = "waterclock-follower@"
ROOM: Final = "self"
KEY: Final = TOPIC.encode()
log = logging.getLogger("waterclock.broker")


class Leading:
    """`journal_of()` opens the journal; `deposed(address)` hears of a new leader."""

    def __init__(
        self,
        identity: Identity,
        store: Store,
        replicas: Replicas,
        journal_of: Callable[[], Journal],
        deposed: Callable[[str], None],
    ) -> None:
        self._identity, self._store, self.replicas = identity, store, replicas
        self._journal_of, self._deposed = journal_of, deposed
        self.journal: Journal | None = None

    def remember(self) -> None:
        """Go on with the follower of the last time, if there was one."""
        known = self._store.load(ROOM).get("follower")
        if known is not None:
            self._attach(known["node"], known["address"])

    def place(self, key: bytes, number: int) -> Partition | None:
        """The journal, for a follower that asks for it."""
        return self.journal.partition if self.journal is not None and key == KEY and not number else None

    def meets(self, connection: Connection, replica: int) -> None:
        """A request of a follower: it is known from now on."""
        address = connection.client_id.removeprefix(FOLLOWER)
        if self.replicas.follower != replica or self._identity.peer_at != address:
            log.warning("replica %d follows, at %s", replica, address or "an unknown address")
            self._attach(replica, address)
            self._store.put(ROOM, "follower", {"node": replica, "address": address})

    def follower_fetches(self, connection: Connection, request: FetchRequest) -> None:
        """A fetch of replica `request.replica` begins."""
        self.meets(connection, request.replica)
        self.replicas.caught_up()

    def fetches(self, partition: Partition, offset: int, epoch: int) -> None:
        """The follower has everything of the partition before `offset`."""
        if epoch > partition.memo.epoch:
            self._deposed(self._identity.peer_at)
        else:
            self.replicas.fetched(partition, offset)

    def _attach(self, node: int, address: str) -> None:
        self.replicas.attach(node)
        self._identity.peer, self._identity.peer_at = node, address
        if self.journal is None:
            self.journal = self._journal_of()
            self._store.journal(self.journal.commit, self.journal.reset)

    def statistics(self) -> dict[str, Any]:
        """The follower's id and state, empty without one."""
        return {} if self.replicas.follower is None else self.replicas.statistics()
