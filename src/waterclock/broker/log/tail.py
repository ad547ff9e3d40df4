"""The end of a log at a start: how much of a segment is whole, from its index's last row on, checksums and all; and if its
last records are gone, which offsets were given, by everything that names one.

    it names an offset                               the log had come to               and more may have followed
    the mark of a clean stop, renamed or not         its end                           no
    NAME.log.damaged                                 its last batch that can be read   if that is not its end
    NAME.index, without NAME.log, or renamed         its last row's batch              yes: rows are INDEX_EVERY bytes apart
    N.snapshot.damaged, A-B.swap.damaged             N, B                              no file says so

Rule 1: reading changes nothing but what is known of the segment in memory: the caller decides whether what follows was torn
    by a crash, and may be cut, or was damaged.
Rule 2: a row that is good, where no batch starts: one of the two files is damaged. The segment is read from its start.
Rule 3: the log goes on at the largest offset that is named, and if more may have followed, so many offsets later as that
    can have been. A reader that stands anywhere before gets the first new record, and none twice.
Rule 4: what lies outside of the folder (named_offsets.py) counts too, but proves nothing: whoever commits an
    offset may say any.
Rule 5: what is cut off as torn is kept beside its file if a whole batch stands in it: a write that was torn leaves none.
Rule 6: a file that was renamed to `.damaged` is read for this and nothing else. It may go once the log has gone on: its new
    beginning has a snapshot then, which says the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import Final, NamedTuple

from crc32c import crc32c

from waterclock.broker.errors import DAMAGED
from waterclock.broker.log.batch import CHECKED, EPOCH, HEADER, MAGIC, PREFIX, Batch, header_of
from waterclock.broker.log.index import NEVER, last_row
from waterclock.broker.log.scrubbing import MAGIC_AT, RenamedLog, SegmentScrub, is_whole
from waterclock.broker.log.segment import Segment, numbered
from waterclock.disk import free_name, write_whole
from waterclock.outside import os

CHUNK: Final = 4 << 20
FAR: Final = 1 << 62  # behind every offset
UNKNOWN: Final = ".unknown"
NAMED: Final = re.compile(r"(?:(\d{20})-)?(\d{20})\.(log|index|snapshot|swap)" + re.escape(DAMAGED))


class WholePart(NamedTuple):
    """What is whole: so many bytes, up to before offset `end`, with leaders' epochs up to `epoch`.

    Its index proves that the batch at byte `row` was durable (-1 if it proves nothing), which ends before offset `sure`.
    """

    size: int
    end: int
    epoch: int
    row: int
    sure: int
    fits: bool
    """Whether the index is the log's."""


def scan(segment: Segment, least: int, *, gaps: bool) -> WholePart:
    """What is whole of a segment; its end is `least` if nothing is. Its index in memory has it all then.

    `gaps`: offsets may be missing between batches. Elsewhere a gap is damage, as a batch's offset has no checksum.
    """
    index, size = segment.index, segment.size
    row = index.at[-1] if index.at else -1
    sure: int | None = -1
    if index.at:
        data = memoryview(os.pread(segment.fd, _next_size(segment, row), row))
        batch = header_of(data) if len(data) >= HEADER else None
        good = batch is not None and batch.base == index.bases[-1] and _good(batch, batch.base, data)
        sure = batch.last + 1 if batch is not None and good else None
    if sure is None:
        index = segment.index_anew()
        segment.tell_of_index()
    at, end = (index.at[-1], index.bases[-1]) if index.at else (0, least)
    segment.latest, epoch, here = index.times[-1] if index.times else NEVER, 0, -1
    while at < size and here:
        most = max(CHUNK, _next_size(segment, at))
        chunk = memoryview(os.pread(segment.fd, min(most, size - at), at))
        here, end, epoch = _whole_batches(segment, chunk, at, end, epoch, gaps)
        at += here
    segment.size = size
    return WholePart(at, end, epoch, row, -1 if sure is None else sure, sure is not None)


