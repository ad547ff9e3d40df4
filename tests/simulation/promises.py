"""What clients asked and were told, and what Kafka promises about it. It knows nothing of the product.

lost          acknowledged, and not there in the end                doubled     one value twice
misplaced     stands elsewhere than it was acknowledged             phantom     a value that nobody wrote there
vanished      what was read at an offset is another value later     unordered   a producer's values out of order
aborted       a committed reader saw what was not committed         torn        a part of a transaction
early         ... before its commit was asked for                   skipped     a reader went past a record, or got
fenced        a commit acknowledged after its producer was replaced             one twice
committed back   a group's offset below what was acknowledged       end back    an end below what was told before
input         consume-transform-produce without an output, or two   garbage     a batch whose checksum is wrong
stalled       what needs more than minutes of peace                 refused     an answer that no crash explains
start, traceback, exception, thread     the broker cannot start, or something in it failed by itself
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from tests.simulation.kafka.batches import Record, value_of
from tests.simulation.kafka.client import Place

T = TypeVar("T")
Logs = Mapping[Place, Sequence[tuple[int, int]]]  # (offset, value) of each partition


class Write:
    """A value that was given to a producer; its outcome is "unknown" or "ok"."""

    __slots__ = ("offset", "outcome", "producer", "tp", "txn", "value")

    def __init__(self, value: int, tp: Place, producer: str, txn: Txn | None = None) -> None:
        self.value, self.tp, self.producer, self.txn = value, tp, producer, txn
        self.offset: int | None = None
        self.outcome = "unknown"


class Txn:
    """A transaction; its outcome is "unknown", "committed" or "aborted"."""

    __slots__ = ("commit_ns", "end_ns", "name", "offset", "outcome", "owner", "writes")

    def __init__(self, name: str, owner: Owner) -> None:
        self.name, self.owner = name, owner
        self.writes: list[Write] = []
        self.outcome = "unknown"
        self.commit_ns: int | None = None  # when its commit was first asked for
        self.end_ns: int | None = None
        self.offset = 0  # what it commits for the transactions' group


class Owner:
    """One incarnation of a transactional producer."""

    def __init__(self, name: str, asked_ns: int) -> None:
        self.name, self.asked_ns = name, asked_ns
        self.given_ns: int | None = None


class Session:
    """A reader's way through a partition."""

    def __init__(self, name: str, tp: Place, committed: bool, first: int) -> None:
        self.name, self.tp, self.committed, self.first = name, tp, committed, first
        self.position = first
        self.offsets: list[int] = []

    def check(self, log: Sequence[tuple[int, int]], problem: Any) -> None:
        wanted = [offset for offset, _ in log if self.first <= offset < self.position]
        if wanted == self.offsets:
            return
        missing = sorted(set(wanted) - set(self.offsets))[:5]
        extra = sorted(set(self.offsets) - set(wanted))[:5]
        kind = "skipped" if missing or not extra else "aborted" if self.committed else "vanished"
        way = f"{self.name} of {self.tp} from {self.first} to {self.position}"
        problem(kind, f"{way}: missed {missing}, got {extra}")


class History:
    """What happened so far. `parts` are what workloads keep of their own, by their kind."""

    def __init__(self, world: Any) -> None:
        self.world = world
        self.writes: dict[int, Write] = {}
        self.txns: list[Txn] = []
        self.owners: list[Owner] = []
        self.seen: dict[tuple[Place, int], int] = {}  # the value at an offset, as first read
        self.committed_reads: dict[int, int] = {}  # value: when it was read first by a reader of committed records
        self.sessions: list[Session] = []  # of readers
        self.highs: dict[tuple[Place, str], int] = {}  # the highest end that was told
        self.offset_floor: dict[tuple[str, Place], int] = {}
        self.offset_asked: dict[tuple[str, Place], int] = {}
        self.group_commits: list[Txn] = []
        self.sources: dict[int, int] = {}  # an output's value: its input's
        self.parts: dict[type, Any] = {}
        self.ops = self.acked = self.read = 0

    def part(self, kind: type[T]) -> T:
        """What a workload keeps, made when it is asked for first."""
        if kind not in self.parts:
            self.parts[kind] = kind()
        return self.parts[kind]

    def write(self, tp: Place, producer: str, txn: Txn | None = None) -> Write:
        value = len(self.writes) + 1
        made = self.writes[value] = Write(value, tp, producer, txn)
        if txn is not None:
            txn.writes.append(made)
        return made

    def txn(self, name: str, owner: Owner) -> Txn:
        made = Txn(name, owner)
        self.txns.append(made)
        return made

    def owner(self, name: str) -> Owner:
        made = Owner(name, self.world.now)
        self.owners.append(made)
        return made

    def acknowledged(self, writes: Sequence[Write], base: int | None) -> None:
        """A batch is in, at `base` if that is known."""
        for number, write in enumerate(writes):
            write.outcome = "ok"
            write.offset = None if base is None else base + number
            self.acked += 1

    def saw(self, tp: Place, record: Record, committed: bool) -> None:
        """A reader got this."""
        self.read += 1
        problem, offset, value = self.world.problem, record.offset, value_of(record)
        known = self.seen.setdefault((tp, offset), value)
        if known != value:
            problem("vanished", f"{tp} offset {offset} was {known}, is {value}")
        write = self.writes.get(value)
        if write is None or write.tp != tp:
            problem("phantom", f"{value} at {tp} {offset}")
        elif committed and write.txn is not None:
            if write.txn.commit_ns is None:
                problem("early", f"{value} at {tp} {offset} was read, and its commit was never asked for")
            if write.txn.outcome == "aborted":
                problem("aborted", f"{value} at {tp} {offset} is of an aborted transaction, and was read")
        if committed:
            self.committed_reads.setdefault(value, self.world.now)

    def at_least(self, tp: Place, what: str, end: int) -> None:
        self.highs[tp, what] = max(end, self.highs.get((tp, what), 0))

    def told_end(self, tp: Place, what: str, end: int, floor: int) -> None:
        """An end was told; `floor` is what was known when it was asked for."""
        if end < floor:
            self.world.problem("end back", f"{what} of {tp} is {end}, was {floor}")
        self.at_least(tp, what, end)

    # offsets of groups, which only rise

    def asks_offset(self, group: str, tp: Place, offset: int) -> None:
        self.offset_asked[group, tp] = max(offset, self.offset_asked.get((group, tp), 0))

    def told_offset(self, group: str, tp: Place, offset: int) -> None:
        self.offset_floor[group, tp] = max(offset, self.offset_floor.get((group, tp), 0))

    def holds_offset(self, group: str, tp: Place, offset: int, floor: int) -> None:
        """A group's offset was told; `floor` is what was acknowledged when it was asked for."""
        asked = self.offset_asked.get((group, tp), 0)
        if not floor <= offset <= asked:
            story = f"{group} of {tp} is {offset}, acknowledged {floor}, asked {asked}"
            self.world.problem("committed back", story)
