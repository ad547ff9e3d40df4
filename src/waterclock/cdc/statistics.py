"""What a capture says about itself: one frozen record, whoever asks and whenever."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CaptureStatistics:
    """Counts since the start, of what is committed in Kafka: `changes`, the source's `transactions`, `commits` there;
    `breaks` after which it went on, the `place` that Kafka holds, and `dead_letters`, records that were put aside."""

    changes: int = 0
    transactions: int = 0
    commits: int = 0
    breaks: int = 0
    place: str = ""
    dead_letters: int = 0
