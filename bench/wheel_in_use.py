"""README's picture: a wheel of seconds, minutes, hours and days, as it stands in the middle of a seeded day.

The wheel is the real one. For eight hours and some, four timers a second come to it. Their delays are log-uniform, from a
second to six days, and four of ten are cancelled at once. Then `occupancy()` is drawn: a ring a level, the seconds
outside, a sector a bucket, filled by how many timers wait in it (on a logarithmic scale).

Rule 1: drawn from `occupancy()` alone, so every wheel, compiled or plain, gives the same picture, to the byte.
Rule 2: colours come from the page: one set for light, one for dark. It needs nothing from outside.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import cos, log, pi, sin
from random import Random
from typing import Final

from waterclock.wheel import TimingWheel
from waterclock.wheel.occupancy import Occupancy

SLOTS: Final = (60, 60, 24, 7)
NAMES: Final = ("seconds", "minutes", "hours", "days")
NOW_S: Final = 8 * 3600 + 9 * 60 + 13
LONGEST_S: Final = 6 * 86_400
A_SECOND: Final = 4
CANCELLED: Final = 0.4
CENTRE: Final = (212, 216)
RINGS: Final = ((196, 158), (150, 112), (104, 70), (62, 32))  # outer and inner radius, the finest level first
GAP: Final = 0.7  # of a sector, in the unit of the picture
_STYLE: Final = """
.card { fill: #ffffff; stroke: #d8dee4 } text { fill: #1f2328; font: 14px system-ui, Helvetica, Arial, sans-serif }
.title { font-size: 19px; font-weight: 600 } .soft { fill: #59636e } .track { fill: #eaeef2 } .timers { fill: #17839b }
.hand { fill: #d55e00 } .clock { font-size: 13px; font-weight: 600 }
@media (prefers-color-scheme: dark) {
.card { fill: #0d1117; stroke: #3d444d } text { fill: #f0f6fc } .soft { fill: #9198a1 } .track { fill: #212830 }
.timers { fill: #3fb5cf } .hand { fill: #ff8c42 } }
"""


@dataclass(frozen=True, slots=True)
class Day:
    """What is drawn: the wheel's moment, what waits in it, and what came, was cancelled and ran until then."""

    now_s: int
    occupancy: Occupancy
    added: int
    cancelled: int
    fired: int

    @property
    def pending(self) -> int:
        return sum(sum(level.values()) for level in self.occupancy)


def live(seed: int = 1) -> Day:
    """Put a wheel to use until `NOW_S`, and look at it.

    >>> day = live()
    >>> day.added - day.cancelled - day.fired == day.pending
    True
    """
    rng, wheel = Random(seed), TimingWheel(slots=SLOTS)
    for now_s in range(NOW_S):
        wheel.advance(now_s)
        for _ in range(A_SECOND):
            timer = wheel.add(max(1, round(LONGEST_S ** rng.random())), int)
            if rng.random() < CANCELLED:
                timer.cancel()
    wheel.advance(NOW_S)
    counts = wheel.statistics()
    return Day(wheel.now, wheel.occupancy(), counts.added, counts.cancelled, counts.fired)


def svg(day: Day) -> str:
    """The whole picture as text."""
    most = max(max(level.values(), default=1) for level in day.occupancy)
    hands = list(_hands(day.now_s))
    body = [f"<style>{_STYLE}</style>", '<rect class="card" x="0.5" y="0.5" width="839" height="431" rx="10"/>']
    for level, (outer, inner) in enumerate(RINGS):
        size, waiting = SLOTS[level], day.occupancy[level]
        body += [_sector("track", n, size, inner, outer) for n in range(size) if n != hands[level]]
        body.append(_sector("hand", hands[level], size, inner, outer))
        for bucket, timers in waiting.items():
            share = (1 + log(timers)) / (1 + log(most))
            body.append(_sector("timers", bucket, size, inner, inner + share * (outer - inner)))
    body += _words(day)
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 840 432" role="img" aria-labelledby="t">'
        f'<title id="t">{description(day)}</title>\n' + "\n".join(body) + "\n</svg>\n"
    )


def description(day: Day) -> str:
    """The picture in words, for those who do not see it."""
    levels = "; ".join(f"{name} {sum(at.values()):,}" for name, at in zip(NAMES, day.occupancy, strict=True))
    return f"A timing wheel in use: {day.pending:,} timers wait in {_buckets(day)} buckets of four levels: {levels}"


def _hands(now_s: int) -> Iterator[int]:
    for size in SLOTS:
        yield now_s % size
        now_s //= size


def _buckets(day: Day) -> int:
    return sum(map(len, day.occupancy))


def _words(day: Day) -> Iterator[str]:
    clock = f"{NOW_S // 3600}:{NOW_S // 60 % 60:02}:{NOW_S % 60:02}"
    yield f'<text class="clock" x="{CENTRE[0]}" y="{CENTRE[1] + 5}" text-anchor="middle">{clock}</text>'
    x = 440
    yield f'<text class="title" x="{x}" y="50">{day.pending:,} timers wait in {_buckets(day)} buckets</text>'
    for line, words in enumerate(
        (
            f"{day.added:,} came within {NOW_S // 3600} hours;",
            f"{day.cancelled:,} of them were cancelled, {day.fired:,} ran.",
        )
    ):
        yield f'<text class="soft" x="{x}" y="{75 + 21 * line}">{words}</text>'
    for level, (name, at) in enumerate(zip(NAMES, day.occupancy, strict=True)):
        y = 134 + 24 * level
        yield f'<text x="{x}" y="{y}">{("outer ring", "second ring", "third ring", "inner ring")[level]}</text>'
        yield f'<text x="{x + 96}" y="{y}">{SLOTS[level]} {name}</text>'
        yield f'<text x="{x + 290}" y="{y}" text-anchor="end">{sum(at.values()):,} timers</text>'
    for line, (kind, words) in enumerate(
        (
            ("timers", "how many wait in a bucket (logarithmic)"),
            ("hand", "where the time is; behind it all is empty"),
        )
    ):
        y = 248 + 24 * line
        yield f'<rect class="{kind}" x="{x}" y="{y - 11}" width="12" height="12" rx="2"/>'
        yield f'<text class="soft" x="{x + 22}" y="{y}">{words}</text>'
    for line, words in enumerate(
        (
            "To add or to cancel a timer touches one bucket,",
            "however many wait. When the hand reaches a bucket",
            "of seconds, its timers run. When it reaches one of",
            "minutes, hours or days, its timers go down a level.",
        )
    ):
        yield f'<text x="{x}" y="{318 + 22 * line}">{words}</text>'


def _sector(kind: str, bucket: int, size: int, inner: float, outer: float) -> str:
    """A part of a ring, from noon on, with a gap that is as wide inside as outside."""
    corners = []
    for radius, side in ((outer, 0), (outer, 1), (inner, 1), (inner, 0)):
        turn = 2 * pi * (bucket + side) / size + (GAP / radius if side == 0 else -GAP / radius)
        corners.append(f"{CENTRE[0] + radius * sin(turn):.1f} {CENTRE[1] - radius * cos(turn):.1f}")
    first, second, third, fourth = corners
    return (
        f'<path class="{kind}" d="M{first}A{outer:.1f} {outer:.1f} 0 0 1 {second}'
        f'L{third}A{inner:.1f} {inner:.1f} 0 0 0 {fourth}Z"/>'
    )
