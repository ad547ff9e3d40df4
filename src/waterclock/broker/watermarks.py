"""After a flush: how far readers may read now, and who has waited for that.

Rule 1: producers are answered before readers: a hundred long polls do not make one producer wait.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from waterclock.broker.log.partition import Partition

if TYPE_CHECKING:
    from waterclock.broker.flusher import Work
    from waterclock.broker.net.outgoing import Ready
    from waterclock.purgatory import Purgatory


class Watermarks:
    """Raises high watermarks, and asks the operations that wait in `produces` and `fetches`; `news()` hears of it."""

    def __init__(self, ready: Ready, produces: Purgatory, fetches: Purgatory, news: Callable[[], object]) -> None:
        self._ready, self._produces, self._fetches, self._news = ready, produces, fetches, news

    def flushed(self, work: list[Work], raise_high: Callable[[Partition], None]) -> None:
        """The flusher has made this durable; `raise_high` raises a partition's high watermark as far as it may be."""
        for one in work:
            if not one.partition.deleted:
                one.note()
                raise_high(one.partition)
        self.changed([w.partition for w in work])

    def changed(self, partitions: Iterable[Partition]) -> None:
        """Something about these partitions may answer who waits: a high watermark, an epoch, a deletion."""
        for partition in partitions:
            self._produces.check_and_complete(partition)
        self._ready.send()
        for partition in partitions:
            self._fetches.check_and_complete(partition)
        self._ready.send()
        self._news()
