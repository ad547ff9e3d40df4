"""A run: ids sorted by hash in a file that never changes, read by the block.

    blocks of 1,024 bytes: 36 entries of 28 bytes, the block's checksum (u4), the rest zero
    the fences: the first hash of each block (u8 each); they are in memory while the run is open

    entry: the id's hash, BLAKE2b of 12 bytes (u8, u4) | origin (i8) | due * 65,536 + target (i8)

Rule 1: hashes are spread evenly, and no two ids have the same: 12 bytes are compared.
Rule 2: a block's checksum begins with the file's mark and the block's number, and is compared whenever it is read.
Rule 3: entries behind the last one have the largest hash and the origin -1.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import Any, Final

import numpy as np

from waterclock.relay.store.files import HEADER, AppendedFile, StoreDamaged, StoreFiles
from waterclock.relay.store.rows import Array

HASH: Final = np.dtype([("hash", "<u8"), ("rest", "<u4")])
ENTRY: Final = np.dtype([("hash", "<u8"), ("rest", "<u4"), ("origin", "<i8"), ("due_target", "<i8")])
TARGET_BITS: Final = 16
BLOCK: Final = 1_024  # bytes
IN_BLOCK: Final = 36  # entries
_USED: Final = IN_BLOCK * ENTRY.itemsize
_BLOCKS_AT_ONCE: Final = 256


def hashes(ids: Sequence[bytes]) -> Array:
    """The hash of each id, in its two parts: HASH."""
    return np.frombuffer(b"".join([blake2b(id, digest_size=12).digest() for id in ids]), HASH)


def matches(entries: Array, wanted: Array, column: Array | None = None) -> tuple[Array, Array]:
    """Of sorted entries (ENTRY), those of the wanted ids (HASH): which of the wanted it is (i8), and the entry.

    `column`: the entries' hashes (u8) in a row of their own, if there is one already.
    """
    column = np.ascontiguousarray(entries["hash"]) if column is None else column
    first = np.searchsorted(column, wanted["hash"], side="left")
    counts = np.searchsorted(column, wanted["hash"], side="right") - first
    which = np.repeat(np.arange(len(wanted)), counts)
    within = np.arange(len(which)) - np.repeat(np.cumsum(counts) - counts, counts)
    found = entries[np.repeat(first, counts) + within]
    same = (found["rest"] == wanted["rest"][which]) & (found["origin"] >= 0)
    return which[same], found[same]


class IdRun:
    """One that is finished."""

    def __init__(self, file: AppendedFile, count: int, fences: Array, last_due: int) -> None:
        self.file = file
        self.count = count  # entries
        self._fences = fences  # u8: the first hash of each block
        self.last_due = last_due  # ms since the epoch
        self._seed = zlib.crc32(file.mark)

    @classmethod
    def restore(cls, files: StoreFiles, stored: list[Any]) -> IdRun:
        """As a manifest has it. `StoreDamaged` if the file is not like that."""
        count, crc, last_due, file = stored
        restored = AppendedFile.restore(files, file)
        size = -(-count // IN_BLOCK) * 8
        fences = restored.read(size, restored.length - size)
        if zlib.crc32(fences) != crc:
            raise StoreDamaged(
                f"{restored.name} does not hold what was written to it: the checksum of its fences is wrong"
            )
        return cls(restored, count, np.frombuffer(fences, "<u8"), last_due)

    def stored(self) -> list[Any]:
        """What a manifest says of it."""
        return [self.count, zlib.crc32(self._fences.tobytes()), self.last_due, self.file.stored()]

    def find(self, wanted: Array) -> tuple[Array, Array]:
        """See `matches`. `StoreDamaged` if a block is not what was written."""
        first = np.maximum(np.searchsorted(self._fences, wanted["hash"], side="left"), 1) - 1
        last = np.maximum(np.searchsorted(self._fences, wanted["hash"], side="right"), 1) - 1
        more = [np.arange(a + 1, b + 1) for a, b in zip(first[last > first], last[last > first], strict=True)]
        blocks = np.unique(np.concatenate([first, *more]))
        return matches(self._entries(blocks), wanted)

    def pieces(self) -> Iterator[Array]:
        """All entries in their order, a piece at a time."""
        blocks = len(self._fences)
        for start in range(0, blocks, _BLOCKS_AT_ONCE):
            entries = self._entries(np.arange(start, min(blocks, start + _BLOCKS_AT_ONCE)))
            yield entries[entries["origin"] >= 0]

    def _entries(self, blocks: Array) -> Array:
        """Of these blocks, whose numbers rise; neighbours are read at once."""
        apart = [0, *(np.flatnonzero(np.diff(blocks) > 1) + 1).tolist(), len(blocks)]
        firsts = blocks[apart[:-1]].tolist()
        return np.frombuffer(b"".join(map(self._read, firsts, np.diff(apart).tolist())), ENTRY)

    def _read(self, first: int, count: int) -> bytes:
        """The entries of that many blocks. Rule 2."""
        data = self.file.read(count * BLOCK, HEADER + first * BLOCK)
        found = []
        for at in range(0, len(data), BLOCK):
            used = data[at : at + _USED]
            if _crc(self._seed, first + at // BLOCK, used) != data[at + _USED : at + _USED + 4]:
                raise StoreDamaged(
                    f"{self.file.name} does not hold what was written to it: the checksum of a block is wrong"
                )
            found.append(used)
        return b"".join(found)


class RunWriter:
    """A run that is being written: entries in order, then `finish`."""

    def __init__(self, files: StoreFiles, name: str) -> None:
        self.file = AppendedFile.create(files, name)
        self._seed = zlib.crc32(self.file.mark)
        self._left = np.empty(0, ENTRY)
        self._fences: list[Array] = []
        self._count = 0
        self._blocks = 0
        self._last_due = 0

    def append(self, entries: Array) -> None:
        """Write more of them, none before the last one."""
        entries = np.concatenate([self._left, entries])
        whole = len(entries) - len(entries) % IN_BLOCK
        self._left = entries[whole:].copy()
        self._write(entries[:whole])

    def _write(self, entries: Array) -> None:
        if not len(entries):
            return
        dues = entries["due_target"][entries["origin"] >= 0] >> TARGET_BITS
        self._count, self._last_due = self._count + len(dues), max(self._last_due, int(dues.max()))
        self._fences.append(entries["hash"][::IN_BLOCK].copy())
        data, blocks = entries.tobytes(), []
        for at in range(0, len(data), _USED):
            used = data[at : at + _USED]
            blocks.append((used + _crc(self._seed, self._blocks, used)).ljust(BLOCK, b"\0"))
            self._blocks += 1
        self.file.append(b"".join(blocks))

    def finish(self, least_last_due: int = 0) -> IdRun | None:
        """The run; None, and no file, if there is no entry."""
        if len(self._left):
            rest = np.array([(2**64 - 1, 2**32 - 1, -1, 0)] * (IN_BLOCK - len(self._left)), ENTRY)
            self._write(np.concatenate([self._left, rest]))
        if not self._count:
            self.file.drop()
            return None
        fences = np.concatenate(self._fences)
        self.file.append(fences.tobytes())
        return IdRun(self.file, self._count, fences, max(self._last_due, least_last_due))


def _crc(seed: int, number: int, data: bytes) -> bytes:
    return zlib.crc32(data, seed ^ number).to_bytes(4, "little")


def merged(runs: Sequence[IdRun]) -> Iterator[Array]:
    """The entries of several runs in one order, a piece at a time: all up to the least of the last ones in hand."""
    sources = [run.pieces() for run in runs]
    hands: list[Array] = [next(source) for source in sources]
    while sources:
        edge = min(hand["hash"][-1] for hand in hands)
        cuts = [int(np.searchsorted(np.ascontiguousarray(hand["hash"]), edge, side="right")) for hand in hands]
        piece = np.concatenate([hand[:cut] for hand, cut in zip(hands, cuts, strict=True)])
        yield piece[np.argsort(piece["hash"], kind="stable")]
        rests = [(source, hand[cut:]) for source, hand, cut in zip(sources, hands, cuts, strict=True)]
        filled = [(source, rest if len(rest) else next(source, None)) for source, rest in rests]
        sources = [source for source, hand in filled if hand is not None]
        hands = [hand for _, hand in filled if hand is not None]
