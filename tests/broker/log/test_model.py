"""A partition beside a list of batches: whatever is done to both, they agree. HYPOTHESIS_PROFILE=search looks further."""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from pathlib import Path

import pytest

pytest.importorskip("crc32c")
pytest.importorskip("cramjam")
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.broker.log.oracle import Kept, Oracle, among
from tests.broker.record_batches import CONTROL, NONE, TRANSACTIONAL, Rec, batch, end_marker, stored
from tests.campaign import examples
from waterclock.broker.log import compaction, removal
from waterclock.broker.log.partition import Partition
from waterclock.broker.log.records import records
from waterclock.broker.log.recovery import open_partition
from waterclock.broker.log.segment import Segment
from waterclock.broker.log.times import first_at, latest
from waterclock.broker.settings import Settings, TopicSettings
from waterclock.broker.wire.errors import Error

NOW = 1_700_000_000_000
KEEP_MS = 5_000
PLAIN, TRANSACTIONS = (1, 2), (7, 8)
recs = st.lists(
    st.builds(
        Rec,
        st.sampled_from([b"a", b"b", b"c"]),
        st.none() | st.sampled_from([b"", b"v", b"v" * 300, b"v" * 2200]),
        st.integers(NOW - 3, NOW + 3),
    ),
    min_size=1,
    max_size=3,
)
codec = st.sampled_from([NONE, NONE, 1, 2, 3, 4])


