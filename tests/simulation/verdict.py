"""In the end: what all partitions hold is held against the history of the log's workload."""

from __future__ import annotations

from collections.abc import Mapping

from tests.simulation.kafka.client import Place
from tests.simulation.promises import History, Logs, Txn, Write

INPUT = ("in", 0)


class Verdict:
    """`logs` and `committed` were read in the end; `offsets` are the groups'."""

    def __init__(self, history: History, logs: Logs, committed: Logs, offsets: Mapping[tuple[str, Place], int]) -> None:
        self.history, self.logs, self.committed, self.offsets = history, logs, committed, offsets
        self.problem = history.world.problem
        self.visible = {value for log in committed.values() for _, value in log}
        self.places: dict[int, list[tuple[Place, int]]] = {}
        for tp, log in logs.items():
            for offset, value in log:
                self.places.setdefault(value, []).append((tp, offset))

    def check(self) -> None:
        for value, where in self.places.items():
            if len(where) > 1:
                self.problem("doubled", f"{value} stands at {where}")
        for write in self.history.writes.values():
            if write.tp in self.logs:
                self._write(write)
        for txn in self.history.txns:
            if all(write.tp in self.logs for write in txn.writes):
                self._txn(txn)
                self._fenced(txn)
        self._reads()
        self._orders()
        self._inputs()
        self._offsets()
        self._transactions_offset()

    def _write(self, write: Write) -> None:
        where = self.places.get(write.value, [])
        if write.outcome != "ok":
            return
        told = f"{write.value} of {write.producer}, acknowledged at {write.tp} {write.offset}"
        if write.txn is None and not where:
            self.problem("lost", told)
        if write.offset is not None and where and (write.tp, write.offset) not in where:
            self.problem("misplaced", f"{told}, stands at {where}")

    def _txn(self, txn: Txn) -> None:
        there = [w.value for w in txn.writes if w.value in self.visible]
        acked = [w.value for w in txn.writes if w.outcome == "ok"]
        if txn.outcome == "committed" and len(there) < len(acked):
            self.problem("lost", f"of {txn.name}'s committed {acked} only {there} are there")
        if txn.outcome == "aborted" and there:
            self.problem("aborted", f"{there} of {txn.name} are there")
        if there and len(there) < len(acked) and txn.outcome == "unknown":
            self.problem("torn", f"of {txn.name}'s {[w.value for w in txn.writes]} only {there} are there")

    def _fenced(self, txn: Txn) -> None:
        if txn.outcome != "committed" or txn.commit_ns is None:
            return None
        for later in self.history.owners:
            if later.name == txn.name and later.given_ns is not None and later is not txn.owner:
                newer = later.asked_ns > (txn.owner.given_ns or 0)
                if newer and later.given_ns < txn.commit_ns:
                    return self.problem("fenced", f"{txn.name} committed after it had been replaced")
        return None

    def _reads(self) -> None:
        for (tp, offset), value in self.history.seen.items():
            if tp in self.logs and (tp, offset) not in self.places.get(value, ()):
                self.problem("vanished", f"{value} was read at {tp} {offset}, stands at {self.places.get(value)}")
        for value in self.history.committed_reads:
            here = value in self.history.writes and self.history.writes[value].tp in self.logs
            if here and value not in self.visible:
                self.problem("aborted", f"{value} was read by a reader of committed records and is not among them")
        for session in self.history.sessions:
            if session.tp in self.logs:
                session.check((self.committed if session.committed else self.logs)[session.tp], self.problem)

    def _orders(self) -> None:
        for log in self.logs.values():
            last: dict[str, int] = {}
            for _, value in log:
                write = self.history.writes.get(value)
                if write is not None:
                    if last.get(write.producer, 0) > value:
                        self.problem("unordered", f"{value} stands behind {last[write.producer]} in {write.tp}")
                    last[write.producer] = value

    def _inputs(self) -> None:
        """Each input of consume-transform-produce has one output, in their order, up to the committed offset."""
        sources, done = self.history.sources, self.offsets.get(("transform", INPUT), -1)
        for log in self.committed.values():
            made = [sources[value] for _, value in log if value in sources]
            wanted = [value for offset, value in self.committed.get(INPUT, ()) if offset < done]
            if made and made != wanted:
                extra = sorted(set(made) - set(wanted))[:5]
                missing = sorted(set(wanted) - set(made))[:5]
                doubled = sorted({one for one in made if made.count(one) > 1})[:5]
                story = f"offset {done}: without output {missing}, beyond it {extra}, twice {doubled}"
                self.problem("input", story)

    def _offsets(self) -> None:
        for (group, tp), floor in self.history.offset_floor.items():
            if tp in self.logs:
                self.history.holds_offset(group, tp, self.offsets.get((group, tp), -1), floor)

    def _transactions_offset(self) -> None:
        commits = self.history.group_commits if ("log", 0) in self.logs else []
        offset = self.offsets.get(("of-transactions", ("log", 0)), -1)
        if offset > 0 and (offset > len(commits) or commits[offset - 1].outcome == "aborted"):
            self.problem("committed back", f"the transactions' offset is {offset}, of an aborted one")
        known = commits[offset - 1] if 0 < offset <= len(commits) else None
        for txn in commits:
            if txn.outcome == "committed" and txn.offset > offset and (known is None or _before(known, txn)):
                story = f"the transactions' offset is {offset}, {txn.offset} was committed"
                return self.problem("committed back", story)
        return None


def _before(one: Txn, other: Txn) -> bool:
    """Whether one's end is known to lie before the other's commit was asked for."""
    return one.end_ns is not None and other.commit_ns is not None and one.end_ns < other.commit_ns
