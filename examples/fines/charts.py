"""The pictures of the report: plain numbers in, SVG texts out that stand in the page itself.

Rule 1: a light bar is the truth (the log, the replay), a dark mark what the pipeline made of it, vermilion a
        limit or a fault. They differ in lightness and shape too, so that they are told apart without colour.
Rule 2: each picture is drawn twice, wide and narrow: a wide one scaled down to a telephone cannot be read.
Rule 3: nothing from outside, nothing that changes: text in the page's font, no links, no dates of making.
"""

from __future__ import annotations

import io
import json
import re
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from itertools import accumulate
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from .latency import taken

TRUTH, MADE, LIMIT = "#9ccbe8", "#0b3c5d", "#d55e00"
DELAY_DAYS = 14
WIDE, NARROW = 8.6, 3.9  # inches
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "fines",
    "axes.titlesize": "medium",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": "#e6e6e6",
    "legend.frameon": False,
}


@dataclass(frozen=True, slots=True)
class Batch:
    """One batch. `held` and `pending` are changes; `watermark`: None at the start and at the close."""

    number: int
    events: int
    injected: int
    removed: int
    held: int
    pending: int
    seconds: float
    watermark: date | None


def read_batches(db: sqlite3.Connection, copies: Mapping[tuple[int, int], bool]) -> Iterator[Batch]:
    """The batches in order. `copies`: for the partition and offset of each arrival, if it is a copy."""
    rows = db.execute("SELECT batch_id, offsets, counters, watermark, seconds FROM results_batches ORDER BY batch_id")
    reported = rows.fetchall()
    injected: Counter[int] = Counter()
    for number, partition, first, end in taken([row[:2] for row in reported]):
        injected[number] += sum(copies.get((partition, offset), False) for offset in range(first, end))
    for number, _, text, watermark, seconds in reported:
        counted = json.loads(text)
        events, removed, held, pending = (counted.get(n, 0) for n in ("events", "duplicates", "held", "pending"))
        known = watermark and watermark < "9000"  # the closing heartbeat is near the end of time
        until = date.fromisoformat(watermark[:10]) if known else None
        yield Batch(number, events, injected[number], removed, held, pending, seconds, until)


@dataclass(frozen=True, slots=True)
class Run:
    """What is shown: days of real and made penalties, days that events came behind, batches, events/s."""

    real: list[date]
    made: list[date]
    behind: list[int]
    batches: list[Batch]
    mean_rate: float

    def levels(self, name: str) -> list[int]:
        """The gauge `name` after each batch: the running sum of its changes."""
        return list(accumulate(getattr(batch, name) for batch in self.batches))


@dataclass(frozen=True, slots=True)
class Picture:
    """A finished picture: its words (the caption says all that one can see in it), and its two SVG texts."""

    name: str
    title: str
    caption: str
    wide: str
    narrow: str


def number(value: Any) -> str:
    """For people: a comma from five digits on; a word as it is."""
    return f"{value:,}" if not isinstance(value, str) and abs(value) >= 10_000 else str(value)


def pictures(run: Run) -> list[Picture]:
    """The five pictures of a run, in the order of the page."""
    parts = (
        ("penalties", "Penalties over time, made against real", _draw_penalties, _say_penalties),
        ("disorder", "How late the events arrived", _draw_disorder, _say_disorder),
        ("duplicates", "Duplicates, injected and removed", _draw_duplicates, _say_duplicates),
        ("throughput", "Throughput of each batch", _draw_throughput, _say_throughput),
        ("levels", "What the pipeline holds, and how time moves on", _draw_levels, _say_levels),
    )
    with mpl.rc_context(STYLE):
        return [
            Picture(name, title, say(run), _svg(run, draw, name, WIDE), _svg(run, draw, f"{name}-narrow", NARROW))
            for name, title, draw, say in parts
        ]


