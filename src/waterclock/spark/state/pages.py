"""The keys of a bucket that rest, in pages: a batch reads those pages that its keys lie on, and no page is written twice.

    page      the states of some keys, the oldest first (what came together packs well), and the rows that they hold
    index     the keys' hashes, a blob by itself: all that a batch reads of a page on which it has no key
    crossed   the dead places of a page, as bits in the list of pages: a key that is woken is crossed out

Four pages of a size become one, so that there are few (the tiers of a log-structured merge tree: O'Neil et al., 1996), but
none larger than LARGEST; a page that is mostly crossed out is written anew. A key is alive in one place only: no page is
looked at before another.

Rule 1: a hash only says where to look; the key that stands in a state decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from waterclock.rules.results import Key
from waterclock.spark.state import states
from waterclock.spark.state.blobs import BlobStore
from waterclock.spark.state.states import States

_TIER_BITS = 2  # a page of the next tier holds four times as many
_MANY = 1 << _TIER_BITS
LARGEST = (
    1 << 14
)  # states: a page becomes no larger than this by others, since a batch reads all of a page that it needs


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
        self, store: BlobStore, blobs: Sequence[int], size: int, count: int, crossed: bytes, wake_at: int | None
    ) -> None:
        """`blobs` are the numbers of index, states and rows, `size` what they take in the blob store together."""
        self._store, self._blobs, self._size = store, blobs, size
        self._count, self._crossed = count, crossed
        self._living = count - int.from_bytes(crossed).bit_count()
        self._marks: np.ndarray | None = None  # who is alive, once that is asked for
        self._index: np.ndarray | None = None
        self._states: States | None = None
        self.wake_at = wake_at

    @classmethod
    def write(cls, store: BlobStore, index: np.ndarray, written: States, wake_at: int | None) -> Page:
        before = store.grown
        numbers = [store.put(blob) for blob in (index.tobytes(), *states.to_blobs(written)) if blob]
        return cls(store, numbers, store.grown - before, len(index), bytes(-(-len(index) // 8)), wake_at)

    def dump(self) -> list[Any]:
        """What `Page(store, ...)` takes."""
        crossed = self._crossed if self._marks is None else np.packbits(~self._marks).tobytes()
        return [self._blobs, self._size, self._count, crossed, self.wake_at]

    def __len__(self) -> int:
        return self._living

    @property
    def is_mostly_dead(self) -> bool:
        return 2 * self._living < self._count

    def alive(self) -> np.ndarray:
        """The places of all that are alive."""
        return np.flatnonzero(self._alive())

    def find(self, wanted: Search) -> np.ndarray:
        """The places that are alive and whose keys are looked for."""
        maybe = wanted.places(self.index())
        if len(maybe):
            maybe = maybe[self._alive()[maybe]]
        if not len(maybe):
            return maybe
        found: np.ndarray = maybe[wanted.among(self.states().keys.take(pa.array(maybe)))]
        return found

    def take(self, places: np.ndarray) -> States:
        """Cross out those at `places`, and give them."""
        self._alive()[places] = False
        self._living -= len(places)
        return self.states().take(places)

    def _alive(self) -> np.ndarray:
        if self._marks is None:
            crossed = np.frombuffer(self._crossed, np.uint8)
            self._marks = ~np.unpackbits(crossed, count=self._count).astype(bool)
        return self._marks

    def remove(self) -> None:
        self._store.remove(self._blobs, self._size)

    def index(self) -> np.ndarray:
        if self._index is None:
            self._index = np.frombuffer(self._store.get(self._blobs[0]), np.uint32)
        return self._index

    def states(self) -> States:
        if self._states is None:
            columns, *rows = map(self._store.get, self._blobs[1:])
            self._states = states.from_blobs(columns, *(rows or [b""]))
        return self._states


class Pages:
    """All pages of a bucket."""

    def __init__(self, store: BlobStore, stored: Iterable[Any]) -> None:
        self._store = store
        self._pages = [Page(store, *page) for page in stored]

    def __bool__(self) -> bool:
        """False where nothing rests."""
        return bool(self._pages)

    def all(self) -> list[Page]:
        """Every page, the oldest first."""
        return list(self._pages)

    def dump(self) -> list[Any]:
        """What `Pages(store, stored)` takes."""
        return [page.dump() for page in self._pages]

    def take(self, wanted: Search) -> Iterator[States]:
        """The states of the keys looked for that rest here; they do no more."""
        for page in self._pages if len(wanted) else ():
            places = page.find(wanted)
            if len(places):
                yield page.take(places)

    def take_due(self, watermark: int) -> Iterator[States]:
        """All states of the pages that are to be woken by `watermark`."""
        for page in self._pages:
            if page.wake_at is not None and page.wake_at <= watermark:
                yield page.take(page.alive())

    def add(self, resting: States, hashes: np.ndarray, wake_at: int | None) -> None:
        """A page more, or several; `wake_at` is the watermark at which most of its states get smaller by themselves."""
        if len(hashes) <= LARGEST:
            self._pages.append(Page.write(self._store, hashes, resting, wake_at))
            return
        for first in range(0, len(hashes), LARGEST):
            places = np.arange(first, min(len(hashes), first + LARGEST))
            self._pages.append(Page.write(self._store, hashes[places], resting.take(places), wake_at))

    def tidy(self) -> None:
        """Few pages, and none that is mostly dead."""
        for page in [page for page in self._pages if page.is_mostly_dead]:
            self._rewrite([page])
        while many := self._many_of_a_size():
            self._rewrite(many)

    def _many_of_a_size(self) -> list[Page]:
        tiers: dict[int, list[Page]] = {}
        for page in self._pages:
            if len(page) > LARGEST // _MANY:
                continue
            tiers.setdefault(len(page).bit_length() // _TIER_BITS, []).append(page)
        return next((tier for tier in tiers.values() if len(tier) >= _MANY), [])

    def _rewrite(self, old: list[Page]) -> None:
        """One page with all that is alive on the `old` ones, in place of them; none where nothing is."""
        places = [page.alive() for page in old]
        if any(map(len, places)):
            hashes = np.concatenate([page.index()[at] for page, at in zip(old, places, strict=True)])
            alive = states.joined([page.states().take(at) for page, at in zip(old, places, strict=True)])
            self._pages.append(Page.write(self._store, hashes, alive, most_by(page.wake_at for page in old)))
        for page in old:
            page.remove()
        self._pages = [page for page in self._pages if page not in old]


def most_by(times: Iterable[int | None]) -> int | None:
    """When three quarters of the known times have come; None where none is known.

    Not the last of them: one key with an id of the far future would keep the ids of all others on its page, and of all
    pages that become one with it.
    """
    known = sorted(us for us in times if us is not None)
    return known[(3 * len(known) - 1) // 4] if known else None