class LogMachine(RuleBasedStateMachine):
    @initialize(segment_bytes=st.sampled_from([7_000, 20_000]))
    def begin(self, segment_bytes: int) -> None:
        self.folder = tempfile.mkdtemp(prefix="waterclock-log-")
        given = {"cleanup.policy": "compact,delete", "retention.ms": "-1",
                 "min.cleanable.dirty.ratio": "0.01", "delete.retention.ms": str(KEEP_MS)}  # fmt: skip
        self.settings = TopicSettings(Settings({"log.segment.bytes": str(segment_bytes)}))
        self.settings.replace(given)
        self.oracle, self.now = Oracle(), NOW
        self.sequences: dict[int, int] = {}
        self.sent: dict[int, list[tuple[int, int]]] = {pid: [] for pid in PLAIN + TRANSACTIONS}  # last offset, sequence
        self.begun: tuple[int, list] | None = None
        self.open()

    def open(self) -> None:
        self.partition: Partition = open_partition("t", 0, self.folder, self.settings)
        self.begun = None

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            shutil.rmtree(self.folder)

    # Writing

    def append(self, data: bytes, rows: list[Rec], **fields: object) -> None:
        base = self.partition.end
        raw = bytearray(data)
        assert self.partition.append(memoryview(raw), self.now) == (Error.NONE, base)
        kept = dict(enumerate(rows, base))
        self.oracle.add(Kept(base, base + len(rows) - 1, bytes(raw), kept, **fields))

    @rule(many=st.lists(recs, min_size=4, max_size=8))
    def produce_much(self, many: list[list[Rec]]) -> None:
        for rows in many:
            self.append(batch(rows), rows)

    @rule(rows=recs, codec=codec)
    def produce(self, rows: list[Rec], codec: int) -> None:
        self.append(batch(rows, codec=codec), rows)

    @rule(rows=recs, pid=st.sampled_from(PLAIN + TRANSACTIONS), codec=codec)
    def produce_in_sequence(self, rows: list[Rec], pid: int, codec: int) -> None:
        producer = (pid, 0, self.sequences.get(pid, 0))
        transactional = pid in TRANSACTIONS
        data = batch(rows, codec=codec, producer=producer, attributes=TRANSACTIONAL if transactional else 0)
        self.append(data, rows, producer=producer, transactional=transactional)
        self.sequences[pid] = producer[2] + len(rows)
        self.sent[pid].append((self.oracle.end - 1, self.sequences[pid] - 1))

    @rule(pid=st.sampled_from(PLAIN + TRANSACTIONS), back=st.integers(1, 5))
    def repeat(self, pid: int, back: int) -> None:
        sent = [b for b in self.oracle.batches if b.producer[0] == pid and b.commit is None]
        if len(sent) >= back and len(sent[-back].recs) == sent[-back].last - sent[-back].base + 1:
            again = sent[-back]
            before = self.partition.end
            data = bytearray(8) + again.raw[8:]
            assert self.partition.append(memoryview(data), self.now) == (Error.NONE, again.base)
            assert self.partition.end == before

    @rule(rows=recs, pid=st.sampled_from(PLAIN), ahead=st.integers(1, 3))
    def skip_a_sequence(self, rows: list[Rec], pid: int, ahead: int) -> None:
        if self.sequences.get(pid):
            data = bytearray(batch(rows, producer=(pid, 0, self.sequences[pid] + ahead)))
            assert self.partition.append(memoryview(data), self.now) == (Error.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)

    @rule(pid=st.sampled_from(TRANSACTIONS), commit=st.booleans())
    def end_a_transaction(self, pid: int, commit: bool) -> None:
        if pid in self.sequences:
            raw, base = bytearray(end_marker(pid, 0, commit, self.now)), self.partition.end
            assert self.partition.mark(raw) == (Error.NONE, base)
            self.oracle.add(Kept(base, base, bytes(raw), {}, (pid, 0, -1), True, commit, self.now))

    @rule(rows=recs, pid=st.sampled_from(TRANSACTIONS), commit=st.booleans())
    def transact(self, rows: list[Rec], pid: int, commit: bool) -> None:
        self.produce_in_sequence(rows, pid, NONE)
        self.end_a_transaction(pid, commit)

    @rule(rows=recs, at=st.integers(21, 60))
    def produce_something_broken(self, rows: list[Rec], at: int) -> None:
        data = bytearray(batch(rows))
        data[at] ^= 1
        assert self.partition.append(memoryview(data), self.now) == (Error.CORRUPT_MESSAGE, -1)

    @rule(rows=recs)
    def produce_without_a_key(self, rows: list[Rec]) -> None:
        data = bytearray(batch([*rows, Rec(None, b"v", NOW)]))
        assert self.partition.append(memoryview(data), self.now) == (Error.INVALID_RECORD, -1)

    # The disk

    @rule()
    def begin_a_flush(self) -> None:
        if self.begun is None:
            self.begun = self.partition.end, self.partition.unflushed()

    @precondition(lambda self: self.begun)
    @rule()
    def end_a_flush(self) -> None:
        end, files = self.begun
        for segment, _ in files:
            segment.flush()
        self.partition.flushed(end, files)
        self.partition.high = self.oracle.high = max(self.partition.high, end)
        self.begun = None

    @rule()
    def flush(self) -> None:
        if self.begun is None:
            self.begin_a_flush()
            self.end_a_flush()

    @rule()
    def roll(self) -> None:
        if self.partition.active.size:
            self.partition.roll()

    @rule()
    def take_a_snapshot(self) -> None:
        self.partition.take_snapshot()

    @rule()
    def stop_and_start(self) -> None:
        self.flush() if self.begun is None else self.end_a_flush()
        self.flush()
        self.open()
        assert self.partition.end == self.oracle.end
        assert {pid: self.next_sequence(pid) for pid in self.sequences} == self.sequences

    @rule(seed=st.integers(0, 2**32))
    def lose_power(self, seed: int) -> None:
        durable = self.partition.durable
        tear(self.partition, random.Random(seed))
        self.open()
        ends = {b.last + 1 for b in self.oracle.batches} | {durable}
        assert durable <= self.partition.end <= self.oracle.end
        assert self.partition.end in ends
        self.oracle.lose_after(self.partition.end)
        for pid in self.sequences:
            self.sequences[pid] = self.next_sequence(pid)

    def next_sequence(self, pid: int) -> int:
        """What was kept of a producer is known, also where a compaction or retention has taken its records."""
        self.sent[pid] = [row for row in self.sent[pid] if row[0] < self.oracle.end]
        known = self.partition.producers.known.get(pid)
        last = [sent.last for sent in known.sent][-1:] if known is not None else []
        assert last == [last for _, last in self.sent[pid][-1:]]
        return self.sent[pid][-1][1] + 1 if self.sent[pid] else 0

    # Upkeep

    @rule(share=st.floats(0, 1))
    def delete_records(self, share: float) -> None:
        memo = self.partition.memo
        memo.start = max(memo.start, int(memo.start + share * (self.partition.high - memo.start)))
        memo.save()
        self.oracle.start = memo.start

    @rule(most=st.integers(0, 100_000))
    def keep_less(self, most: int) -> None:
        self.flush()
        self.settings.replace({**self.settings.given, "retention.bytes": str(most)})
        removal.begin_at(self.partition, removal.first_kept(self.partition, self.now))
        self.settings.replace({**self.settings.given, "retention.bytes": "-1"})
        self.oracle.start = self.partition.start

    @rule(later_ms=st.sampled_from([0, KEEP_MS - 1, KEEP_MS]), closed=st.booleans())
    def compact(self, later_ms: int, closed: bool) -> None:
        self.now += later_ms
        if closed:
            self.roll()
            self.flush()
        plan = compaction.plan(self.partition, self.now)
        if plan is None:
            return
        expected = self.oracle.compacted(plan.upto, self.now, KEEP_MS)
        work = compaction.Compaction(plan)
        for swapped in work.steps():
            if swapped is not None:
                compaction.adopt(self.partition, swapped)
        assert work.covered == plan.upto
        self.partition.memo.cleaned = plan.upto
        self.partition.memo.save()
        gone = [b for b in self.oracle.batches if b.last < self.partition.segments[0].base]
        self.oracle.batches = gone + [self.seen(b.raw) for b in stored(everything(self.partition))]
        assert self.oracle.visible() == expected

    def seen(self, raw: bytes) -> Kept:
        one = stored(raw)[0]
        rows = {r.offset: Rec(r.key, r.value, r.timestamp) for r in records(raw)}
        producer = one.producer_id, one.epoch, one.sequence
        transactional = bool(one.attributes & TRANSACTIONAL)
        if not one.attributes & CONTROL:
            return Kept(one.base, one.last, raw, rows, producer, transactional)
        marker = rows.get(one.base, Rec(None, None, None))  # emptied: nothing of its transaction is left to be decided
        return Kept(one.base, one.last, raw, {}, producer, transactional, marker.key != b"\0\0\0\0", marker.ms)

    # What both say

    @rule(share=st.floats(0, 1), limit=st.sampled_from([0, 1, 400, 6000, 20_000, 10**9]), committed=st.booleans())
    def read(self, share: float, limit: int, committed: bool) -> None:
        partition, oracle = self.partition, self.oracle
        upto = partition.stable if committed else partition.high
        offset = int(partition.start + share * (partition.end - partition.start))
        if offset >= upto:
            return  # nobody asks then
        found = partition.read(offset, limit, upto)
        wanted = [b.raw for b in oracle.batches if b.last >= offset and b.base < upto]
        if found is None or not wanted:
            assert found is None
            assert not wanted
            return
        got = [b.raw for b in stored(found.read())]
        assert got == wanted[: len(got)]
        assert len(got) == 1 or found.size <= limit
        after = wanted[len(got) :]
        assert not after or found.size + len(after[0]) > limit or found.at + found.size == found.segment.size
        assert partition.bound(found) > stored(got[-1])[0].last

    @rule(ms=st.integers(NOW - 5, NOW + 5))
    def look_up_a_moment(self, ms: int) -> None:
        for upto in (self.partition.high, self.partition.stable):
            assert first_at(self.partition, ms, upto) == self.oracle.first_at(ms, upto)
        assert latest(self.partition) == self.oracle.latest()

    @invariant()
    def the_offsets_agree(self) -> None:
        partition, oracle = self.partition, self.oracle
        assert (partition.start, partition.high, partition.end) == (oracle.start, oracle.high, oracle.end)
        assert partition.stable == oracle.stable()
        assert partition.start <= partition.high <= partition.durable <= partition.end

    @invariant()
    def readers_of_committed_records_are_told_whom_to_pass_over(self) -> None:
        answer = [
            (r.producer_id, r.first, r.last) for r in self.partition.aborted.between(self.partition.start, 1 << 62)
        ]
        assert answer == sorted(set(answer), key=lambda row: row[2])
        due = self.oracle.aborted()
        for b in self.oracle.batches:  # where a compaction has left nothing of a transaction, either may name it
            if b.transactional and b.recs and b.base >= self.partition.start:
                assert among(b, answer) == among(b, due)


