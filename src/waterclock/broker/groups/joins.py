"""What a group waits for during a rebalance, as delayed operations of the purgatory "join".

    operation      its question                                 its time
    InitialJoin    none: it gives an empty group's first        group.initial.rebalance.delay.ms, again as long as more
                   members the time for more to come            come, the members' rebalance timeout in all
    DelayedJoin    has everybody joined?                        the longest rebalance timeout of the members
    DelayedSync    has everybody asked for its share?           the same; who has not is put out

Rule 1: a group has at most one join and one sync waiting, watched under ("join" or "sync", group).
Rule 2: a cancelled operation does nothing: whoever cancels goes on by himself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from waterclock.purgatory import DelayedOperation, Purgatory

if TYPE_CHECKING:
    from waterclock.broker.groups.classic import ClassicGroup


class DelayedJoin:
    """`complete(group)` is called when everybody has joined, or the time is over."""

    __slots__ = ("_complete", "_group")

    def __init__(self, group: ClassicGroup, complete: Callable[[ClassicGroup], Any]) -> None:
        self._group, self._complete = group, complete

    def try_complete(self, op: DelayedOperation) -> bool:
        return self._group.all_joined

    def on_complete(self, op: DelayedOperation) -> None:
        if op.outcome != "cancelled":
            self._complete(self._group)


class InitialJoin:
    """The first wait of an empty group, `delay_ms` long; if more came meanwhile `again(delay, left)` waits on.

    `left_ms` is what may be waited after that.
    """

    __slots__ = ("_again", "_complete", "_delay_ms", "_group", "_left_ms")

    def __init__(
        self,
        group: ClassicGroup,
        delay_ms: int,
        left_ms: int,
        complete: Callable[[ClassicGroup], Any],
        again: Callable[[ClassicGroup, int, int], Any],
    ) -> None:
        self._group = group
        self._delay_ms = delay_ms
        self._left_ms = left_ms
        self._complete, self._again = complete, again

    def try_complete(self, op: DelayedOperation) -> bool:
        return self._delay_ms == 0

    def on_complete(self, op: DelayedOperation) -> None:
        if op.outcome == "cancelled":
            return
        if self._group.newcomers:
            self._group.newcomers = False
            delay_ms = min(self._delay_ms, self._left_ms)
            self._again(self._group, delay_ms, self._left_ms - delay_ms)
        else:
            self._complete(self._group)


class DelayedSync:
    """`missing(group)` is called if members have not asked for their share in time."""

    __slots__ = ("_generation", "_group", "_missing")

    def __init__(self, group: ClassicGroup, missing: Callable[[ClassicGroup], Any]) -> None:
        self._group = group
        self._missing = missing
        self._generation = group.generation

    def try_complete(self, op: DelayedOperation) -> bool:
        return not self._group.unsynced or self._group.generation != self._generation

    def on_complete(self, op: DelayedOperation) -> None:
        if op.outcome == "expired":
            self._missing(self._group)


def wait(
    purgatory: Purgatory,
    sort: str,
    group: ClassicGroup,
    delayed: InitialJoin | DelayedJoin | DelayedSync,
    timeout_s: float,
) -> None:
    """Watch an operation of a group; `sort` is "join" or "sync"."""
    op = DelayedOperation(delayed.try_complete, delayed.on_complete, timeout_s)
    purgatory.try_complete_else_watch(op, ((sort, group.id),))
