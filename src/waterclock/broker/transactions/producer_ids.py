"""Producer ids: no two producers ever get the same, whatever happens to this process.

Rule 1: ids are handed out from a block; the store has written down where the next block begins before the first goes out.
Rule 2: what is left of a block at a stop is never handed out.
Rule 3: what partitions know of is never handed out either, should the store have lost where the blocks end.
Rule 4: who asks while a block is on its way waits for it, in order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, TypeAlias

from waterclock.broker.store import Store

NAMESPACE: Final = "producer-ids"
BLOCK: Final = 1000

Taken: TypeAlias = "Callable[[int | None], None]"


class ProducerIds:
    """`take(then)` calls `then` with a new id, or with None if the store refuses."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.next_id: int = store.load(NAMESPACE).get("next", 0)
        self._end = self.next_id  # of the block; nothing is left of it at the start
        self._waiting: deque[Taken] = deque()

    def pass_over(self, known: Iterable[int]) -> None:
        """These have been handed out, whatever the store says."""
        self.next_id = self._end = max(self._end, *(producer_id + 1 for producer_id in known), 0)

    def take(self, then: Taken) -> None:
        """Hand out one id, now or once there is a block."""
        if self.next_id < self._end:
            self.next_id += 1
            then(self.next_id - 1)
            return
        self._waiting.append(then)
        if len(self._waiting) == 1:
            self._store.put(NAMESPACE, "next", self._end + BLOCK, self._granted)

    def _granted(self, done: bool) -> None:
        waiting, self._waiting = self._waiting, deque()
        if done:
            self._end += BLOCK
        for then in waiting:
            if done:
                self.take(then)
            else:
                then(None)
