"""A partition that the group gave and that has no owner yet: when it is taken over, and what its owner is to know.

Rule 1: the first attempt is made at once; behind each that failed the pause grows.
Rule 2: what the last owner had found out goes to the next one: whom Kafka refused, how fast it takes records.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from waterclock.relay.owner.owner import Owner
from waterclock.relay.owner.pace import Pace

PAUSES_S: Final = (0.2, 0.5, 1.0, 2.0, 5.0, 10.0)


@dataclass(slots=True)
class Absent:
    """Taken over when `at_ns` has come, after so many attempts that failed."""

    at_ns: int = 0
    attempts: int = 0
    refused: Mapping[int, str] | None = None
    pace: Pace = field(default_factory=Pace)

    def later(self, now_ns: int) -> Absent:
        """The same behind one more attempt, which failed at `now_ns`."""
        pause_s = PAUSES_S[min(self.attempts, len(PAUSES_S) - 1)]
        return replace(self, at_ns=now_ns + int(pause_s * 1e9), attempts=self.attempts + 1)

    def hand_over(self, owner: Owner) -> None:
        """Tell `owner`, who takes it over, what the last one had found out."""
        owner.refused.update(self.refused or {})
        owner.pace = self.pace


def absent_after(owner: Owner) -> Absent:
    """The partition of an `owner` that is let go after a failure."""
    return Absent(refused=dict(owner.refused), pace=owner.pace)
