"""Marks in the product's rare branches: how often each is passed, and what waits for it.

A mark is a call that is put before a statement as its module is imported (planting.py). The source has none of them, so
they cost nothing in production.

Rule 1: `MARKS` names the module and the statement, which stands there once; a test sees that it does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from tests.simulation.capture import marks as capture
from tests.simulation.relay import marks as relay
from tests.simulation.rules import marks as rules

B = "waterclock.broker."
_BY_MODULE: dict[str, dict[str, str]] = {
    "flusher": {
        "no room to write ahead": "                work = [one._replace(ahead=False) for one in work]\n",
        "flushed in its own file": "                flush_files(one.files)\n",
        "answered before its settling": "        self._on_flushed(work)\n",
        "one alone is flushed by the loop": "                self._flushed(*self._flush(small))\n",
        "a full half is to be settled": "        self._settling = True\n",
    },
    "log.write_ahead": {
        "the other half is begun": "            other = 1 - self._half\n",
        "a full half is settled": "            unflushed = dict(self._unflushed[half])\n",
        "a half was settled in time": "                self._unflushed[half].clear()\n",
        "segments stand in their files": "        paths = [self._path(segment) for segment in segments]\n",
        "no room for the log's files": "            _close(files)\n",
        "the log is removed": "        os.unlink(path)\n",
    },
    "log.replay": {
        "a piece is put back": "        good = good or _whole_part(segment)\n",
        "all is put back": "    os.fdatasync(segment.fd)\n",
        "a segment of the log is gone": "        return 0, not missed\n",
        "a half of another run": '            _away(folder, [path], f"it is of the run',
    },
    "log.segment": {
        "a segment is begun": "            self.named = False\n",
        "an append is refused": "                os.ftruncate(self.fd, self.size)\n",
        "a segment is cut": "        self.index.forget(size)\n",
        "a new name is flushed": "            self.named = True  # before",
        "an index is found again": "        index = self.index\n        try:\n            tail",
        "a segment is deleted": "                os.unlink(self.path + ending)\n",
    },
    "log.partition": {
        "segments are retired": "        gone, self.segments = self.segments[:count]",
        "a snapshot is taken": "        data = packed(self.producers.dump(), ",
        "a snapshot is written": "        (offset, data), self._snapshot = self._snapshot, None\n",
        "a marker of an abort": "            home = self.segments[self.segment_of(batch.base)].base\n",
        "it ends where it was not durable": "                segment.cut(segment.settled)\n",
    },
    "log.snapshot": {
        "rows are flushed": "                    flush_file(path)\n",
        "rows' names are flushed": "                flush_folder(self._folder)  # one",
        "a snapshot goes": "            os.unlink(_path(folder, old))\n",
        "a snapshot is torn": '        log.warning("%s is torn or damaged: what',
        "the last snapshot is flushed": "        flush_file(_path(folder, offset))\n",
    },
    "log.producers": {
        "one behind a refusal": "        awaited.behind -= 1\n",
        "a batch is sent again": "                return Error.NONE, sent\n",
        "a row of an abort is written": "                    self._unflushed[path] = None\n",
    },
    "log.recovery": {
        "a torn end": "            segment.cut(whole.size)\n",
        "an end before its start": '            log.warning(\n                "%s ends at offset',
        "later segments go": "                    later.delete()\n",
        "an index does not fit": '            os.truncate(segment.path + ".index", 0)\n',
        "a gap is told": "        least = 0 if first < self._partition.segments[0].base else",
    },
    "log.removal": {
        "a tail is cut": "    partition.memo.forget_from(end)\n",
        "a log begins anew": "    memo.start = memo.cleaned = start\n",
    },
    "log.memo": {
        "a memo is saved": "        self.writes += 1\n",
        "a memo is of before": '            why = why or ("it is gone" if',
        "a memo's copy is written": "            memo.save_copy()\n",
    },
    "store.store": {
        "a commit is refused": "                refused = group[-1].era\n",
        "a refusal is told": "        self._era += 1\n",
        "the store is renewed": "                        self._file.renew(self._contents)\n",
        "the journal refuses": "                steps = [RefusedByJournal()]\n",
        "bytes of the store set aside": '            missing = "a power cut leaves so',
    },
    "store.file": {
        "room for the store": "                self._room = room\n",
        "a frame is refused": "            self._cut()\n            raise",
        "a renewal takes the name": "        os.close(self._fd)\n        self._fd = fd",
        "a renewal fails behind its rename": "                flush_failed(error)\n            raise",
    },
    "transactions.markers": {
        "an end is decided": "            self._over(transaction)\n",
        "an end is refused": "                then(Error.COORDINATOR_NOT_AVAILABLE)\n",
        "markers are appended": "        waits, left, record = [], [], transaction.record\n",
        "a marker is refused": "                left.append(partition)\n",
        "markers are tried again": "                there = [p for p in left if not p.deleted]\n",
        "markers are waited for": "        op = DelayedOperation(delayed.try_complete, ",
        "a transaction is complete": "            transaction.become(transaction.record.completed())\n",
    },
    "transactions.restart": {
        "a decided end is marked at a start": "            coordinator.ending.mark(transaction, marked[transaction], ",
        "the store did not know a partition": "        transaction.become(transaction.record.joined_by((tp,)",
        "nobody's transaction is aborted": "        coordinator.ending.abort(partition, producer, now_ms)\n",
    },
    "transactions.ledger": {
        "a step is taken back": "            self.record = self.record.without(joined, before",
        "written again": "            transaction.sent = transaction.durable  # the next",
        "a transaction is late": "            self._late(self._transaction)\n",
        "a block of ids": "            self._end += BLOCK\n",
    },
    "transactions.record": {
        "another producer id": "        last_epoch = self.epoch if last is not None else NONE\n",
        "a producer is shut out": "        return replace(\n            self, state=TransactionState.PREPARE_EPOCH_FENCE",
    },
    "transactions.coordinator": {
        "a join is refused": "                there = ((tp, self._topics.partition(*tp)) for tp",
        "held offsets are put back": "                producer_id = transaction.record.producer_id\n",
        "an abort is tried again": "                self._timer.call_later(RETRY_S, again)\n",
    },
    "follower": {
        "a promotion begins": "        await self._stop_copying()  # 1\n",
        "the journal is done": "        await self.replica.flush()  # 2\n",
        "that it leads is kept": '        deposed = {"address": self._leader, "epoch": epoch}\n',
        "an epoch is begun": "        await self._loop.run_in_executor(None, self.replica.begin, epoch)  # 4\n",
        "a follower hands over": "        await self._settle()\n        self._settle_logs()",
    },
    "core": {
        "an epoch is begun at a start": "            begin_epoch([*self.topics.partitions(), journal], epoch)\n",
        "a leader is deposed": "        self._deposed = True\n",
    },
    "replication.fetcher": {
        "a follower is cut": "                new = cut(partition, end)\n",
        "a follower copies anew": '            log.warning("%s-%d: copied anew from',
        "an epoch that is nowhere": "            epoch = ours  # they never",
        "a new epoch is copied": "        partition.memo.epochs.append((batch.leader_epoch",
        "a follower has no room": "                self._say_room(str(full))\n",
    },
    "replication.replica": {
        "the journal is read": "        changes, reset = self._gathered, self._reset\n",
        "the journal is read anew": "            self._gather_anew()\n            raise",
        "how far it was copied is kept": '            await self.keep([Entry("self", known, self._read)])\n',
        "the journal is cut": "            self.journal = new\n",
    },
    "replication.replicas": {
        "a follower has lost something": "            state.caught_up_ns = NEVER  # it",
        "a follower lags": "            self._states[partition].in_sync = False\n",
        "from beyond the end": "            return\n        if start > state.start",
    },
    "replication.journal": {
        "the journal begins anew": "        self._first, self._whole = first, self.partition.end\n",
        "the journal cannot begin": "            self._later(RETRY_S, self._renew)\n",
        "a commit of the journal fails": "        self._tainted = self._held is not None\n",
        "a commit waits for the journal": "            self._awaiting.append(commit)\n",
    },
    "replication.lease": {
        "a request is held": "        self._held.append((connection, bytearray(request)))\n",
        "a lease is lost": "        self._until_ns, self._lost = -1, True\n",
    },
}
_TABLES = {B: _BY_MODULE, **{room.PACKAGE: room.BY_MODULE for room in (relay, capture, rules)}}
"""A room of the simulation that has marks of its own has a marks.py with these two."""
NO_FAULTS = tuple(room.PACKAGE + module for room in (capture, rules) for module in room.BY_MODULE)  # that aim at them
MODULES = tuple(package + module for package, table in _TABLES.items() for module in table)
OF_A_PAIR = tuple(module for module in MODULES if module.startswith((B + "replication", B + "follower")))
OF_RELAYS = tuple(module for module in MODULES if module.startswith(relay.PACKAGE))
MARKS = {
    name: (package + module, line)
    for package, table in _TABLES.items()
    for module, marks in table.items()
    for name, line in marks.items()
}
"""Each mark's module, and how the statement begins that it stands before."""
TOLD = "a client is told"
"""The one mark of the clients: an answer has come."""
_passed: Counter[str] = Counter()
_waiting: dict[str, list[Callable[[], None]]] = {}


def begin() -> Counter[str]:
    """Count for a new universe, in what is given back."""
    global _passed
    _waiting.clear()
    _passed = Counter()
    return _passed


def wait(name: str, deed: Callable[[], None]) -> None:
    """Call `deed` where the mark is passed next."""
    _waiting.setdefault(name, []).append(deed)


def passed(name: str) -> None:
    _passed[name] += 1
    if name in _waiting:
        for deed in _waiting.pop(name):
            deed()
