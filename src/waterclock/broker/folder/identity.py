"""Who the broker is: what clients are given to connect to, and its id, which its folder keeps for ever.

It is kept twice, in the store and in `broker.json`: what the one has lost the other knows.

the folder remembers        node.id is              then the broker is
nothing                     not set                 1, a follower 2, or 1 if its leader is 2
nothing                     N                       N
N                           not set, or N           N
N                           another                 refused
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from waterclock.broker.store import Entry, Store
from waterclock.disk import read_sealed, write_sealed
from waterclock.errors import UsageError
from waterclock.outside import os, uuid

if TYPE_CHECKING:
    from waterclock.broker.settings import Settings

NODE: Final = 1
NODE_ID: Final = "node.id"
NO_NODE: Final = -1
OTHER_FOLDER: Final = "choose another data folder (--data; of a relay --embedded)"
FILE: Final = "broker.json"


@dataclass
class Identity:
    """`node` is the broker's id, `leader` that of who leads every partition: its own, its peer's, or NO_NODE while unknown.

    `peer` is the other broker's id (None: there is none, or it is unknown), `peer_at` its address (HOST:PORT, or "").
    `folder` is the data folder, or "" if nothing is kept; `mark` is what a leader knows its follower again by.
    """

    cluster: str
    host: str
    port: int
    node: int = NODE
    leader: int = NODE
    peer: int | None = None
    peer_at: str = ""
    folder: str = ""
    mark: str = ""

    @classmethod
    def of(cls, store: Store, folder: str, node: int, host: str, port: int) -> Identity:
        """The leader's identity kept in the store, made at the first start; OSError if it cannot be kept."""
        kept = store.load("cluster").get("id")
        cluster = kept or base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if kept is None:
            own = {"node": node, "id": uuid.uuid4().hex}
            store.commit_at_once(Entry("cluster", "id", cluster), *(Entry("self", *item) for item in own.items()))
        identity = cls(cluster, host, port, node, node, peer_of(store.load("self"), node), "", folder)
        identity.mark = str(store.load("self").get("id", ""))
        identity.remember()
        return identity

    def join(self, cluster: str) -> None:
        """It is this cluster's from now on."""
        self.cluster = cluster
        self.remember()

    def remember(self) -> None:
        """Keep the ids beside the store too; OSError if the disk refuses."""
        said = {"cluster": self.cluster, "node": self.node, "id": self.mark}
        if self.folder and remembered(self.folder) != said:
            write_sealed(os.path.join(self.folder, FILE), said)

    def brokers(self) -> list[tuple[int, str, int]]:
        """Id, host and port of each broker that clients may ask."""
        known = [(self.node, self.host, self.port)]
        host, _, port = self.peer_at.rpartition(":")
        if self.peer is not None and port.isdigit():
            known.append((self.peer, host, int(port)))
        return sorted(known)

    @property
    def other(self) -> int:
        """The other broker's id; while that is not known, the one that it has if nobody chose any."""
        return beside(self.node) if self.peer is None else self.peer

    def next_epoch(self, known: int) -> int:
        """The epoch to lead in after `known`: even for the lower id of the two, odd for the higher. None is shared."""
        odd = self.node > self.other
        return known + 1 if (known + 1) % 2 == odd else known + 2


def remembered(folder: str) -> dict[str, Any]:
    """The ids of the cluster and the broker that the folder keeps beside its store; nothing if it keeps none."""
    with suppress(OSError, ValueError):
        return dict(read_sealed(os.path.join(folder, FILE)))
    return {}


def node_of(store: Store, settings: Settings, default: int = NODE) -> int:
    """The id of the broker whose store this is, which `settings` have from now on; UsageError if it was another."""
    # a leader's folder of before ids were kept is broker 1's
    kept = store.load("self").get("node", NODE if store.load("cluster") else None)
    node = int(settings[NODE_ID] if NODE_ID in settings.given else default if kept is None else kept)
    if kept is not None and node != kept:
        raise UsageError(
            f"this data folder is broker {kept}'s, and cannot be broker {node}'s: leave {NODE_ID} out, or {OTHER_FOLDER}"
        )
    if settings[NODE_ID] != node:
        settings.set(NODE_ID, str(node))
    return node


def peer_of(kept: Mapping[str, Any], node: int) -> int | None:
    """The other broker's id, by what broker `node` keeps of itself; None if it has never heard of one."""
    if kept.get("peer") is not None:
        return int(kept["peer"])
    if kept.get("follower") is not None:
        return int(kept["follower"]["node"])
    # the pair is from before ids could be chosen (a follower keeps its leader's before it applies anything): it is 1 and 2
    paired = kept.get("deposed") is not None or kept.get("applied") is not None
    return beside(node) if paired else None


def beside(node: int) -> int:
    """The id for a second broker beside `node`, which nobody has given one.

    >>> beside(1), beside(2), beside(7)
    (2, 1, 1)
    """
    return 2 if node == NODE else NODE
