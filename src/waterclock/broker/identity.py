"""Who the broker is: what clients are told to connect to."""

from __future__ import annotations

import base64
import uuid
from dataclasses import dataclass
from typing import Final

from waterclock.broker.store import Entry, Store

NODE: Final = 1


@dataclass
class Identity:
    """`node` is the broker's id. `leader` is the id of who leads every partition: its own, or its peer's.

    `peer` is the other broker's id, where there is one, and `peer_at` its address (HOST:PORT, "" while unknown).
    """

    cluster: str
    host: str
    port: int
    node: int = NODE
    leader: int = NODE
    peer: int | None = None
    peer_at: str = ""

    @classmethod
    def of(cls, store: Store, host: str, port: int) -> Identity:
        """The leader's identity kept in the store, made at the first start."""
        kept, node = store.load("cluster").get("id"), store.load("self").get("node", NODE)
        cluster = kept or base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if kept is None:
            store.commit_at_once(
                Entry("cluster", "id", cluster)
            )  # before any log: logs and no cluster say that the store is new
        return cls(cluster, host, port, node, node)

    def brokers(self) -> list[tuple[int, str, int]]:
        """Id, host and port of each broker that clients may ask."""
        known = [(self.node, self.host, self.port)]
        host, _, port = self.peer_at.rpartition(":")
        if self.peer is not None and port.isdigit():
            known.append((self.peer, host, int(port)))
        return sorted(known)
