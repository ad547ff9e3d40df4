"""The pictures of the report: plain numbers in, SVG texts out that stand in the page itself.

Rule 1: a light bar is the truth (the log, the replay), a dark mark is what the pipeline made of it, vermilion is a
        limit or a fault. The three differ in lightness too, so that they are told apart without colour.
Rule 2: each picture is drawn twice, wide and narrow: a wide one scaled down to a telephone cannot be read.
Rule 3: nothing from outside and nothing that changes: text stays text in the page's font, no links, no date of making.
"""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from itertools import accumulate

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

TRUTH, MADE, LIMIT, INK = "#9ccbe8", "#0b3c5d", "#d55e00", "#333333"
DELAY_DAYS = 14
WIDE, NARROW = 8.6, 3.9  # inches
STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "fines",
    "font.size": 10,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#888888",
    "axes.labelcolor": INK,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": "#e6e6e6",
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
}


@dataclass(frozen=True, slots=True)
class Batch:
    """One batch of the pipeline. `held` and `pending` are changes; `watermark` is None before the first and at the close."""

    number: int
    events: int
    injected: int
    removed: int
    held: int
    pending: int
    seconds: float
    watermark: date | None


@dataclass(frozen=True, slots=True)
class Run:
    """What the pictures show: days of real and made penalties, days each event came behind, the batches, events/s."""

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
    """A finished picture: its words, and its two SVG texts."""

    name: str
    title: str
    caption: str
    alt: str
    wide: str
    narrow: str


def pictures(run: Run) -> list[Picture]:
    """The five pictures of a run, in the order of the page."""
    with mpl.rc_context(STYLE):
        return [
            Picture(name, title, *words(run), _svg(run, draw, name, WIDE), _svg(run, draw, f"{name}-narrow", NARROW))
            for name, title, draw, words in (
                ("penalties", "Penalties over time, made against real", _draw_penalties, _say_penalties),
                ("disorder", "How late the events arrived", _draw_disorder, _say_disorder),
                ("duplicates", "Duplicates, injected and removed", _draw_duplicates, _say_duplicates),
                ("throughput", "Throughput of each batch", _draw_throughput, _say_throughput),
                ("levels", "What the pipeline holds, and how time moves on", _draw_levels, _say_levels),
            )
        ]


# penalties ---------------------------------------------------------------------------------------------------