def _months(run: Run) -> tuple[list[date], list[int], list[int]]:
    """The middle of each month from the first penalty to the last, and the real and made penalties in it."""
    real, made = (Counter(12 * d.year + d.month - 1 for d in days) for days in (run.real, run.made))
    seen = real.keys() | made.keys()
    numbers = range(min(seen), max(seen) + 1) if seen else range(0)
    return (
        [date(n // 12, n % 12 + 1, 15) for n in numbers],
        [real[n] for n in numbers],
        [made[n] for n in numbers],
    )


def _draw_penalties(figure: Figure, run: Run) -> None:
    months, real, made = _months(run)
    differences = [m - r for m, r in zip(made, real, strict=True)]
    top, low = figure.subplots(2, 1, sharex=True, height_ratios=[4, 1])
    top.bar(months, real, width=26, color=TRUTH, label="real")
    top.plot(months, made, "o", color=MADE, markersize=3.5, label="made")
    top.set_ylabel("penalties a month")
    _legend_above(top)
    low.bar(months, differences, width=26, color=LIMIT)
    low.axhline(0, color=MADE, linewidth=1)
    low.set_title("Difference, made − real" + ("" if any(differences) else ": 0 in every month"))
    reach = max(2, *map(abs, differences)) if differences else 2
    low.set_ylim(-reach, reach)
    _whole_numbers(low, 3)
    dates(low.xaxis, 8)


def _say_penalties(run: Run) -> str:
    months, real, made = _months(run)
    apart = sum(r != m for r, m in zip(real, made, strict=True))
    verdict = f"{apart} of {len(months)} months differ" if apart else "no month differs"
    return (
        f"Bars are the {number(len(run.real))} penalties of the real log, by month; dots are the "
        f"{number(len(run.made))} that the pipeline made: {verdict}."
    )


def _draw_disorder(figure: Figure, run: Run) -> None:
    counts = Counter(min(days, DELAY_DAYS + 1) for days in run.behind)
    axes = figure.subplots()
    days = range(DELAY_DAYS + 2)
    colors = [TRUTH] * (DELAY_DAYS + 1) + [LIMIT]
    axes.bar(days, [counts[d] for d in days], width=0.86, color=colors)
    axes.axvline(DELAY_DAYS + 0.5, color=LIMIT, linestyle="--", linewidth=1.5)
    axes.set_title("watermark: 14 days behind", loc="right", color=LIMIT)
    narrow = figure.get_figwidth() < WIDE
    shown = [0, 5, 10] if narrow else list(days)[:-1]
    axes.set_xticks([*shown, DELAY_DAYS + 1], [*map(str, shown), ">14"])
    axes.set_xlabel("days behind the latest event time seen before")
    axes.set_ylabel("events")
    _whole_numbers(axes, 6)


def _say_disorder(run: Run) -> str:
    behind, late = sum(days > 0 for days in run.behind), sum(days > DELAY_DAYS for days in run.behind)
    return (
        f"{number(behind)} of {number(len(run.behind))} events arrived after one of a later day. The "
        f"watermark waits 14 days for them; {number(late or 'none')} came later than that. Duplicates are "
        "left out."
    )


def _draw_duplicates(figure: Figure, run: Run) -> None:
    numbers = [batch.number for batch in run.batches]
    axes = figure.subplots()
    axes.bar(
        numbers,
        [batch.injected for batch in run.batches],
        width=0.7,
        color=TRUTH,
        label="injected",
    )
    axes.plot(numbers, [batch.removed for batch in run.batches], "o", color=MADE, label="removed")
    axes.set_ylabel("duplicates a batch")
    _batches(axes)
    _whole_numbers(axes, 5)
    _legend_above(axes)


def _say_duplicates(run: Run) -> str:
    injected, removed = (sum(getattr(b, name) for b in run.batches) for name in ("injected", "removed"))
    apart = sum(b.injected != b.removed for b in run.batches)
    verdict = f"they differ in {apart} batches" if apart else "equal in every batch"
    return (
        f"Bars are the copies among the events of a batch, {number(injected)} in all; dots are those it "
        f"removed, {number(removed)}: {verdict}."
    )


def _rates(run: Run) -> list[float]:
    return [batch.events / batch.seconds if batch.seconds else 0.0 for batch in run.batches]


def _draw_throughput(figure: Figure, run: Run) -> None:
    axes = figure.subplots()
    axes.bar([batch.number for batch in run.batches], _rates(run), width=0.7, color=MADE)
    axes.axhline(run.mean_rate, color=LIMIT, linestyle="--", linewidth=1.5)
    axes.set_title(f"whole run: {number(round(run.mean_rate))} events/s", loc="right", color=LIMIT)
    axes.set_ylabel("events a second")
    _batches(axes)
    _whole_numbers(axes, 6)


def _say_throughput(run: Run) -> str:
    best, empty = max(_rates(run), default=0.0), sum(batch.events == 0 for batch in run.batches)
    closing = f" In {empty} without a bar no events came: only time moved on." if empty else ""
    return (
        f"The fastest batch took {number(round(best))} events a second, the whole run "
        f"{number(round(run.mean_rate))}. The first batch carries the start of the stream and of its Python "
        f"workers.{closing}"
    )


def _draw_levels(figure: Figure, run: Run) -> None:
    figure.set_figheight(5.4)
    numbers = [batch.number for batch in run.batches]
    held, pending, time = figure.subplots(3, 1, sharex=True)
    for axes, name in ((held, "held"), (pending, "pending")):
        axes.bar(numbers, run.levels(name), width=0.7, color=MADE)
        _whole_numbers(axes, 3)
    held.set_title("Events held behind a gap, after the batch")
    pending.set_title("Deadlines pending, after the batch")
    known = [(batch.number, batch.watermark) for batch in run.batches if batch.watermark]
    time.plot(*(zip(*known, strict=True) if known else ([], [])), "o-", color=MADE, markersize=4)
    time.set_title("Watermark that the batch ran with")
    dates(time.yaxis, 5)
    _batches(time)
    figure.align_ylabels()


def _say_levels(run: Run) -> str:
    held, pending = run.levels("held") or [0], run.levels("pending") or [0]
    return (
        f"At most {number(max(held))} events were held and {number(max(pending))} deadlines pending after a "
        f"batch; at the end {held[-1]} and {pending[-1]}. The watermark is the one that the batch ran with; "
        "the closing one, at the end of time, is left out."
    )


def _legend_above(axes: Axes) -> None:
    handles, labels = axes.get_legend_handles_labels()
    axes.legend(handles[::-1], labels[::-1], loc="lower left", bbox_to_anchor=(0, 1), ncols=2, borderaxespad=0.2)


def _whole_numbers(axes: Axes, most: int) -> None:
    axes.yaxis.set_major_locator(MaxNLocator(nbins=most, integer=True))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: number(round(value)).replace("-", "−")))


def _batches(axes: Axes) -> None:
    axes.set_xlabel("batch")
    axes.xaxis.set_major_locator(MaxNLocator(nbins=10, integer=True))


def dates(axis: Axis, most: int) -> None:
    locator = AutoDateLocator(minticks=2, maxticks=most)  # type: ignore[no-untyped-call]
    axis.set_major_locator(locator)
    axis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]


def _svg(run: Run, draw: Callable[[Figure, Run], None], name: str, width: float) -> str:
    """Draw one picture and make it fit for a page: ids of its own, no prolog or namespaces, no fixed size."""
    figure = Figure(figsize=(width, 3.3), layout="constrained")
    draw(figure, run)
    out = io.StringIO()
    figure.savefig(out, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    svg = out.getvalue()
    opened, end = svg.index(">", svg.index("<svg")) + 1, svg.rindex("</svg>")
    body = re.sub(r'(id="|url\(#|href="#)', rf"\g<1>{name}-", svg[opened:end]).replace("xlink:", "")
    box = re.search(r'viewBox="[^"]*"', svg[:opened])
    return f"<svg {box[0] if box else ''}>{body}</svg>"
