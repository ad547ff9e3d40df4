"""Figures as pictures: what a verb costs as more timers wait, and what a request costs as more of them come.

Rule 1: drawn from a record alone, in memory or read back from its JSON; nothing is measured here.
Rule 2: both axes of the timers are logarithmic, the same in each panel: a heap's growth is a slope, a wheel's none.
Rule 3: a contender measured at one size only shows no growth: it stands in the table, and in a line below.
Rule 4: a line carries its name at its end, in its colour. Ours are dark and thick, the others lighter. Kafka's is grey.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, Final

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from waterclock.bench.tables import short

# contender: (its name at the end of its line, colour)
OURS: Final = {
    "waterclock, compiled": ("waterclock", "#0b3c5d"),
    "waterclock (NOT compiled)": ("waterclock, not compiled", "#0b3c5d"),
    "waterclock, ArrayWheel": ("waterclock, arrays", "#17839b"),
    "waterclock, reference": ("waterclock in Python", "#7a8ea3"),
}
KAFKA: Final = "#555555"
OTHERS: Final = {
    "asyncio call_later": ("asyncio", "#d55e00"),
    "uvloop call_later": ("uvloop", "#b8860b"),
    "heapq, lazy deletion": ("heapq", "#a03070"),
    "sortedcontainers": ("sortedcontainers", "#6a8f3c"),
    "APScheduler": ("APScheduler", "#8c564b"),
    "sched": ("sched", "#777777"),
    "Kafka SystemTimer": ("Kafka", KAFKA),
}
# (ours, half of it expires): colour
LOADS: Final = {(True, False): "#0b3c5d", (True, True): "#d55e00", (False, False): "#555555", (False, True): "#999999"}
ABOUT: Final = {
    "add": "add one",
    "cancel": "cancel one",
    "churn": "churn: cancel one, add one",
    "expire": "expire one, its callback run",
}
BROKERS: Final = {"waterclock": "#0b3c5d", "Apache Kafka, fsync": "#d55e00", "Apache Kafka, memory": KAFKA}
STYLE: Final[dict[Any, Any]] = {
    "font.size": 9,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#888888",
    "axes.labelcolor": "#444444",
    "xtick.color": "#444444",
    "ytick.color": "#444444",
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e8e8e8",
    "legend.frameon": False,
}
GAP: Final = 0.055  # least distance of two labels, as a share of the panel's height
BOLD: Final = {color for _, color in OURS.values()}
Line = tuple[str, str, list[tuple[float, float]]]  # name at its end, colour, points


def draw(record: Mapping[str, Any], file: Path) -> bool:
    """The picture of a record as a PNG; False for a benchmark that has none."""
    figures = record["figures"]
    with mpl.rc_context(STYLE):
        if record["benchmark"] in ("timers", "wheel") and "ns" in figures:
            figure = _verbs(figures)
        elif record["benchmark"] == "purgatory":
            figure = _rates(figures["rates"])
        elif record["benchmark"] == "broker":
            figure = _broker(figures["runs"])
        elif record["benchmark"] == "polling":
            from waterclock.bench.polling import picture  # which takes its labels from here

            figure = picture.draw(figures)
        elif record["benchmark"] == "relay" and figures.get("runs"):
            from waterclock.bench.relay import picture as of_relay

            figure = of_relay.draw(figures)
        elif record["benchmark"] == "pipeline" and figures["by_hand"]:
            figure = _pipeline(figures["by_hand"])
        else:
            return False
        figure.text(0.012, 0.012, record["machine"], fontsize=7, color="#777777")
        figure.savefig(file, dpi=150)
    return True


# Timers


def _verbs(figures: Mapping[str, Any]) -> Figure:
    figure = Figure(figsize=(11.5, 8.6))
    panels = list(figure.subplots(2, 2, sharex=True, sharey=True).flat)
    figure.subplots_adjust(left=0.065, right=0.845, top=0.95, bottom=0.1, wspace=0.56, hspace=0.2)
    drawn = [_verb(axes, figures, verb) for axes, verb in zip(panels, ABOUT, strict=True)]
    for axes, lines in zip(panels, drawn, strict=True):
        axes.set_ylabel("CPU an operation")
        label_ends(axes, lines)
    for axes in panels[2:]:
        axes.set_xlabel("timers pending")
    if once := [name for name, of in figures["ns"].items() if len(of["add"]) < 2]:
        figure.text(0.012, 0.034, f"at one size only, see the table: {', '.join(once)}", fontsize=7, color="#777777")
    return figure


def _verb(axes: Axes, figures: Mapping[str, Any], verb: str) -> list[Line]:
    """One panel without its labels, which need the limits of all panels; what is to be labelled."""
    lines = _lines_of(figures["ns"], verb)
    for _, color, points in lines:
        width, size = (2.4, 4) if color in BOLD else (1.3, 3)
        axes.plot(*zip(*points, strict=True), color=color, lw=width, marker="o", ms=size)
    axes.set_title(ABOUT[verb])
    _pending_axis(axes, figures["pending"])
    return lines


def _lines_of(ns: Mapping[str, Any], verb: str) -> list[Line]:
    """A line for each contender with two sizes or more; with one point, where only one size was measured at all."""
    most = max(len(of[verb]) for of in ns.values())
    return [
        (*(OURS | OTHERS)[name], sorted((int(size), cost) for size, cost in of[verb].items()))
        for name, of in ns.items()
        if name in OURS | OTHERS and len(of[verb]) >= min(2, most)
    ]


def _pending_axis(axes: Axes, sizes: Sequence[int]) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xticks([int(size) for size in sizes], [short(int(size)) for size in sizes])
    axes.set_xlim(min(sizes) / 1.4, max(sizes) * 1.4)
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_major_locator(LogLocator(10))
    axes.yaxis.set_major_formatter(FuncFormatter(_nanoseconds))
    axes.tick_params(which="both", length=0, labelbottom=True, labelleft=True)


def _nanoseconds(ns: float, _: int) -> str:
    return f"{ns / 1000:g} us" if ns >= 1000 else f"{ns:g} ns"


def label_ends(axes: Axes, lines: Sequence[Line]) -> None:
    """Names to the right of the panel, at the height of their lines' ends and moved apart where they would touch."""
    ends = sorted((_height(axes, points[-1][1]), name, color, points[-1]) for name, color, points in lines)
    heights = _apart([height for height, *_ in ends])
    for height, (_, name, color, end) in zip(heights, ends, strict=True):
        axes.annotate(
            name,
            xy=end,
            xytext=(1.05, height),
            textcoords="axes fraction",
            color=color,
            va="center",
            fontsize=8.5,
            fontweight="bold" if color in BOLD else "normal",
            arrowprops={"arrowstyle": "-", "color": color, "lw": 0.7, "alpha": 0.7, "shrinkA": 1, "shrinkB": 4},
            annotation_clip=False,
        )


