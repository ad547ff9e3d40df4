"""What clock frames say: of each partition of a topic, up to where its time has come.

Rule 1: a partition of which nothing is known yet holds the watermark back (None); for one that is gone, nobody waits.
"""

from __future__ import annotations

from collections.abc import Iterable

from waterclock.kafka import Partition
from waterclock.streaming.layout import END_US, end_of


def watermarks_of(known: Iterable[Partition], gone: Iterable[Partition]) -> dict[str, int | None]:
    """What a clock frame says of partitions of which it knows no time: none, or that nobody waits for them any more."""
    found: dict[str, int | None] = {f"{topic}/{partition}": None for topic, partition in known}
    return {**found, **{f"{topic}/{partition}": END_US for topic, partition in gone}}


def own_watermark(latest_us: int | None, delay_us: int) -> int | None:
    """The watermark that a partition allows whose largest time is `latest_us`; None if it told no time."""
    return None if latest_us is None else end_of(latest_us) - delay_us
