"""The end of a log whose last records are gone: which offsets were given is asked of everything that names one.

    it names an offset                               the log had come to               and more may have followed
    the mark of a clean stop, renamed or not         its end                           no
    NAME.log.damaged                                 its last batch that can be read   if that is not its end
    NAME.index, without NAME.log, or renamed         its last row's batch              yes: rows are INDEX_EVERY bytes apart
    N.snapshot.damaged, A-B.swap.damaged             N, B                              no file says so

Rule 1: the log goes on at the largest of them, and if more may have followed, so many offsets later as that can have
    been. A reader that stands anywhere before gets the first new record, and none twice.
Rule 2: what lies outside of the folder (named_offsets.py) counts too, but proves nothing: whoever commits an
    offset may say any.
Rule 3: what is cut off as torn is kept beside its file if a whole batch stands in it: a write that was torn leaves none.
Rule 4: a file that was renamed to `.damaged` is read for this and nothing else. It may go once the log has gone on: its new
    beginning has a snapshot then, which says the same.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Final, NamedTuple

from waterclock.broker.errors import DAMAGED
from waterclock.broker.log.batch import MAGIC
from waterclock.broker.log.index import last_row
from waterclock.broker.log.scrubbing import MAGIC_AT, RenamedLog, SegmentScrub, is_whole
from waterclock.disk import free_name, write_whole

if TYPE_CHECKING:
    from waterclock.broker.log.segment import Segment

FAR: Final = 1 << 62  # behind every offset
UNKNOWN: Final = ".unknown"
NAMED: Final = re.compile(r"(?:(\d{20})-)?(\d{20})\.(log|index|snapshot|swap)" + re.escape(DAMAGED))


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