def _height(axes: Axes, y: float) -> float:
    """A value's height in the panel, 0 to 1."""
    _, height = axes.transAxes.inverted().transform(axes.transData.transform((axes.get_xlim()[0], y)))
    return float(height)


def _apart(heights: Sequence[float]) -> list[float]:
    """Rising heights moved to be `GAP` apart, as little as can be: those that touch spread around their middle.

    >>> _apart([0.5, 0.9])
    [0.5, 0.9]
    >>> [round(height, 4) for height in _apart([0.5, 0.5])]
    [0.4725, 0.5275]
    """
    groups: list[list[float]] = []  # each a run of labels that touch, less their distance
    for place, height in enumerate(heights):
        groups.append([height - place * GAP])
        while len(groups) > 1 and fmean(groups[-2]) > fmean(groups[-1]):
            touching = groups.pop()
            groups[-1] += touching
    level = [fmean(group) for group in groups for _ in group]
    return [height + place * GAP for place, height in enumerate(level)]


# Purgatory


def _rates(records: Sequence[Mapping[str, Any]]) -> Figure:
    figure = Figure(figsize=(9.5, 4.6))
    panels = figure.subplots(1, 2, sharey=True)
    for axes, keys, title in zip(panels, ("shared", "own"), ("3 of 100 keys", "a key of its own"), strict=True):
        lines = _loads(records, keys)
        for (_, color, points), held in lines:
            axes.plot(*zip(*points, strict=True), color=color, lw=2)
            for (x, y), good in zip(points, held, strict=True):
                axes.plot(x, y, "o", ms=6, mec=color, mfc=color if good else "white")
        axes.set_title(f"each request under {title}")
        axes.set_xlabel("requests a second")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda rate, _: short(int(rate))))
        axes.set_xlim(0, max(r["rate"] for r in records) * 1.45)  # names stand at the lines' ends
        axes.tick_params(length=0, labelleft=True)
        for (name, color, points), _ in lines:
            axes.annotate(name, points[-1], (6, 6), textcoords="offset points", color=color, fontsize=8.5)
    panels[0].set_ylim(bottom=0)  # of both, and only now, when everything is drawn
    panels[0].set_ylabel("CPU us a request")
    figure.text(0.988, 0.012, "hollow: the rate was not held", fontsize=7, color=KAFKA, ha="right")
    figure.subplots_adjust(left=0.07, right=0.97, top=0.92, bottom=0.17, wspace=0.14)
    return figure