def everything(partition: Partition) -> bytes:
    return b"".join(os.pread(s.fd, s.size, 0) for s in partition.segments)


def tear(partition: Partition, luck: random.Random) -> None:
    """What a power cut may leave: of what was not durable any part, broken in any place; notes beside it torn too."""
    for segment in partition.segments:
        path = Path(segment.path + ".log")
        if not segment.durable and segment.size and segment is not partition.segments[0] and luck.random() < 0.3:
            segment.delete()
            continue
        size = luck.randint(segment.durable, segment.size)
        data = bytearray(path.read_bytes()[:size])
        for _ in range(luck.randint(0, 3) if size > segment.durable else 0):
            place = luck.randrange(segment.durable, size)
            if has_checksum(segment, place):
                data[place] ^= 1 << luck.randrange(8)
        path.write_bytes(data + bytes(luck.choice([0, 0, 100])) if segment.durable < segment.size else data)
        if segment.durable and luck.random() < 0.3:
            tear_notes(Path(segment.path + ".index"), luck)
    for snapshot in Path(partition.folder).glob("*.snapshot"):
        if not partition.segments[0].base and luck.random() < 0.2:
            tear_notes(snapshot, luck)
    Path(partition.folder, "memo.json.new").write_bytes(b"{")


def has_checksum(segment: Segment, place: int) -> bool:
    """A batch's offset and its leader's epoch have none, and a compacted log has gaps: no one could tell."""
    start = max(at for at, _ in segment.headers() if at <= place)
    return not (place - start < 8 or 12 <= place - start < 16)


def tear_notes(path: Path, luck: random.Random) -> None:
    data = bytearray(path.read_bytes()) if path.exists() else bytearray()
    if data and luck.random() < 0.5:
        data[luck.randrange(len(data))] ^= 1 << luck.randrange(8)
    elif data:
        del data[luck.randrange(len(data)) :]
    path.write_bytes(data)


TestLog = LogMachine.TestCase
TestLog.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)


@pytest.mark.long(seconds=30)
class TestLogForLong(LogMachine.TestCase):
    settings = settings(max_examples=examples(1500), stateful_step_count=60, deadline=None)
