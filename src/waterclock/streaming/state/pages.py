"""The keys of a bucket that rest, in pages: a batch reads those pages that its keys lie on, and no page is written twice.

    page      the states of some keys, the oldest first (what came together packs well), and the rows that they hold
    segment   a part of a page, which is read whole: all of it, but if more keys rest than MANY. There a batch whose keys
              lie scattered would read all pages; of large ones it reads a segment of SEGMENT states for each key
    index     the keys' hashes, a blob by itself: all that a batch reads of a page on which it has no key
    crossed   the dead places of a page, as bits in the list of pages: a key that is woken is crossed out

Four pages of a size become one, so that there are few (the tiers of a log-structured merge tree: O'Neil et al., 1996), but
none larger than LARGEST; a page that is mostly crossed out is written anew. A key is alive in one place only: no page is
looked at before another.

Rule 1: a hash only says where to look; the key that stands in a state decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from waterclock.rules.events import Key
from waterclock.streaming.state import states
from waterclock.streaming.state.blobs import BlobStore
from waterclock.streaming.state.states import States

_TIER_BITS = 2  # a page of the next tier holds four times as many
_MANY = 1 << _TIER_BITS
# states: a page becomes no larger than this by others, since a batch reads all of a page that it needs
LARGEST = 1 << 14
MANY = 1 << 16  # keys on all pages: below, a batch reads whole pages
SEGMENT = 64  # states: fewer, and what is done once for each segment is all of it
CUT_FROM = LARGEST >> _TIER_BITS  # a page of more states is cut into segments


class Search(Protocol):
    """Keys that are looked for."""

    def __len__(self) -> int: ...

    def places(self, index: np.ndarray) -> np.ndarray:
        """The places of the hashes in `index` that may be of one of the keys."""

    def among(self, keys: pa.Array) -> np.ndarray:
        """Whether each of `keys` is one of those looked for."""


class KeySet:
    """Keys that are looked for, in plain Python."""

    def __init__(self, keys: Iterable[Key]) -> None:
        self._keys = set(keys)
        self._hashes: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self._keys)

    def places(self, index: np.ndarray) -> np.ndarray:
        if self._hashes is None:
            self._hashes = np.unique(states.hashes(self._keys))
        nearest = self._hashes.take(np.searchsorted(self._hashes, index), mode="clip")
        return np.flatnonzero(nearest == index)

    def among(self, keys: pa.Array) -> np.ndarray:
        return np.array([key in self._keys for key in keys.to_pylist()], bool)


class Page:
    """One page: what is known of it without reading, and what was read."""

    def __init__(
        self,
        store: BlobStore,
        blobs: Sequence[int],
        size: int,
        count: int,
        crossed: bytes,
        wake_at: int | None,
        segment: int = 0,
    ) -> None:
        """`blobs` are the numbers of its blobs, `size` what they take in the blob store together.

        The first is that of the index; the states, of `segment` states each, have the next ones. Where `segment` is 0, as
        it was before there were any, the others are those of states and of rows.
        """
        self._store = store
        self._size = size
        self._segment = segment
        self._blobs = blobs if not segment else range(blobs[0], blobs[0] + 1 + -(-count // segment))
        self._count, self._crossed = count, crossed
        self._living = count - int.from_bytes(crossed).bit_count()
        self._marks: np.ndarray | None = None  # who is alive, once that is wanted
        self._index: bytes | None = None
        self._schema: pa.Schema | None = None  # of the rows, once a segment was read
        self._read: dict[int, States] = {}  # by the number of their segment
        self.wake_at = wake_at

    @classmethod
    def write(cls, store: BlobStore, index: np.ndarray, written: States, wake_at: int | None, segment: int) -> Page:
        before, schema = store.grown, None if written.rows is None else written.rows.schema
        head = index.tobytes() + (b"" if schema is None else schema.serialize().to_pybytes())
        numbers = [store.put(blob) for blob in chain([head], states.to_segments(written, segment))]
        size, crossed = store.grown - before, bytes(-(-len(index) // 8))
        return cls(store, numbers[:1], size, len(index), crossed, wake_at, segment)

    def dump(self) -> list[Any]:
        """What `Page(store, ...)` takes."""
        crossed = self._crossed if self._marks is None else np.packbits(~self._marks).tobytes()
        blobs = self._blobs[:1] if self._segment else self._blobs
        return [list(blobs), self._size, self._count, crossed, self.wake_at, self._segment]

    def __len__(self) -> int:
        return self._living

    @property
    def is_mostly_dead(self) -> bool:
        return 2 * self._living < self._count

    @property
    def is_large_and_read_whole(self) -> bool:
        """True if all of it was read for some of it."""
        return len(self._read) == 1 and self._size_of(0) > CUT_FROM

    def alive(self) -> np.ndarray:
        """The places of all that are alive."""
        return np.flatnonzero(self._alive())

    def find(self, wanted: Search) -> np.ndarray:
        """The places that are alive and whose keys may be looked for, by their hashes."""
        maybe = wanted.places(self.index())
        return maybe[self._alive()[maybe]] if len(maybe) else maybe

    def touched(self, places: np.ndarray) -> tuple[list[int], np.ndarray]:
        """The segments in which `places` lie, which rise, and where those are among the states of these."""
        width = self._size_of(0)  # of all but the last one
        numbers = places // width
        is_another = np.ones(len(numbers), bool)
        np.not_equal(numbers[1:], numbers[:-1], out=is_another[1:])
        return numbers[is_another].tolist(), (np.cumsum(is_another) - 1) * width + places % width

    def lacks(self, numbers: Iterable[int]) -> dict[int, int]:
        """Of segments those that were not read yet, with the numbers of their blobs."""
        return {number: self._blobs[1 + number] for number in numbers if number not in self._read}

    def have(self, number: int, blob: bytes) -> None:
        """A segment was read."""
        if not self._segment:
            # written before there were segments: its rows have a blob of their own
            rows = self._store.get(self._blobs[2]) if len(self._blobs) > 2 else b""
            self._read[number] = states.from_blobs(blob, rows)
            return
        if not self._read:
            self._schema = states.schema_of(self._head()[4 * self._count :])
        self._read[number] = states.from_segment(blob, self._schema, self._size_of(number))

    def states_in(self, numbers: Iterable[int]) -> list[States]:
        """The states of segments that were read."""
        return [self._read[number] for number in numbers]

    def cross_out(self, places: np.ndarray) -> None:
        """Those at `places` are alive no more."""
        self._alive()[places] = False
        self._living -= len(places)

    def take(self, places: np.ndarray) -> States:
        """Cross out those at `places`, of which there are some, and give them."""
        self.cross_out(places)
        return states.chosen(*_together(self._store, [(self, places)]))

    def remove(self) -> None:
        self._store.remove(self._blobs, self._size)

    def index(self) -> np.ndarray:
        return np.frombuffer(self._head(), np.uint32, self._count)

    def _alive(self) -> np.ndarray:
        if self._marks is None:
            crossed = np.frombuffer(self._crossed, np.uint8)
            self._marks = ~np.unpackbits(crossed, count=self._count).astype(bool)
        return self._marks

    def _head(self) -> bytes:
        if self._index is None:
            self._index = self._store.get(self._blobs[0])
        return self._index

    def _size_of(self, segment: int) -> int:
        width = self._segment or self._count
        return min(width, self._count - segment * width)


class Pages:
    """All pages of a bucket."""

    def __init__(self, store: BlobStore, stored: Iterable[Any]) -> None:
        self._store = store
        self._pages = [Page(store, *page) for page in stored]

    def __bool__(self) -> bool:
        """False if nothing rests."""
        return bool(self._pages)

    def all(self) -> list[Page]:
        """Every page, the oldest first."""
        return list(self._pages)

    def dump(self) -> list[Any]:
        """What `Pages(store, stored)` takes."""
        return [page.dump() for page in self._pages]

    def take(self, wanted: Search) -> Iterator[States]:
        """The states of the keys looked for that rest here; they do no more."""
        found = [(page, page.find(wanted)) for page in self._pages] if len(wanted) else []
        maybe = [(page, places) for page, places in found if len(places)]
        if maybe:
            yield from self._those(wanted, maybe)

    def take_due(self, watermark: int) -> Iterator[States]:
        """All states of the pages that are to be woken by `watermark`."""
        for page in self._pages:
            if page.wake_at is not None and page.wake_at <= watermark and len(page):
                yield page.take(page.alive())

    def add(self, resting: States, hashes: np.ndarray, wake_at: int | None) -> None:
        """A page more, or several; `wake_at` is the watermark at which most of its states get smaller by themselves."""
        for first in range(0, len(hashes), LARGEST):
            places = np.arange(first, min(len(hashes), first + LARGEST))
            some = resting if len(places) == len(hashes) else resting.take(places)
            self._pages.append(self._written(hashes[places], some, wake_at))

    def tidy(self) -> None:
        """Few pages, and none that is mostly dead."""
        for page in [page for page in self._pages if page.is_mostly_dead]:
            self._rewrite([page])
        while many := self._many_of_a_size():
            self._rewrite(many)
        if self._count() > MANY:  # one each time: the others were read this time, and are read again
            self._rewrite([page for page in self._pages if page.is_large_and_read_whole][:1])

    def _those(self, wanted: Search, maybe: Sequence[tuple[Page, np.ndarray]]) -> Iterator[States]:
        """The states of those that are looked for indeed; they are crossed out."""
        parts, at = _together(self._store, maybe)
        is_wanted = wanted.among(states.keys_at(parts, at))
        ends = np.cumsum([len(places) for _, places in maybe])[:-1]
        for (page, places), those in zip(maybe, np.split(is_wanted, ends), strict=True):
            page.cross_out(places[those])
        if is_wanted.any():
            yield states.chosen(parts, at[is_wanted])

    def _count(self) -> int:
        return sum(map(len, self._pages))

    def _written(self, hashes: np.ndarray, resting: States, wake_at: int | None) -> Page:
        is_cut = len(hashes) > CUT_FROM and self._count() + len(hashes) > MANY
        return Page.write(self._store, hashes, resting, wake_at, SEGMENT if is_cut else len(hashes))

    def _many_of_a_size(self) -> list[Page]:
        tiers: dict[int, list[Page]] = {}
        for page in self._pages:
            if len(page) > LARGEST // _MANY:
                continue
            tiers.setdefault(len(page).bit_length() // _TIER_BITS, []).append(page)
        return next((tier for tier in tiers.values() if len(tier) >= _MANY), [])

    def _rewrite(self, old: list[Page]) -> None:
        """One page with all that is alive on the `old` ones, in place of them; none if nothing is."""
        self._pages = [page for page in self._pages if page not in old]
        places = [page.alive() for page in old]
        if any(map(len, places)):
            hashes = np.concatenate([page.index()[at] for page, at in zip(old, places, strict=True)])
            parts, at = _together(self._store, list(zip(old, places, strict=True)))
            alive = states.chosen(parts, at)
            self._pages.append(self._written(hashes, alive, most_by(page.wake_at for page in old)))
        for page in old:
            page.remove()


def _together(store: BlobStore, of: Sequence[tuple[Page, np.ndarray]]) -> tuple[list[States], np.ndarray]:
    """The segments of several pages in which places of them lie, and where those are among the states of these."""
    touched = [(page, *page.touched(places)) for page, places in of if len(places)]
    missing = [(page, number, blob) for page, numbers, _ in touched for number, blob in page.lacks(numbers).items()]
    for (page, number, _), blob in zip(missing, store.get_all([blob for _, _, blob in missing]), strict=True):
        page.have(number, blob)
    parts: list[States] = []
    found, first = [], 0
    for page, numbers, at in touched:
        some = page.states_in(numbers)
        parts += some
        found.append(at + first)
        first += sum(map(len, some))
    return parts, np.concatenate(found)


def most_by(times: Iterable[int | None]) -> int | None:
    """When three quarters of the known times have come; None if none is known.

    Not the last of them: one key with an id of the far future would keep the ids of all others on its page, and of all
    pages that become one with it.
    """
    known = sorted(us for us in times if us is not None)
    return known[(3 * len(known) - 1) // 4] if known else None