def _loads(records: Sequence[Mapping[str, Any]], keys: str) -> list[tuple[Line, list[bool]]]:
    """A line for each load and contender, and which of its rates were held."""
    found: list[tuple[Line, list[bool]]] = []
    lines = {(r["contender"], r["p50_ms"]) for r in records if r["keys"] == keys}
    for contender, p50_ms in sorted(lines, reverse=True):
        of = [r for r in records if (r["keys"], r["contender"], r["p50_ms"]) == (keys, contender, p50_ms)]
        points = [(float(r["rate"]), float(r["cpu_us"])) for r in of]
        color = LOADS[contender == "waterclock", p50_ms > 100]
        found.append(((f"{contender}, {of[0]['expected']:.0%} expire", color, points), [bool(r["held"]) for r in of]))
    return found


# Broker


def _broker(runs: Mapping[str, Mapping[str, Any]]) -> Figure:
    """Requests a second by producers in a closed loop; p99 of a produce by connections."""
    figure = Figure(figsize=(11.5, 4.6))
    panels = figure.subplots(1, 2)
    figure.subplots_adjust(left=0.055, right=0.85, top=0.91, bottom=0.17, wspace=0.56)
    _servers(panels[0], runs, "closed-", "per_s")
    _servers(panels[1], runs, "connections: ", "p99_ms")
    panels[0].set_title("requests a second, acks=all")
    panels[0].set_xlabel("producers, one request each under way")
    panels[1].set_title("p99 of a produce, ms, at 1,000 a second")
    panels[1].set_xlabel("connections")
    return figure


def _servers(axes: Axes, runs: Mapping[str, Mapping[str, Any]], kind: str, figure: str) -> None:
    """A line for each server over the workloads that are `kind` and a number."""
    lines = [(name, BROKERS[name], points) for name, of in runs.items() if (points := _points(of, kind, figure))]
    for name, color, points in lines:
        axes.plot(*zip(*points, strict=True), color=color, lw=2.4 if name == "waterclock" else 1.3, marker="o", ms=4)
    numbers = sorted({number for _, _, points in lines for number, _ in points})
    axes.set_xscale("log")
    axes.set_xticks(numbers, [short(int(number)) for number in numbers])
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:,g}"))
    axes.tick_params(which="both", length=0)
    label_ends(axes, lines)


def _points(of: Mapping[str, Any], kind: str, figure: str) -> list[tuple[float, float]]:
    numbers = {name: name.removeprefix(kind).replace(",", "") for name in of if name.startswith(kind)}
    found = {int(number): of[name].get(figure) for name, number in numbers.items() if number.isdigit()}
    return sorted((float(number), value) for number, value in found.items() if value is not None)


# Pipeline


def _pipeline(records: Sequence[Mapping[str, Any]]) -> Figure:
    """Rows a second of each contender, a panel for each size of a batch."""
    sizes = list(dict.fromkeys(r["rows_a_batch"] for r in records))
    figure = Figure(figsize=(4.2 + 4.2 * len(sizes), 3.6))
    panels = figure.subplots(1, len(sizes), sharey=True, squeeze=False)[0]
    for axes, size in zip(panels, sizes, strict=True):
        of = [r for r in records if r["rows_a_batch"] == size][::-1]
        speeds = [r["rows_per_second"] for r in of]
        ours = ["#0b3c5d" if r["contender"].startswith("waterclock") else "#b8b8b8" for r in of]
        bars = axes.barh([r["contender"] for r in of], speeds, color=ours, height=0.62)
        axes.bar_label(bars, [f"{speed:,}" for speed in speeds], padding=4, fontsize=8.5)
        axes.set_title(f"rows a second, batches of {short(size)} rows")
        axes.set_xlim(0, max(speeds) * 1.18)
        axes.tick_params(length=0)
        axes.grid(axis="y", visible=False)
        axes.xaxis.set_major_locator(MaxNLocator(5))  # six figures beside each other overlap
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.0f}"))
    figure.subplots_adjust(left=2.5 / (4.2 + 4.2 * len(sizes)), right=0.97, top=0.9, bottom=0.14)
    return figure