def _months(run: Run) -> tuple[list[date], list[int], list[int]]:
    """The middle of each month from the first penalty to the last, and the real and made penalties in it."""
    real, made = (Counter(12 * d.year + d.month - 1 for d in days) for days in (run.real, run.made))
    seen = real.keys() | made.keys()
    numbers = range(min(seen), max(seen) + 1) if seen else range(0)
    return [date(n // 12, n % 12 + 1, 15) for n in numbers], [real[n] for n in numbers], [made[n] for n in numbers]


def _draw_penalties(figure: Figure, run: Run) -> None:
    months, real, made = _months(run)
    differences = [m - r for m, r in zip(made, real, strict=True)]
    top, low = figure.subplots(2, 1, sharex=True, height_ratios=[4, 1])
    top.bar(months, real, width=26, color=TRUTH, label="real, in the log")  # type: ignore[arg-type]  # days are fine
    top.plot(months, made, "o", color=MADE, markersize=3.5, label="made by the pipeline")  # type: ignore[arg-type]
    top.set_ylabel("penalties a month")
    _legend_above(top)
    low.bar(months, differences, width=26, color=LIMIT)  # type: ignore[arg-type]
    low.axhline(0, color=MADE, linewidth=1)
    low.set_title("Difference, made − real" + ("" if any(differences) else ": 0 in every month"))
    reach = max(2, *map(abs, differences)) if differences else 2
    low.set_ylim(-reach, reach)
    _whole_numbers(low, 3)
    _dates(low)


def _say_penalties(run: Run) -> tuple[str, str]:
    months, real, made = _months(run)
    apart = sum(r != m for r, m in zip(real, made, strict=True))
    verdict = f"{apart} of {len(months)} months differ" if apart else f"all {len(months)} months agree"
    caption = f"Bars are the penalties of the real log, dots those the pipeline made: {verdict}."
    return caption, f"Bar chart by month with dots on top. {len(run.real)} real penalties, {len(run.made)} made; {verdict}."


# disorder ----------------------------------------------------------------------------------------------------


def _draw_disorder(figure: Figure, run: Run) -> None:
    counts = Counter(min(days, DELAY_DAYS + 1) for days in run.behind)
    axes = figure.subplots()
    days = range(DELAY_DAYS + 2)
    colors = [TRUTH] * (DELAY_DAYS + 1) + [LIMIT]
    axes.bar(days, [counts[d] for d in days], width=0.86, color=colors)
    axes.axvline(DELAY_DAYS + 0.5, color=LIMIT, linestyle="--", linewidth=1.5)
    axes.set_title("watermark, 14 days behind the latest event time", loc="right", color=LIMIT)
    narrow = figure.get_figwidth() < WIDE
    shown = [0, 5, 10, 14] if narrow else list(days)[:-1]
    axes.set_xticks([*shown, DELAY_DAYS + 1], [*map(str, shown), ">14"])
    axes.set_xlabel("days behind the latest event time seen before")
    axes.set_ylabel("events")
    _whole_numbers(axes, 6)


def _say_disorder(run: Run) -> tuple[str, str]:
    behind, late = sum(days > 0 for days in run.behind), sum(days > DELAY_DAYS for days in run.behind)
    words = (
        f"{behind:,} of {len(run.behind):,} events came after one that happened on a later day. The watermark waits "
        f"14 days for them; {late or 'none'} came later than that."
    )
    return f"{words} Duplicates are left out.", f"Histogram of the days by which events came late. {words}"


# duplicates --------------------------------------------------------------------------------------------------


def _draw_duplicates(figure: Figure, run: Run) -> None:
    numbers = [batch.number for batch in run.batches]
    axes = figure.subplots()
    axes.bar(numbers, [batch.injected for batch in run.batches], width=0.7, color=TRUTH, label="injected by the replay")
    axes.plot(numbers, [batch.removed for batch in run.batches], "o", color=MADE, label="removed by the pipeline")
    axes.set_ylabel("duplicates a batch")
    _batches(axes)
    _whole_numbers(axes, 5)
    _legend_above(axes)


def _say_duplicates(run: Run) -> tuple[str, str]:
    injected, removed = (sum(getattr(b, name) for b in run.batches) for name in ("injected", "removed"))
    apart = sum(b.injected != b.removed for b in run.batches)
    verdict = f"they differ in {apart} batches" if apart else "equal in every batch"
    words = f"{injected:,} duplicates came in, {removed:,} were removed; {verdict}."
    return f"Bars are the copies in the lines of a batch, dots what it removed. {words}", f"Bar chart by batch. {words}"


# throughput --------------------------------------------------------------------------------------------------


def _rates(run: Run) -> list[float]:
    return [batch.events / batch.seconds if batch.seconds else 0.0 for batch in run.batches]


def _draw_throughput(figure: Figure, run: Run) -> None:
    axes = figure.subplots()
    axes.bar([batch.number for batch in run.batches], _rates(run), width=0.7, color=MADE)
    axes.axhline(run.mean_rate, color=LIMIT, linestyle="--", linewidth=1.5)
    axes.set_title(f"whole run: {run.mean_rate:,.0f} events/s", loc="right", color=LIMIT)
    axes.set_ylabel("events a second")
    _batches(axes)
    _whole_numbers(axes, 6)


def _say_throughput(run: Run) -> tuple[str, str]:
    best, empty = max(_rates(run), default=0.0), sum(batch.events == 0 for batch in run.batches)
    words = f"The fastest batch took {best:,.0f} events a second, the whole run {run.mean_rate:,.0f}."
    more = "The first batch carries the start of the stream and of the Python workers"
    closing = f"; {empty} without a bar read no events: only time moved on in them." if empty else "."
    return f"{words} {more}{closing}", f"Bar chart of events a second by batch. {words}"


# levels ------------------------------------------------------------------------------------------------------


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
    time.yaxis.set_major_locator(AutoDateLocator(minticks=2, maxticks=5))
    time.yaxis.set_major_formatter(ConciseDateFormatter(time.yaxis.get_major_locator()))
    _batches(time)
    figure.align_ylabels()


def _say_levels(run: Run) -> tuple[str, str]:
    held, pending = run.levels("held") or [0], run.levels("pending") or [0]
    words = (
        f"At most {max(held):,} events were held and {max(pending):,} deadlines pending at the end of a batch; "
        f"{held[-1] or 'none'} and {pending[-1] or 'none'} at the end of the run."
    )
    more = "At the close the watermark goes to the end of time, which is not drawn."
    return f"{words} {more}", f"Three small charts by batch: events held, deadlines pending, and the watermark. {words}"


# the common parts --------------------------------------------------------------------------------------------


def _legend_above(axes: Axes) -> None:
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, borderaxespad=0.2, handletextpad=0.5, columnspacing=1)


def _whole_numbers(axes: Axes, most: int) -> None:
    axes.yaxis.set_major_locator(MaxNLocator(nbins=most, integer=True))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}".replace("-", "−")))


def _batches(axes: Axes) -> None:
    axes.set_xlabel("batch")
    axes.xaxis.set_major_locator(MaxNLocator(nbins=10, integer=True))


def _dates(axes: Axes) -> None:
    axes.xaxis.set_major_locator(AutoDateLocator(minticks=3, maxticks=8))
    axes.xaxis.set_major_formatter(ConciseDateFormatter(axes.xaxis.get_major_locator()))


def _svg(run: Run, draw: Callable[[Figure, Run], None], name: str, width: float) -> str:
    """Draw one picture and make it fit to stand in a page: ids of its own, no prolog, no namespaces, no fixed size."""
    figure = Figure(figsize=(width, 3.3), layout="constrained")
    draw(figure, run)
    out = io.StringIO()
    figure.savefig(out, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    svg = out.getvalue()[out.getvalue().index("<svg") :].replace("xlink:href", "href")
    svg = re.sub(r' (xmlns(:\w+)?|version)="[^"]*"', "", svg)
    svg = re.sub(r'<svg ([^>]*?)width="[^"]*pt" ?|height="[^"]*pt" ?', lambda m: f"<svg {m[1]}" if m[1] else "", svg)
    return re.sub(r'(id="|url\(#|href="#)', rf"\g<1>{name}-", svg)
