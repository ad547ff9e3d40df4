"""What the tests of the store share: a clock that stands, messages that say who they are, one verb for all that is near;
and what a store must say, computed dumbly: input and settlements as lists, and dicts of what they come to (`Oracle`).

Rule 1: a message's value says its origin and due time, so that a wrong row is seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from waterclock.clock import ManualClock
from waterclock.relay.store import Identity, PartitionStore, State, pack, rows_of, unpack

HOUR, DAY = 3_600_000, 24 * 3_600_000
NOON = 1_780_315_200_000  # 2026-06-01T12:00Z, in ms
US = Identity("relay", "J8iNnLwT", 0)


class Date(ManualClock):
    """A clock that shows a date of ours until it is turned."""

    def __init__(self, now_ms: int = NOON) -> None:
        super().__init__()
        self.start_ms = now_ms

    def wall_ms(self) -> int:
        return self.start_ms + self.monotonic_ns() // 1_000_000


def value(origin: int, due: int, more: bytes = b"") -> bytes:
    return b"%d is due at %d%s" % (origin, due, more)


def append(
    store: PartitionStore, messages: Sequence[tuple[int, int]], *, target: str = "reminders", id: bytes = b""
) -> Any:
    """Append messages (origin, due), all for one topic and under one id."""
    rows = rows_of([due for _, due in messages], [origin for origin, _ in messages])
    blobs = [pack(value(origin, due), b"key", id) for origin, due in messages]
    return store.append(rows, blobs, [target] * len(messages))


def settle(store: PartitionStore, *origins: int) -> None:
    store.settle(np.array(origins, "i8"))


def settled(store: PartitionStore, *origins: int) -> list[bool]:
    found: list[bool] = store.is_settled(np.array(origins, "i8")).tolist()
    return found


def near(store: PartitionStore, until_ms: int, most: int = 1_000) -> dict[int, int]:
    """What a load gives, origin -> due, each once; their bytes are looked at."""
    found: dict[int, int] = {}
    for rows in store.load(until_ms, most):
        assert len(rows) <= most
        origins, dues = rows["origin"].tolist(), rows["due"].tolist()
        values = [unpack(blob).value for blob in store.read(rows)]
        assert values == [value(origin, due) for origin, due in zip(origins, dues, strict=True)]
        assert not found.keys() & set(origins)
        found |= dict(zip(origins, dues, strict=True))
    return found


def checkpoint(store: PartitionStore, position: int) -> None:
    store.checkpoint(position, b"fingerprint of %d" % position, 2 * position)


def turn(store: PartitionStore, duration_ms: int) -> None:
    store._clock.advance_s(duration_ms / 1_000)  # type: ignore[attr-defined]


def reopened(store: PartitionStore, now_ms: int | None = None) -> PartitionStore:
    """The store as the next process finds it, at the same moment or at `now_ms`: what no checkpoint named is lost, and what
    one named is believed."""
    store.close()
    again = PartitionStore(store.folder.parent, store.identity, Date(now_ms or store._clock.wall_ms()))
    assert again.rebuilt is None
    return again


@dataclass(frozen=True)
class Record:
    """One of the input: `offset` is where it lies, `origin` where its message first lay."""

    offset: int
    origin: int
    due: int
    target: str
    id: bytes


@dataclass
class Oracle:
    """Both logs, and what was read of them."""

    input: list[Record] = field(default_factory=list)
    settled: list[tuple[int, State]] = field(default_factory=list)  # origin, how
    end: int = 1_000  # of the input; it begins there too

    def state(self, origin: int) -> State:
        return next((state for one, state in self.settled if one == origin), State.PENDING)

    def messages(self) -> dict[int, Record]:
        """By origin, as they first came."""
        found: dict[int, Record] = {}
        for record in self.input:
            found.setdefault(record.origin, record)
        return found

    def pending(self) -> dict[int, Record]:
        gone = {origin for origin, _ in self.settled}
        return {origin: record for origin, record in self.messages().items() if origin not in gone}

    def counts(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for record in self.pending().values():
            found[record.target] = found.get(record.target, 0) + 1
        return found

    def found(self, id: bytes, after: int) -> list[tuple[int, int, str, State]]:
        """What bears an id: pending, or due after a moment."""
        some = (one for one in self.messages().values() if one.id == id)
        whole = [(one.origin, one.due, one.target, self.state(one.origin)) for one in some]
        return sorted(one for one in whole if one[1] > after or one[3] is State.PENDING)