def _whole_batches(
    segment: Segment, chunk: memoryview, at: int, end: int, epoch: int, gaps: bool
) -> tuple[int, int, int]:
    """Note the good batches at the start of `chunk`, which lies at byte `at`: their bytes, the offset after, an epoch."""
    here = 0
    while here + HEADER <= len(chunk):
        batch = header_of(chunk, here)
        after = here + PREFIX + batch.length
        if batch.length < HEADER - PREFIX or after > len(chunk) or not _good(batch, end, chunk[here:after]):
            break
        if batch.base > end and not gaps:
            break
        segment.note(batch.base, at + here, after - here, batch.max_timestamp)
        here, end, epoch = after, batch.last + 1, max(epoch, batch.leader_epoch)
    return here, end, epoch


def _next_size(segment: Segment, at: int) -> int:
    """How long the batch at byte `at` says it is, within its file."""
    head = os.pread(segment.fd, PREFIX, at)
    if len(head) < PREFIX:
        return 0
    size: int = PREFIX + max(0, EPOCH.unpack_from(head, 8)[0])
    return min(size, os.fstat(segment.fd).st_size - at)


def _good(batch: Batch, end: int, data: memoryview) -> bool:
    follows = batch.base >= end and batch.last_delta >= 0
    return batch.magic == 2 and follows and crc32c(data[CHECKED:]) == batch.crc


class Witness(NamedTuple):
    """The log had come to before offset `known` once, and no further than `unseen` offsets behind that.

    `base` is the first offset of the segment that is gone with it; None if it says nothing of one.
    """

    base: int | None
    known: int
    unseen: int = 0


def of_index(path: str, base: int, more: int) -> Witness | None:
    """What the index at `path`, of the segment from offset `base` on, says; None if it has no good row."""
    row = last_row(path, base)
    return None if row is None else Witness(base, row[0] + 1, more)


def strays(folder: str, names: Collection[str], more: int) -> list[tuple[str, int, Witness | None]]:
    """The indexes without a log: where each lies, its segment's first offset, and what it says; `names` as in `renamed`."""
    bases = {*numbered(names, ".index")} - {*numbered(names, ".log")}
    paths = {base: os.path.join(folder, f"{base:020}.index") for base in sorted(bases)}
    return [(path, base, of_index(path, base, more)) for base, path in paths.items()]


def renamed(folder: str, names: Collection[str], more: int) -> list[Witness]:
    """What the files say that were renamed to `.damaged`; `names` are those of the folder's files."""
    found = [(match, os.path.join(folder, match[0])) for name in names if (match := NAMED.fullmatch(name))]
    said = [_SAYS[match[3]](match, path, more) for match, path in found]
    return [witness for witness in said if witness is not None]


def _of_log(match: re.Match[str], path: str, more: int) -> Witness:
    fd = os.open(path, os.O_RDONLY)
    try:
        base, size = int(match[2]), os.fstat(fd).st_size
        scrub = SegmentScrub(RenamedLog(fd, path.removesuffix(".log" + DAMAGED), base), size, FAR)
        for _ in scrub.steps(size):
            pass
    finally:
        os.close(fd)
    last = scrub.damages[-1] if scrub.damages else None
    if last is not None and last.upto == size:
        return Witness(base, last.first, last.upto - last.at + more)
    return Witness(base, scrub.next_offset)


_SAYS: Final[dict[str, Callable[[re.Match[str], str, int], Witness | None]]] = {
    "log": _of_log,
    "index": lambda match, path, more: of_index(path, int(match[2]), more),
    "snapshot": lambda match, path, more: Witness(None, int(match[2])),
    "swap": lambda match, path, more: Witness(int(match[1]), int(match[2])),
}


def keep_batches(segment: Segment, at: int) -> str | None:
    """Keep what a segment's file has from byte `at` on, if any whole batch stands there; where it lies now. OSError."""
    data = memoryview(os.pread(segment.fd, segment.size - at, at))
    raw = bytes(data)
    magic = raw.find(MAGIC, MAGIC_AT)
    while magic >= 0 and not is_whole(data, magic - MAGIC_AT):
        magic = raw.find(MAGIC, magic + 1)
    if magic < 0:
        return None
    place = free_name(f"{segment.path}.log.{at}{UNKNOWN}")
    write_whole(place, raw)
    return place
