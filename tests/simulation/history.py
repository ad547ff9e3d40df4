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


class Write:
    __slots__ = ("offset", "outcome", "place", "producer", "tp", "txn", "value")

    def __init__(self, value, tp, producer, place, txn=None):
        self.value, self.tp, self.producer, self.place, self.txn = value, tp, producer, place, txn
        self.offset, self.outcome = None, "unknown"


class Txn:
    __slots__ = ("commit_ns", "end_ns", "name", "offset", "outcome", "owner", "writes")

    def __init__(self, name, owner):
        self.name, self.owner, self.writes = name, owner, []
        self.outcome, self.commit_ns, self.offset, self.end_ns = "unknown", None, None, None


class Owner:
    """One incarnation of a transactional producer."""

    def __init__(self, name, asked_ns):
        self.name, self.asked_ns, self.given_ns, self.epoch = name, asked_ns, None, None


class History:
    def __init__(self, world):
        self.world = world
        self.writes, self.txns, self.owners = {}, [], []
        self.seen = {}  # (tp, offset): value, as first read
        self.committed_reads = {}  # value: when it was read first by a reader of committed records
        self.sessions = []  # of readers
        self.highs = {}  # (tp, what): the highest end that was told
        self.offset_floor, self.offset_asked = {}, {}
        self.group_commits = []
        self.next_value = 0
        self.ops = self.acked = self.read = 0

    def write(self, tp, producer, txn=None):
        self.next_value += 1
        made = self.writes[self.next_value] = Write(self.next_value, tp, producer, self.next_value, txn)
        if txn is not None:
            txn.writes.append(made)
        return made

    def txn(self, name, owner):
        made = Txn(name, owner)
        self.txns.append(made)
        return made

    def owner(self, name):
        made = Owner(name, self.world.now)
        self.owners.append(made)
        return made

    def saw(self, tp, offset, data, committed):
        """A reader got this; its number."""
        self.read += 1
        value = int(data.split(b".", 1)[0])
        known = self.seen.setdefault((tp, offset), value)
        if known != value:
            self.world.problem("vanished", f"{tp} offset {offset} was {known}, is {value}")
        write = self.writes.get(value)
        if write is None or write.tp != tp:
            self.world.problem("phantom", f"{value} at {tp} {offset}")
        elif committed and write.txn is not None:
            if write.txn.commit_ns is None:
                self.world.problem("early", f"{value} at {tp} {offset} was read, and its commit was never asked for")
            if write.txn.outcome == "aborted":
                self.world.problem("aborted", f"{value} at {tp} {offset} is of an aborted transaction, and was read")
        if committed:
            self.committed_reads.setdefault(value, self.world.now)
        return value

    def told_end(self, tp, what, end, floor):
        """An end was told; `floor` is what was known when it was asked for."""
        if end < floor:
            self.world.problem("end back", f"{what} of {tp} is {end}, was {floor}")
        self.highs[tp, what] = max(end, self.highs.get((tp, what), 0))

    # at the end

    def check(self, logs, committed_logs, offsets):
        """`logs`, `committed_logs`: {tp: [(offset, value)]}, read in the end; `offsets`: {(group, tp): offset}."""
        problem = self.world.problem
        places = {}
        for tp, log in logs.items():
            for offset, value in log:
                places.setdefault(value, []).append((tp, offset))
        visible = {value for log in committed_logs.values() for _, value in log}
        for value, where in places.items():
            if len(where) > 1:
                problem("doubled", f"{value} stands at {where}")
        for write in self.writes.values():
            where = places.get(write.value, [])
            if write.outcome == "ok" and write.txn is None and not where:
                problem("lost", f"{write.value} of {write.producer}, acknowledged at {write.tp} {write.offset}")
            if write.outcome == "ok" and write.offset is not None and where and (write.tp, write.offset) not in where:
                problem("misplaced", f"{write.value} acknowledged at {write.tp} {write.offset}, stands at {where}")
        for txn in self.txns:
            there = [w.value for w in txn.writes if w.value in visible]
            acked = [w for w in txn.writes if w.outcome == "ok"]
            if txn.outcome == "committed" and len(there) < len(acked):
                problem("lost", f"of {txn.name}'s committed {[w.value for w in acked]} only {there} are there")
            if txn.outcome == "aborted" and there:
                problem("aborted", f"{there} of {txn.name} are there")
            if there and len(there) < len(acked) and txn.outcome == "unknown":
                problem("torn", f"of {txn.name}'s {[w.value for w in txn.writes]} only {there} are there")
            self._fenced(txn)
        for (tp, offset), value in self.seen.items():
            if (tp, offset) not in ((p, o) for p, o in places.get(value, ())):
                problem("vanished", f"{value} was read at {tp} {offset}, stands at {places.get(value)}")
        for value in self.committed_reads:
            if value not in visible:
                problem("aborted", f"{value} was read by a reader of committed records and is not among them")
        for log in logs.values():
            last = {}
            for offset, value in log:
                write = self.writes.get(value)
                if write is not None:
                    if last.get(write.producer, 0) > value:
                        problem("unordered", f"{value} stands behind {last[write.producer]} in {write.tp}")
                    last[write.producer] = value
        for session in self.sessions:
            session.check(logs, committed_logs, problem)
        self._inputs(committed_logs, offsets)
        for (group, tp), floor in self.offset_floor.items():
            now = offsets.get((group, tp), -1)
            if now < floor or now > self.offset_asked.get((group, tp), -1):
                problem("committed back", f"{group} of {tp} is {now}, acknowledged {floor}")

    def _fenced(self, txn):
        if txn.outcome != "committed" or txn.commit_ns is None:
            return
        for later in self.owners:
            if later.name == txn.name and later.given_ns is not None and later is not txn.owner:
                newer = later.asked_ns > (txn.owner.given_ns or 0)
                if newer and later.given_ns < txn.commit_ns:
                    self.world.problem("fenced", f"{txn.name} committed after it had been replaced")
                    return

    def _inputs(self, committed_logs, offsets):
        """Each input of consume-transform-produce has one output, in their order, up to the committed offset."""
        for log in committed_logs.values():
            made = [self.sources[value] for _, value in log if value in self.sources]
            if not made:
                continue
            tp = ("in", 0)
            done = offsets.get(("transform", tp), -1)
            wanted = [value for offset, value in committed_logs.get(tp, ()) if offset < done]
            if made != wanted:
                extra = sorted(set(made) - set(wanted))[:5]
                missing = sorted(set(wanted) - set(made))[:5]
                doubled = sorted({one for one in made if made.count(one) > 1})[:5]
                self.world.problem(
                    "input", f"offset {done}: without output {missing}, beyond it {extra}, twice {doubled}"
                )

    sources: dict = {}


class Session:
    """A reader's way through a partition."""

    def __init__(self, name, tp, committed, first):
        self.name, self.tp, self.committed, self.first = name, tp, committed, first
        self.position, self.offsets = first, []

    def check(self, logs, committed_logs, problem):
        log = (committed_logs if self.committed else logs).get(self.tp, [])
        wanted = [offset for offset, _ in log if self.first <= offset < self.position]
        if wanted != self.offsets:
            missing = sorted(set(wanted) - set(self.offsets))[:5]
            extra = sorted(set(self.offsets) - set(wanted))[:5]
            kind = "skipped" if missing or not extra else "aborted" if self.committed else "vanished"
            problem(
                kind, f"{self.name} of {self.tp} from {self.first} to {self.position}: missed {missing}, got {extra}"
            )
