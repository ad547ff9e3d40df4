"""Who the broker is: what clients are told to connect to."""

from __future__ import annotations

import base64
import uuid
from dataclasses import dataclass
from typing import Final

from waterclock.broker.store import Store

NODE: Final = 1


@dataclass
class Identity:
    """`node` is the broker's id and its own controller's; the cluster's id stays with the data."""

    cluster: str
    host: str
    port: int
    node: int = NODE

    @classmethod
    def of(cls, store: Store, host: str, port: int) -> Identity:
        """The identity kept in the store, made at the first start."""
        kept = store.load("cluster").get("id")
        cluster = kept or base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if kept is None:
            store.put("cluster", "id", cluster)
        return cls(cluster, host, port)
