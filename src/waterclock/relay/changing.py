"""What the console has a relay do, by the relay's own commands: a cancel or a replace goes into the input as anybody's
does, and the answer is the one that the relay commits.

    {"verb": "cancel", "origin": "delays-0-17", "id": "cart-17"}
    {"verb": "move", "origin": "delays-0-17", "id": "cart-17", "due_ms": 1796000000000, "at_ms": 1795990000000}

Rule 1: a message is named by its id, as everywhere: all that is pending under it in its partition is cancelled. One without
        an id cannot be cancelled, nor moved.
Rule 2: to move is to replace: value, key and headers are those of the message as it is filed. A series is not moved.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from waterclock.errors import UsageError
from waterclock.relay.client.delays import Delays
from waterclock.relay.client.sending import Answer, Receipt
from waterclock.relay.relay import Relay
from waterclock.relay.store import Payload, unpack
from waterclock.relay.watching.gathering import SLICE
from waterclock.relay.wire.request import KEPT, Flag


class _Message(NamedTuple):
    target: str
    payload: Payload
    recurs: bool


class Changes:
    """Those of one relay; `change` may be called by any thread."""

    def __init__(self, relay: Relay, servers: str, settings: Mapping[str, Any] | None) -> None:
        self._relay, self._servers, self._settings = relay, servers, settings

    def change(self, asked: object) -> Answer:
        """Do what is asked; what became of it. UsageError if it cannot be done."""
        named = asked if isinstance(asked, dict) else {}
        verb, origin, id = (named.get(name) for name in ("verb", "origin", "id"))
        topic = self._relay.topics.input
        place = (
            re.fullmatch(rf"{re.escape(topic)}-(\d{{1,9}})-(\d{{1,18}})", origin) if isinstance(origin, str) else None
        )
        if place is None or not isinstance(id, str) or not id:
            raise UsageError(
                f"a message is named by its origin in {topic} and its id: one without an id stays as it is"
            )
        receipt = Receipt(topic, int(place[1]), int(place[2]), id)
        if verb == "cancel":
            with self._delays() as delays:
                return delays.cancel(receipt)
        if verb != "move":
            raise UsageError(f"a message can be cancelled or moved, not {verb!r}")
        at_ms = _whole(named, "at_ms")
        found = self._pending(receipt, _whole(named, "due_ms"))
        if found.recurs:
            raise UsageError(
                f"{origin} is an occurrence of a series: cancel the series, or replace it by `relay replace`"
            )
        value, key, _, headers = found.payload
        own = [(name, each) for name, each in headers if name not in KEPT]
        with self._delays() as delays:
            return delays.replace(receipt, found.target, value, at=at_ms, key=key, headers=own)

    def _delays(self) -> Delays:
        return Delays(self._servers, self._relay.topics.input, settings=self._settings)

    def _pending(self, receipt: Receipt, due_ms: int) -> _Message:
        """The message as it is filed; a slice at a time, as in watching/gathering.py."""
        owners, lock, number = self._relay.owners, self._relay.lock, receipt.partition
        gone = UsageError(f"{receipt.origin} is not pending any more, or another relay owns its partition")
        if (owner := owners.get(number)) is None:
            raise gone
        store, slices = owner.store, owner.store.pending_with(None, SLICE, [due_ms])
        while True:
            with lock:
                rows = next(slices, None) if owners.get(number) is owner else None
                if rows is None:
                    raise gone
                rows = rows[rows["origin"] == receipt.offset][:1]
                if len(rows):
                    recurs = bool(int(rows["flags"][0]) & Flag.SERIES)
                    return _Message(store.targets[int(rows["target"][0])], unpack(next(iter(store.read(rows)))), recurs)


def _whole(named: Mapping[str, Any], name: str) -> int:
    value = named.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise UsageError(f"{name} must be whole milliseconds since 1970, got {value!r}")
    return value
