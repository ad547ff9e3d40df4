"""The keys of a bucket that rest, in pages: a batch reads those pages that its keys lie on, and no page is written twice.

    page      the states of some keys, the oldest first (what came together packs well), and the rows that they hold
    index     the keys' hashes, a blob by itself: all that a batch reads of a page on which it has no key
    crossed   the dead places of a page, as bits in the list of pages: a key that is woken is crossed out

Four pages of a size become one, so that there are few (the tiers of a log-structured merge tree: O'Neil et al., 1996); a
page that is mostly crossed out is written anew. A key is alive in one place only: no page is looked at before another.

Rule 1: a hash only says where to look; the key that stands in a state decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set
from typing import Any

import numpy as np
import pyarrow as pa

from waterclock.rules.results import Key
from waterclock.spark.state import states
from waterclock.spark.state.blobs import BlobStore
from waterclock.spark.state.states import States

_TIER_BITS = 2  # a page of the next tier holds four times as many
_MANY = 1 << _TIER_BITS


class Page:
    """One page: what is known of it without reading, and what was read."""

    def __init__(
        self, store: BlobStore, blobs: Sequence[int], size: int, count: int, crossed: bytes, wake_at: int | None
    ) -> None:
        """`blobs` are the numbers of index, states and rows, `size` what they take in the blob store together."""
        self._store, self._blobs, self._size = store, blobs, size
        self._alive = ~np.unpackbits(np.frombuffer(crossed, np.uint8), count=count).astype(bool)
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
        return [self._blobs, self._size, len(self._alive), np.packbits(~self._alive).tobytes(), self.wake_at]

    def __len__(self) -> int:
        return int(self._alive.sum())

    @property
    def is_mostly_dead(self) -> bool:
        return 2 * len(self) < len(self._alive)

    def alive(self) -> np.ndarray:
        """The places of all that are alive."""
        return np.flatnonzero(self._alive)

    def find(self, hashes: np.ndarray, keys: Set[Key]) -> np.ndarray:
        """The places that are alive and whose keys are among `keys`; `hashes` are theirs, sorted."""
        nearest = hashes.take(np.searchsorted(hashes, self.index()), mode="clip")
        maybe = np.flatnonzero((nearest == self.index()) & self._alive)
        if not len(maybe):
            return maybe
        there = self.states().keys.take(pa.array(maybe)).to_pylist()
        return maybe[[key in keys for key in there]]

    def take(self, places: np.ndarray) -> States:
        """Cross out those at `places`, and give them."""
        self._alive[places] = False
        return self.states().take(places)

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

    def all(self) -> list[Page]:
        """Every page, the oldest first."""
        return list(self._pages)

    def dump(self) -> list[Any]:
        """What `Pages(store, stored)` takes."""
        return [page.dump() for page in self._pages]

    def take(self, keys: Iterable[Key]) -> Iterator[States]:
        """The states of those of `keys` that rest here; they do no more."""
        wanted = set(keys) if self._pages else set()
        if wanted:
            hashes = np.unique(states.hashes(wanted))
            for page in self._pages:
                places = page.find(hashes, wanted)
                if len(places):
                    yield page.take(places)

    def take_due(self, watermark: int) -> Iterator[States]:
        """All states of the pages that are to be woken by `watermark`."""
        for page in self._pages:
            if page.wake_at is not None and page.wake_at <= watermark:
                yield page.take(page.alive())

    def add(self, resting: States, wake_at: int | None) -> None:
        """A page more; `wake_at` is the watermark at which most of its states get smaller by themselves."""
        self._pages.append(Page.write(self._store, states.hashes(resting.keys.to_pylist()), resting, wake_at))

    def tidy(self) -> None:
        """Few pages, and none that is mostly dead."""
        for page in [page for page in self._pages if page.is_mostly_dead]:
            self._rewrite([page])
        while many := self._many_of_a_size():
            self._rewrite(many)

    def _many_of_a_size(self) -> list[Page]:
        tiers: dict[int, list[Page]] = {}
        for page in self._pages:
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
