"""What keeps both logs short: laps, snapshots and trims, a small step at a time, while nothing is due.

Rule 1: paced below deliveries. A step is a transaction of some ten milliseconds, at a moment when nothing is due within
        `QUIET_MS` in any partition of this relay, and a rest of `REST_NS` follows: the input gets no burst.
Rule 2: if there is no such moment, and the input is twice as long as it should be, a step is made all the same, each
        `URGENT_NS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Final

from waterclock.relay.owner.context import Context
from waterclock.relay.owner.owner import Owner
from waterclock.relay.statistics import Counts
from waterclock.relay.upkeep.lap import Laps
from waterclock.relay.upkeep.snapshots import SnapshotSchedule
from waterclock.relay.upkeep.trim import Trims

LAP_BYTES: Final = 1 << 30
QUIET_MS: Final = 50
REST_NS: Final = 100_000_000  # so 20,000 messages or 40 MB a second are moved at most
URGENT_NS: Final = 500_000_000


class _OwnerUpkeep:
    """What is done for one owner."""

    def __init__(self, owner: Owner, counts: Counts, lap_bytes: int, stuck: set[tuple[int, int]]):
        self.owner = owner
        self.laps = Laps(owner, counts, lap_bytes, stuck)
        self.snapshots = SnapshotSchedule(owner, counts, lap_bytes)
        self.trims = Trims(owner, lap_bytes)
        self.done_ns = 0


class Upkeep:
    """For the owners of one relay, `owners` by their partitions."""

    def __init__(self, context: Context, owners: Mapping[int, Owner], counts: Counts, lap_bytes: int) -> None:
        self._clock = context.clock
        self._owners = owners
        self._counts = counts
        self._lap_bytes = lap_bytes
        self._cares: dict[int, _OwnerUpkeep] = {}
        self._stuck: dict[int, set[tuple[int, int]]] = {}

    def step(self, owner: Owner) -> int:
        """Do a little, if this is the moment; whether a transaction was made. Whatever is raised, the owner is of no more
        use."""
        for number in self._cares.keys() - self._owners.keys():
            self._cares.pop(number).laps.close()
        if not owner.has_caught_up or owner.held:
            return 0
        care = self._of(owner)
        care.trims.step()
        doing = self._wanted(care)
        if doing is not care.laps:
            care.laps.close()  # what is read ahead takes memory, in each partition
        since_ns = self._clock.monotonic_ns() - care.done_ns
        if all(each.is_quiet(QUIET_MS) for each in self._owners.values()):
            is_time = since_ns >= REST_NS
        else:
            is_time = since_ns >= URGENT_NS and care.laps.is_urgent  # rule 2
        if doing is None or not is_time:
            return 0
        if done := doing.step():
            care.done_ns = self._clock.monotonic_ns()
        return done

    def wait_s(self, owner: Owner) -> float:
        """How long there is nothing to do for an owner; it may be for ever."""
        care = self._cares.get(owner.number)
        if care is None or care.owner is not owner or (doing := self._wanted(care)) is None:
            return inf
        rest_s = (care.done_ns + REST_NS - self._clock.monotonic_ns()) / 1e9
        return max(rest_s, care.laps.wait_s if doing is care.laps else 0.0)

    def close(self) -> None:
        """Let go of what reads."""
        for care in self._cares.values():
            care.laps.close()
        self._cares.clear()

    def _of(self, owner: Owner) -> _OwnerUpkeep:
        care = self._cares.get(owner.number)
        if care is not None and care.owner is owner:
            return care
        if care is not None:
            care.laps.close()
        stuck = self._stuck.setdefault(owner.number, set())
        made = _OwnerUpkeep(owner, self._counts, self._lap_bytes, stuck)
        self._cares[owner.number] = made
        return made

    def _wanted(self, care: _OwnerUpkeep) -> Laps | SnapshotSchedule | None:
        return care.laps if care.laps.is_wanted else care.snapshots if care.snapshots.is_wanted else None
