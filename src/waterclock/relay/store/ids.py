"""Ids of messages: from an id to the origins, due times and targets of the messages that bear it.

New ones wait in memory and in a log; when there are many, they become a run: a sorted file. Runs of like size are merged.

    a run: blocks of 1,024 bytes: 36 entries of 28 bytes, the block's checksum (u4), the rest zero;
    then the fences: the first hash of each block (u8 each); they are in memory while the run is open

    entry: the id's hash, BLAKE2b of 12 bytes (u8, u4) | origin (i8) | due * 65,536 + target (i8)

Rule 1: an entry says what was appended, not what became of it: the ledger knows that.
Rule 2: an id that is not pending is forgotten `kept_ms` after it was due: a look-up leaves it out at once, the disk when
    its run is merged.
Rule 3: a merge goes in steps, between which everything else may go on. Its run counts when it is finished.
Rule 4: hashes are spread evenly, and no two ids have the same: 12 bytes are compared.
Rule 5: a block's checksum begins with the file's mark and the block's number, and is compared whenever it is read.
Rule 6: entries behind the last one have the largest hash and the origin -1.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from typing import Any, Final, NamedTuple

import numpy as np

from waterclock.relay.store.files import HEADER, AppendedFile, CheckedFile, StoreDamaged, StoreFiles
from waterclock.relay.store.origins import Origins, State
from waterclock.relay.store.rows import Array, TopicNumbers

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
    """A run that is finished."""

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
        """The entries of that many blocks. Rule 5."""
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


IN_MEMORY: Final = 262_144  # entries, 28 bytes each; then they become a run
FAN: Final = 6  # so many runs of like size are merged
TOGETHER: Final = 8_192  # ids looked up at once
_STATES: Final = {int(state): state for state in State}


class Found(NamedTuple):
    """A message that bears an id."""

    origin: int
    due: int  # ms since the epoch
    target: str
    state: State


class Ids:
    """The ids of one partition. `number` gives one to a new file; `pending` says which origins are."""

    def __init__(
        self, files: StoreFiles, kept_ms: int, number: Callable[[], int], pending: Callable[[Array], Array]
    ) -> None:
        self._files = files
        self._kept_ms = kept_ms
        self._number = number
        self._pending = pending
        self._log: CheckedFile | None = None
        # in memory: hashes (u8) and entries (ENTRY) in their order, each piece at most half as large as the one before
        self._pieces: list[tuple[Array, Array]] = []
        self._runs: list[IdRun] = []

    def write(self, ids: Array, rows: Array) -> Array:
        """Write the ids (HASH) of rows (ROW: due, origin, target) to the log. They are found after `keep` with what comes
        back, ENTRY rows. OSError if the disk refuses."""
        if sum(len(entries) for _, entries in self._pieces) >= IN_MEMORY:
            self._begin_run()
        entries = np.empty(len(ids), ENTRY)
        entries["hash"], entries["rest"], entries["origin"] = ids["hash"], ids["rest"], rows["origin"]
        entries["due_target"] = rows["due"] << TARGET_BITS | rows["target"]
        if self._log is None:
            self._log = CheckedFile.create(self._files, f"ids.{self._number()}.log")
        self._log.append(entries.tobytes())
        return entries

    def keep(self, piece: Array) -> None:
        """These entries are found from now on."""
        while self._pieces and len(self._pieces[-1][0]) < 2 * len(piece):
            piece = np.concatenate([self._pieces.pop()[1], piece])
        column, piece = _in_order(piece)
        self._pieces.append((column, piece))

    def _begin_run(self) -> None:
        """What is in memory becomes a run. The log goes with the next checkpoint."""
        _, entries = _in_order(np.concatenate([entries for _, entries in self._pieces]))
        writer = RunWriter(self._files, f"ids.{self._number()}.run")
        with writer.file.scrapping():
            writer.append(entries)
            run = writer.finish()
        if run:
            self._runs.append(run)
        if self._log:
            self._log.drop()
        self._log, self._pieces = None, []

    def messages(self, wanted: Array, origins: Origins, targets: TopicNumbers, now_ms: int) -> list[list[Found]]:
        """The messages that bear each of the wanted ids (HASH), by origin."""
        found: list[list[Found]] = [[] for _ in range(len(wanted))]
        for which, entries in self.find(wanted, now_ms):
            values = np.minimum(origins.values(entries["origin"]), State.PENDING)
            dues, numbers = entries["due_target"] >> TARGET_BITS, entries["due_target"] % (1 << TARGET_BITS)
            columns = (column.tolist() for column in (which, entries["origin"], dues, numbers, values))
            for n, origin, due, number, value in zip(*columns, strict=True):
                if value:  # one whose append failed half way is not known
                    state = _STATES[value]
                    found[n].append(Found(origin, due, targets.was_for(number, state is State.PENDING), state))
        return found

    def find(self, ids: Array, now_ms: int) -> Iterator[tuple[Array, Array]]:
        """The entries of ids (HASH): what is pending, and what was due within `kept_ms`.

        Two columns for some of the ids at a time: which of all the ids, in order; its entries, by origin, each once.
        """
        for start in range(0, len(ids), TOGETHER):
            wanted = ids[start : start + TOGETHER]
            found = [matches(entries, wanted, column) for column, entries in self._pieces]
            found += [run.find(wanted) for run in self._runs]
            if not found:
                return
            which = np.concatenate([which for which, _ in found])
            entries = np.concatenate([entries for _, entries in found])
            fresh = (entries["due_target"] >> TARGET_BITS) + self._kept_ms > now_ms
            fresh |= self._pending(entries["origin"])
            which, entries = which[fresh], entries[fresh]
            order = np.lexsort((entries["origin"], which))
            which, entries = which[order], entries[order]
            once = (np.diff(which, prepend=-1) != 0) | (np.diff(entries["origin"], prepend=-1) != 0)
            yield which[once] + start, entries[once]

    def merge(self, now_ms: int) -> Iterator[None] | None:
        """The steps of a merge, if one is due: of `FAN` runs of like size, or of one in which all is to be forgotten."""
        tiers: dict[int, list[IdRun]] = {}
        for run in self._runs:
            if run.last_due + self._kept_ms <= now_ms:
                return self._merge([run], now_ms)
            tier, count = 0, run.count  # from one tier to the next, runs are `FAN` times larger
            while count >= FAN * IN_MEMORY:
                tier, count = tier + 1, count // FAN
            tiers.setdefault(tier, []).append(run)
        full = [runs for runs in tiers.values() if len(runs) >= FAN]
        return self._merge(full[0], now_ms) if full else None

    def _merge(self, runs: list[IdRun], now_ms: int) -> Iterator[None]:
        writer = RunWriter(self._files, f"ids.{self._number()}.run")
        try:
            with writer.file.scrapping():
                for entries in merged(runs):
                    kept = (entries["due_target"] >> TARGET_BITS) + self._kept_ms > now_ms
                    writer.append(entries[kept | self._pending(entries["origin"])])
                    yield
                # what is pending though it was due long ago is looked at again after as long
                run = writer.finish(now_ms if len(runs) == 1 else 0)
        except BaseException:  # given up too
            writer.file.drop()
            raise
        self._runs = [one for one in self._runs if one not in runs] + ([run] if run else [])
        for one in runs:
            one.file.drop()

    def stored(self) -> dict[str, Any]:
        """What the manifest says of it."""
        return {"log": self._log.stored() if self._log else None, "runs": [run.stored() for run in self._runs]}

    def restore(self, stored: dict[str, Any]) -> None:
        """Read it as a manifest has it. `StoreDamaged` if a file is not what was written."""
        if stored["log"]:
            self._log = CheckedFile.restore(self._files, stored["log"])
            self.keep(np.frombuffer(self._log.content(), ENTRY))
        self._runs = [IdRun.restore(self._files, run) for run in stored["runs"]]

    def names(self) -> set[str]:
        """Of its files."""
        return {run.file.name for run in self._runs} | ({self._log.name} if self._log else set())

    @property
    def bytes_on_disk(self) -> int:
        return sum(run.file.length for run in self._runs) + (self._log.length if self._log else 0)


def _in_order(entries: Array) -> tuple[Array, Array]:
    """Sorted hashes, and the entries in their order."""
    order = np.argsort(entries["hash"], kind="stable")
    entries = entries[order]
    return np.ascontiguousarray(entries["hash"]), entries
