"""What a store must say, computed dumbly: the input and the settlements as lists, and dicts of what they come to."""

from __future__ import annotations

from dataclasses import dataclass, field

from waterclock.relay.store import State


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
