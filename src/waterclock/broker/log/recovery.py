"""Opening a partition's folder, after a clean stop or after a crash.

1. What a compaction had begun is finished or thrown away (swap.py).
2. The segments are listed. Those that a later one proves durable must end with a whole batch, before the next one's first.
3. The others, most often the last alone, are read from their index's last row on (tail.py): what the index names was
   durable. The first batch that is not whole, or not there, ends the log: it and all after it were never acknowledged.
4. Producers and aborted transactions are learned of (snapshot.py).

    proves what was durable             how far
    the mark of a clean stop            everything: its end, and the bytes of each segment (clean_stop.py)
    a snapshot                          to its offset
    a row of a segment's index          its batch, and every segment before
    a segment whose index is not empty  every segment before
    a segment without any index         the same (segment.py, rule 4), if the machine was not started anew since

Rule 1: what was durable is never cut off. Damage there is said with the file, the byte and the ways on.
Rule 2: what is kept was flushed before it is used: the machine may have died, not only the process. What is proved durable
    is not flushed again.
Rule 3: a segment's file that is gone is taken for deleted by whoever heard of its damage: a line in the log names its
    records, and the log goes on behind every offset that may have been given (tail.py). Its start stays: who stands among
    what is lost gets the first record behind. A follower's log goes on where it ends: what it lacks is copied again.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from waterclock.broker.errors import LogDamaged, renaming
from waterclock.broker.log import snapshot, tail
from waterclock.broker.log.batch import HEADER, header_of
from waterclock.broker.log.clean_stop import LeftBehind
from waterclock.broker.log.index import INDEX_EVERY
from waterclock.broker.log.memo import Memo
from waterclock.broker.log.partition import Partition
from waterclock.broker.log.replaying import learn
from waterclock.broker.log.segment import Segment, numbered
from waterclock.broker.log.swap import finish
from waterclock.broker.log.tail import Witness, scan
from waterclock.disk import flush_folder, set_aside
from waterclock.outside import os, shutil

if TYPE_CHECKING:
    from waterclock.broker.settings import TopicSettings

NOBODY: Final = 1 << 62  # a date that no producer was heard of after
log = logging.getLogger("waterclock.broker")


class Said(NamedTuple):
    """What is known of a partition outside of its folder, each None if it is not: what the mark of the last clean stop says
    of it, where it ended by any mark, the largest offset that is named elsewhere (None: this is a copy), and whether the
    machine may have lost what had not come to its disk."""

    left: LeftBehind | None = None
    stopped_at: int | None = None
    named: int | None = None
    rebooted: bool = False


def open_partition(
    topic: str, number: int, folder: str, settings: TopicSettings, said: Said | None = None
) -> Partition:
    """The partition as it was left in `folder`, or a new one; LogDamaged if no crash explains what is found."""
    said = said or Said()
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        os.makedirs(folder)
        names = []
    names = finish(folder, names, stopped=said.left is not None)
    return Recovery(Partition(topic, number, folder, settings, Memo.load(folder)), names, said).opened()


def begin_partition(
    topic: str, number: int, folder: str, settings: TopicSettings, said: Said | None = None
) -> Partition:
    """A new partition; OSError, and no folder, if it cannot be made. The folder's name is the caller's to flush.

    What is in it need not be durable yet: its first flush makes the names so, and a start makes anew what is missing.
    """
    try:
        os.mkdir(folder)
    except FileExistsError:  # a removal has left it
        return open_partition(topic, number, folder, settings)
    try:
        partition = Partition(topic, number, folder, settings, Memo.load(folder))
        partition.segments = [Segment(folder, partition.start)]
    except OSError:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return partition


class Recovery:
    """One partition's: what proves how far its log was durable, and what is found of it."""

    def __init__(self, partition: Partition, names: Collection[str], said: Said) -> None:
        self._partition, self._names, folder = partition, names, partition.folder
        logs = numbered(names, ".log")
        partition.segments = [Segment(folder, base) for base in logs]
        self._said, left = said, said.left
        self._left = left if left is not None and _holds(partition.segments, left) else None
        self._known = snapshot.newest(folder, names)
        self._proved = -1 if self._known is None else self._known.offset
        if self._left is not None:
            self._proved = max(self._proved, self._left.end)
        self._strays: dict[str, int] = {}  # indexes without a log, and the last offsets that they name
        # so many records at most follow the start of an index's last row: each takes a byte at least
        self._unseen = partition.settings.max_message_bytes + INDEX_EVERY
        self._witnesses = tail.renamed(folder, names, self._unseen)
        self._gone = self._missing({*logs})
        ends = (self._left.end if self._left is not None else None, said.stopped_at)
        self._witnesses += [Witness(None, end) for end in ends if end is not None]
        self._goes_on = False  # behind records that are lost
        self._undurable: list[Segment] = []
        self._epoch = 0  # the latest that was seen in a batch

    def _missing(self, logs: set[int]) -> set[int]:
        """The first offsets of the segments whose files are gone, as far as an index or the mark still names them."""
        gone = {base for base, size in self._left.sizes.items() if size} if self._left is not None else set()
        gone |= {witness.base for witness in self._witnesses if witness.base is not None}
        for path, base, witness in tail.strays(self._partition.folder, self._names, self._unseen):
            if witness is not None or base < self._proved:
                gone.add(base)
            if witness is not None:
                self._witnesses.append(witness)
                self._strays[path] = witness.known - 1
                self._proved = max(self._proved, witness.known)
        return gone - logs

    def opened(self) -> Partition:
        """The partition, once everything is found and durable."""
        partition = self._partition
        segments, memo = partition.segments, partition.memo
        if self._follow_nothing():
            self._set_aside(0)
            segments.append(Segment(partition.folder, memo.start))
        first = min(self._gone) if self._gone and not memo.writes else memo.start
        else_gone = "the first file, with its index," if segments else "every segment"
        if not segments and self._left is not None and not self._gone:  # it was empty, and a power cut took the name
            segments.append(Segment(partition.folder, self._left.end))
        elif not segments:
            segments.append(self._behind_what_is_lost(memo.start))
        if first < segments[0].base:
            self._tell_gap(first, segments[0].base, else_gone)
        memo.start = max(memo.start, self._begins(first))
        unproved = self._first_unproved()
        for segment, following in pairwise(segments[: unproved + 1]):
            self._check_end(segment, following.base)
        end = self._at_least_proved(self._find_end(unproved))
        if end < partition.start:  # it was to begin anew, and a crash came between: what is left is there for nobody
            log.warning(
                "%s ends at offset %d, before its start, and begins anew at %d", partition.folder, end, memo.start
            )
            for segment in segments:
                segment.delete()
            segments.clear()
            segments.append(Segment(partition.folder, partition.start))
            unproved, end, self._undurable = 0, partition.start, []
        self._learn(end)
        self._flush_what_is_unproved(unproved, end)
        return partition

    def _follow_nothing(self) -> bool:
        """Whether the first file is gone, and nothing proves that anything behind the log's start was ever durable: a power
        cut took its name, and left those of later ones. What is in them no producer was told of; kept, it would move the
        start for readers, and whoever sends the first batches again would be out of order."""
        memo, segments = self._partition.memo, self._partition.segments
        known = max([self._proved, *(witness.known for witness in self._witnesses)])
        if not segments or segments[0].base <= memo.start or known > memo.start:
            return False
        lost = memo.lost is not None and memo.lost[1] == segments[0].base
        return not lost and all(self._never_flushed(segment) for segment in segments)

    def _never_flushed(self, segment: Segment) -> bool:
        """Whether its index proves nothing. A power cut may take its name, and leave that of the log, which was made after
        it."""
        index = segment.path + ".index"
        return not os.path.getsize(index) if os.path.exists(index) else self._said.rebooted

    def _first_unproved(self) -> int:
        """The number of the first segment that nothing proves durable."""
        segments = self._partition.segments
        if self._left is not None:
            return len(segments) - 1
        for number in range(len(segments) - 1, 0, -1):
            if self._proved > segments[number].base or not self._never_flushed(segments[number]):
                return number
        return 0

    def _check_end(self, segment: Segment, following: int) -> None:
        """A segment that was closed is not empty, and ends with a whole batch, where the next one begins."""
        end = segment.check_end()
        if end > following or not segment.size:
            what = "goes beyond offset %d, where" if segment.size else "is empty, and at offset %d"
            raise LogDamaged(
                f"{segment.path}.log {what % following} the next segment begins. Restore the file; or "
                f"{renaming(segment.path + '.log')}, to go on without its records"
            )
        if end < following:
            self._tell_gap(end, following, f"the end of {segment.path}.log, or a file behind it,")

    def _tell_gap(self, first: int, following: int, else_gone: str) -> None:
        """`else_gone` is what must be gone if no file is known to be. Before the start nothing is missed: of the files that
        were removed there a power cut brings back some."""
        if following <= self._partition.start:
            return
        least = 0 if first < self._partition.segments[0].base else first  # readers may begin within the first of all
        gone = [f"{base:020}.log" for base in sorted(self._gone) if least <= base < following]
        log.warning(
            "%s has no records from offset %d to before %d: %s is gone. The log goes on without them",
            self._partition.folder, first, following, ", ".join(gone) or else_gone,
        )  # fmt: skip

    def _find_end(self, unproved: int) -> int:
        """Cut the log after its last good batch, and index what the indexes lack; the offset after that batch."""
        segments = self._partition.segments
        end = segments[unproved].base
        for number in range(unproved, len(segments)):
            segment, size = segments[number], segments[number].size
            end = self._scan(segment, end)
            following = segments[number + 1].base if number + 1 < len(segments) else end
            went_on = following <= max(self._proved, self._partition.start)
            went_on = went_on or any(witness.known > end for witness in self._witnesses)
            if segment.size == size and end < following and went_on:
                self._tell_gap(end, following, "a file between")
                end = following
            elif segment.size < size or end != following:  # a file between may be gone with its name
                self._set_aside(number + 1)
                break
        return end

    def _set_aside(self, number: int) -> None:
        """Take out the segments from that one on: nothing proves that anything of them was durable."""
        segments = self._partition.segments
        for later in segments[number:]:
            if later.size:
                place = set_aside(later.path + ".log", later.path + ".log" + tail.UNKNOWN)
                log.warning("%s.log lies in %s from now on: what came before it is not there", later.path, place)
            later.delete()
        del segments[number:]

    def _at_least_proved(self, end: int) -> int:
        """The log's end, or where it was once, if a file behind it is gone."""
        if end < self._proved and not any(base >= end for base in self._gone):
            raise self._too_short(end)
        if end >= self._proved and all(witness.known <= end for witness in self._witnesses):
            return end
        partition = self._partition
        if self._said.named is None:
            return end
        if not partition.active.size:  # an empty segment has no next one
            partition.segments.pop().delete()
        following = self._behind_what_is_lost(end)
        self._tell_gap(end, following.base, "a file behind it")
        if not partition.segments:
            self._begin_lost(partition.start, following.base)
        partition.segments.append(following)
        return following.base

    def _behind_what_is_lost(self, least: int) -> Segment:
        """A segment from the first offset on that nobody can have been given, as far as anything names one."""
        memo, named = self._partition.memo, self._said.named
        begin = max(least, self._proved)
        if named is not None:
            last = max(self._witnesses, key=lambda one: (one.known, -one.unseen), default=Witness(None, 0))
            begin = max(last.known + last.unseen, begin, named, memo.cleaned, memo.epochs[-1][1])
            self._goes_on = begin > least
        return Segment(self._partition.folder, begin)

    def _begins(self, first: int) -> int:
        """Where readers may begin: if the log's first records are gone, from `first` on, they may stand among those."""
        memo, base = self._partition.memo, self._partition.segments[0].base
        if self._said.named is not None and first < base:
            self._begin_lost(first, base)
        return memo.lost[0] if memo.lost is not None and memo.lost[1] == base else base

    def _begin_lost(self, first: int, base: int) -> None:
        """Keep that the records from offset `first` on are lost which the log began with, to before `base`."""
        if self._partition.memo.lost != (first, base):
            self._partition.memo.lost = (first, base)
            self._partition.memo.save()

    def _too_short(self, end: int) -> LogDamaged:
        folder, active = self._partition.folder, self._partition.active
        later = [f"{offset:020}{snapshot.ENDING}" for offset in snapshot.offsets(self._names) if offset > end]
        proofs = [os.path.join(folder, name) for name in later]
        proofs += [path for path, offset in self._strays.items() if offset >= end]
        if self._left is not None and self._left.end > end:
            proofs.append(self._left.mark)
        return LogDamaged(
            f"{active.path}.log ends at byte {active.size}, before offset {end}, and the log had come to offset "
            f"{self._proved} once. Restore what came behind; or {renaming(*proofs)}, to go on without it"
        )

    def _scan(self, segment: Segment, least: int) -> int:
        """Cut a segment after its last good batch; the offset after that batch, or `least` if there is none.

        LogDamaged if what would be cut was durable.
        """
        partition = self._partition
        whole = scan(segment, least, gaps=partition.settings.compact or partition.memo.cleaned > 0)
        torn = whole.size < segment.size
        if torn and (whole.size <= whole.row or whole.end < self._proved):  # it was durable
            raise segment.broken(whole.size)
        if torn:
            kept = tail.keep_batches(segment, whole.size)
            log.warning(
                "%s.log was cut at byte %d of %d: no whole batch follows, as after a crash in the midst of a write%s",
                segment.path, whole.size, segment.size,
                f". There are some later: what was cut lies in {kept} from now on" if kept is not None else "",
            )  # fmt: skip
            segment.cut(whole.size)
        if not whole.fits:
            os.truncate(segment.path + ".index", 0)
        if segment.size:
            segment.began_ms = header_of(os.pread(segment.fd, HEADER, 0)).max_timestamp
        if torn or (segment.size and whole.end > max(whole.sure, self._proved)):
            self._undurable.append(segment)
        self._epoch = max(self._epoch, whole.epoch)
        return whole.end

    def _learn(self, end: int) -> None:
        """Learn of producers, aborted transactions and, if nothing is kept of them, of leaders."""
        partition, known, left = self._partition, self._known, self._left
        snapshot.drop_after(partition.folder, end, self._names)
        if left is not None and left.snapshot >= 0 and (known is None or known.offset != left.snapshot):
            log.warning(
                "%s: the snapshot of offset %d is gone: what it knew is looked for in the log",
                partition.folder, left.snapshot,
            )  # fmt: skip
        if left is None or left.snapshot >= 0:
            learn(partition, self._names, known, end)
        if partition.memo.writes or self._epoch <= partition.memo.epoch:
            return
        epochs = [(0, 0)]  # as the batches have them: no memo is there any more
        for _, batch in (found for segment in partition.segments for found in segment.headers()):
            if batch.leader_epoch > epochs[-1][0]:
                epochs.append((batch.leader_epoch, batch.base))
        partition.memo.epochs = epochs
        log.warning(
            "%s is gone: the epochs of leaders were found in the batches, and where the log started before is not known: "
            "it starts at offset %d", partition.memo.path, partition.start
        )  # fmt: skip
        partition.memo.save()

    def _flush_what_is_unproved(self, unproved: int, end: int) -> None:
        """What was found is durable from here on, and the readers' end."""
        partition = self._partition
        # of the others that are closed the end may not be durable
        self._undurable += [one for one in partition.segments[unproved:-1] if one not in self._undurable]
        for segment in self._undurable:
            segment.flush()
        if self._undurable:
            flush_folder(partition.folder)
        else:
            partition.active.name_anew()  # it may never have been flushed
        for segment in partition.segments[unproved:]:
            segment.durable = 0
            segment.flushed(segment.size)
            if segment is not partition.active:
                segment.rest()
        partition.end = partition.durable = partition.high = end
        if self._goes_on:
            if self._left is None:  # the last that they sent is not known: they may go on with any sequence
                partition.producers.forget(NOBODY)
            partition.take_snapshot()  # from here on this says that the log has come so far
        partition.aborted.save(partition.segments, end)
        partition.aborted.forget(partition.start, end)


def _holds(segments: Iterable[Segment], left: LeftBehind) -> bool:
    """Whether the segments are those of the stop; LogDamaged if one is shorter. One that is longer was written to since."""
    for segment in segments:
        size = left.sizes.get(segment.base, 0)
        if segment.size < size:
            raise LogDamaged(
                f"{segment.path}.log has {segment.size} bytes, and had {size} when the broker was closed. Restore it; or "
                f"{renaming(left.mark)}, to go on with what is left"
            )
        if segment.size > size:
            log.warning("%s.log has grown since %s was written: it is read as after a crash", segment.path, left.mark)
            return False
    return True
