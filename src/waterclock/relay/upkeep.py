"""What keeps both logs short: laps, snapshots and trims, a small step at a time, while nothing is due.

Rule 1: paced below deliveries. A step is a transaction of some ten milliseconds, at a moment when nothing is due within
        `QUIET_MS` in any partition of this relay, and a rest of `REST_NS` follows: the input gets no burst.
Rule 2: where there is no such moment, and the input is twice as long as it should be, a step is made all the same, each
        `URGENT_NS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from waterclock.relay.around import Around
from waterclock.relay.lap import Laps
from waterclock.relay.owner import Owner
from waterclock.relay.saving import Saving
from waterclock.relay.statistics import Counts
from waterclock.relay.trim import Cutter, Trims

LAP_BYTES: Final = 1 << 30
QUIET_MS: Final = 50
REST_NS: Final = 100_000_000  # so 20,000 messages or 40 MB a second are moved at most
URGENT_NS: Final = 500_000_000


class _Keeping:
    """What is done for one owner."""

    def __init__(self, owner: Owner, counts: Counts, cutter: Cutter, lap_bytes: int, stuck: set[tuple[int, int]]):
        self.owner = owner
        self.laps = Laps(owner, counts, lap_bytes, stuck)
        self.saving = Saving(owner, counts, lap_bytes)
        self.trims = Trims(owner, cutter, lap_bytes)
        self.done_ns = 0


class Upkeep:
    """For the owners of one relay, `owners` by their partitions."""

    def __init__(self, around: Around, owners: Mapping[int, Owner], counts: Counts, lap_bytes: int) -> None:
        self._clock, self._owners, self._counts, self._lap_bytes = around.clock, owners, counts, lap_bytes
        self._cutter = Cutter(around.settings)
        self._keepings: dict[int, _Keeping] = {}
        self._stuck: dict[int, set[tuple[int, int]]] = {}

    def step(self, owner: Owner) -> int:
        """Do a little, if this is the moment; whether a transaction was made. Whatever is raised, the owner is of no more
        use."""
        if not owner.has_caught_up or owner.alone or owner.held:
            return 0
        keeping = self._of(owner)
        keeping.trims.step()
        doing = self._wanted(keeping)
        if doing is None or not self._is_time(keeping):
            return 0
        if done := doing.step():
            keeping.done_ns = self._clock.monotonic_ns()
        return done

    def wait_s(self, owner: Owner) -> float | None:
        """How long there is nothing to do for an owner; None: for ever."""
        keeping = self._keepings.get(owner.number)
        if keeping is None or keeping.owner is not owner or (doing := self._wanted(keeping)) is None:
            return None
        rest_s = (keeping.done_ns + REST_NS - self._clock.monotonic_ns()) / 1e9
        return max(rest_s, keeping.laps.wait_s if doing is keeping.laps else 0.0)

    def close(self) -> None:
        """Let go of what reads."""
        for keeping in self._keepings.values():
            keeping.laps.close()
        self._keepings.clear()

    def _of(self, owner: Owner) -> _Keeping:
        keeping = self._keepings.get(owner.number)
        if keeping is not None and keeping.owner is owner:
            return keeping
        if keeping is not None:
            keeping.laps.close()
        stuck = self._stuck.setdefault(owner.number, set())
        made = _Keeping(owner, self._counts, self._cutter, self._lap_bytes, stuck)
        self._keepings[owner.number] = made
        return made

    def _wanted(self, keeping: _Keeping) -> Laps | Saving | None:
        return keeping.laps if keeping.laps.is_wanted else keeping.saving if keeping.saving.is_wanted else None

    def _is_time(self, keeping: _Keeping) -> bool:
        since_ns = self._clock.monotonic_ns() - keeping.done_ns
        if all(map(self._is_quiet, self._owners.values())):
            return since_ns >= REST_NS
        return since_ns >= URGENT_NS and keeping.laps.is_urgent

    def _is_quiet(self, owner: Owner) -> bool:
        due_ms = owner.next_due_ms()
        is_due = due_ms is not None and due_ms <= self._clock.wall_ms() + QUIET_MS
        return not (is_due or owner.waiting or owner.letters)
