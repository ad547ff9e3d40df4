"""The last dead letters of a process, in its statistics: as many as one looks at, with the begin of what somebody sent."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

LETTERS: Final = 20
SHOWN: Final = 80  # characters
HIDDEN: Final = "hidden"


@dataclass(frozen=True, slots=True)
class LetterStatistics:
    """One of the last dead letters: where it stood, when it was put aside (of a capture: when its transaction was
    committed), why, and how its value begins."""

    place: str
    at_ms: int
    reason: str
    value: str

    def hidden(self) -> LetterStatistics:
        """Without what somebody sent.

        >>> LetterStatistics("delays-0-7", 1, "delay is no number: b'abc'", "x").hidden().reason
        'delay is no number: b…'
        """
        return replace(self, reason=re.sub(r"([\"']).*\1", "…", self.reason, flags=re.S), value=HIDDEN)


def newest(letters: Iterable[LetterStatistics], before: Iterable[LetterStatistics]) -> tuple[LetterStatistics, ...]:
    """LETTERS of them, the newest first: `letters` in their order, behind those that were the newest before."""
    return (*reversed([*letters]), *before)[:LETTERS]


def shortened(text: bytes) -> str:
    """How somebody's bytes begin, as text.

    >>> shortened(b"caf\\xff"), len(shortened(b"x" * 1000))
    ('caf\\\\xff', 80)
    """
    found = text[:SHOWN].decode("utf-8", "backslashreplace")
    return found if len(found) <= SHOWN and len(text) <= SHOWN else f"{found[: SHOWN - 1]}…"
