"""The bytes of an array wheel: one format for the compiled one and the plain one. All numbers little-endian.

    offset  size         what
         0     8         the mark, b"wcarrays"
         8     4         the version, 1
        12     4         due: how many of the pending are due and only held back
        16     4         pending: p
        20     4         free: f, so that p + f indices were ever given: 1 .. p + f
        24     8 x 6     tick, now; then how many timers were fired, cancelled, cascaded, buckets opened
        72     8 x p     deadlines of the pending: the due ones in the order they come out, then the others
               4 x p     their indices, in the same order
               4 x f     free indices, as a stack: the last one is given next
         4 x (p + f)     generations of the indices 1, 2, ...; an id is generation * 2**32 + index
                16       BLAKE2b of all before, 16 bytes of it

Rule 1: among the pending that are not due, those of one tick stand in the order of adding; the rest may stand anyhow.
Rule 2: a due one has a deadline of at most now. Another has one beyond now, when both are rounded to the tick.
Rule 3: bytes of another length than the header says are refused before anything is made of them.
"""

from __future__ import annotations

import sys
from array import array
from hashlib import blake2b
from itertools import accumulate, pairwise
from struct import Struct
from typing import Any, Final, Literal, NamedTuple

from waterclock.wheel.bounds import MAX_NOW, MAX_TICK, MAX_TIME

MARK: Final = b"wcarrays"
VERSION: Final = 1
DIGEST: Final = 16
_FIELDS: Final = Struct("<8s4I6q")
HEADER: Final = _FIELDS.size


class Header(NamedTuple):
    """What stands in front of the columns."""

    due: int
    pending: int
    free: int
    tick: int
    now: int
    fired: int
    cancelled: int
    cascaded: int
    opened: int

    def packed(self) -> bytes:
        """The first bytes, mark and version included."""
        return _FIELDS.pack(MARK, VERSION, *self)

    @property
    def size(self) -> int:
        """How long all the bytes are."""
        return HEADER + 16 * self.pending + 8 * self.free + DIGEST


def digest(content: Any) -> bytes:
    """The checksum of header and columns."""
    return blake2b(content, digest_size=DIGEST).digest()


def opened(blob: Any) -> tuple[Header, memoryview]:
    """The header and the columns of bytes that are whole; `ValueError` says what is wrong with others."""
    try:
        content = memoryview(blob).cast("B")
    except TypeError:
        raise TypeError(f"blob must be bytes, got {type(blob).__name__}") from None
    if len(content) < HEADER or bytes(content[: len(MARK)]) != MARK:
        raise ValueError("blob holds no array wheel: it does not begin with its mark")
    _, version, *fields = _FIELDS.unpack(content[:HEADER])
    if version != VERSION:
        raise ValueError(f"blob holds an array wheel of version {version}, this waterclock reads version {VERSION}")
    header = Header(*fields)
    if header.size != len(content):
        raise ValueError(f"blob is cut or altered: it is {len(content)} bytes long, not {header.size}")
    if digest(content[:-DIGEST]) != bytes(content[-DIGEST:]):
        raise ValueError("blob is altered: its checksum is wrong")
    if not _possible(header):
        raise impossible()
    return header, content[HEADER:-DIGEST]


def impossible() -> ValueError:
    """The error for bytes whose checksum is right and whose content is not."""
    return ValueError("blob is altered: its content contradicts itself")


def packed(typecode: Literal["q", "I"], numbers: list[int]) -> bytes:
    """A column as it stands in the bytes."""
    return _swapped(array(typecode, numbers)).tobytes()


def columns_of(header: Header, content: memoryview) -> tuple[list[int], list[int], list[int], list[int]]:
    """Deadlines, indices, free indices and generations."""
    places = accumulate((8 * header.pending, 4 * header.pending, 4 * header.free, len(content)), initial=0)
    parts = (content[start:end] for start, end in pairwise(places))
    columns = [_swapped(array(typecode, bytes(part))) for typecode, part in zip("qIII", parts, strict=True)]
    return columns[0].tolist(), columns[1].tolist(), columns[2].tolist(), columns[3].tolist()


def _swapped(column: array[int]) -> array[int]:
    if sys.byteorder == "big":
        column.byteswap()
    return column


def _possible(header: Header) -> bool:
    return (
        header.due <= header.pending
        and header.pending + header.free < 2**32
        and 1 <= header.tick <= MAX_TICK
        and -MAX_TIME <= header.now <= MAX_NOW
        and min(header[5:]) >= 0
    )
