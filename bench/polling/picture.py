"""The picture of a polled table: what lateness costs, what growth changes, what a burst takes, who works for nothing.

Rule 1: drawn from a record alone. A colour is a way of taking rows, in all panels; the `Timer` is dark, as ours always is.
Rule 2: panels of lateness and idling show the largest table; those of a burst the one that was also worked off singly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import geometric_mean
from typing import Any, Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

from waterclock.bench.plots import Line, label_ends
from waterclock.bench.polling.in_process import WHO
from waterclock.bench.polling.poller import OPTIMISTIC, SKIP_LOCKED
from waterclock.bench.polling.table import every
from waterclock.bench.tables import short

COLORS: Final = {WHO: "#0b3c5d", SKIP_LOCKED: "#d55e00", OPTIMISTIC: "#a03070"}
FAINT: Final = {SKIP_LOCKED: "#e8a06a", OPTIMISTIC: "#cf8fb0"}  # a commit for each task
COMMITS: Final = "#555555"
LEAST: Final = 1e-4  # of a core: less than this is shown as this
Rows = Sequence[Mapping[str, Any]]


def draw(figures: Mapping[str, Any]) -> Figure:
    """Four panels."""
    figure = Figure(figsize=(11.5, 8.6))
    panels = list(figure.subplots(2, 2).flat)
    figure.subplots_adjust(left=0.075, right=0.885, top=0.95, bottom=0.1, wspace=0.66, hspace=0.32)
    _price(panels[0], _of_largest(figures["cells"]))
    _growth(panels[1], figures["cells"])
    _burst(panels[2], _of_singly(figures["bursts"]), figures["commits"])
    _lost(panels[3], _of_singly(figures["bursts"]))
    for axes in panels:
        axes.tick_params(which="both", length=0)
    load = f"load of the machine {figures['load']:.1f} at the start, {figures['load_after']:.1f} at the end"
    figure.text(0.988, 0.012, load, fontsize=7, color="#777777", ha="right")
    return figure


def _of_largest(records: Rows) -> Rows:
    most = max(r["pending"] for r in records)
    return [r for r in records if r["pending"] == most]


def _of_singly(records: Rows) -> Rows:
    """Of the table that was also worked off with a commit for each task."""
    pending = next(r["pending"] for r in records if r["batch"] == 1)
    return [r for r in records if r["pending"] == pending]


# Lateness


def _price(axes: Axes, cells: Rows) -> None:
    """Late by what idling costs: a bar from p50 to p99, hollow where there is one worker."""
    for r in cells:
        cpu, color, ours = _cpu(r), COLORS[r["who"]], r["who"] == WHO
        axes.plot([cpu, cpu], [r["p50_ms"], r["p99_ms"]], color=color, lw=1.6, alpha=0.75)
        inside = "white" if r["workers"] == 1 and not ours else color
        axes.plot(cpu, r["p50_ms"], "o", ms=8 if ours else 6, mec=color, mfc=inside)
    _log(axes, x=True)
    for of in dict.fromkeys(map(every, cells)):
        _name(axes, [r for r in cells if every(r) == of])
    axes.xaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{share * 100:g} %"))
    axes.set_title(f"late by what looking costs, {short(cells[0]['pending'])} pending")
    axes.set_xlabel("processor while nothing is due, workers and server, of one core")
    axes.set_ylabel("late: half of all, to 99 of 100")
    axes.set_ylim(top=axes.get_ylim()[1] * 2)
    axes.set_xlim(right=2)
    _legend(axes)


def _cpu(record: Mapping[str, Any]) -> float:
    return max(LEAST, float(record["workers_cpu"] + record["server_cpu"]))


def _name(axes: Axes, of: Rows) -> None:
    """Above all points of one interval, how often they look; beside the Timer its name."""
    ours = of[0]["who"] == WHO
    at = geometric_mean(map(_cpu, of)), max(r["p50_ms" if ours else "p99_ms"] for r in of)
    axes.annotate(
        "waterclock Timer" if ours else f"every {every(of[0])}",
        at,
        (9, 0) if ours else (0, 5),
        textcoords="offset points",
        ha="left" if ours else "center",
        va="center" if ours else "bottom",
        color=COLORS[WHO] if ours else COMMITS,
        fontsize=8.5,
        fontweight="bold" if ours else "normal",
    )


def _legend(axes: Axes) -> None:
    for who, color in list(COLORS.items())[1:]:
        axes.plot([], [], "o", color=color, label=who)
    axes.plot([], [], "o", mec="#777777", mfc="white", label="1 worker")
    axes.plot([], [], "o", color="#777777", label="3 workers")
    axes.legend(fontsize=8, loc="upper right", handletextpad=0.1, borderaxespad=0.1)


def _growth(axes: Axes, cells: Rows) -> None:
    """p50 by number pending, one worker."""
    sizes = sorted({r["pending"] for r in cells})
    lines: list[Line] = []
    for who, ms in dict.fromkeys((r["who"], r["interval_ms"]) for r in cells if r["who"] != OPTIMISTIC):
        of = [r for r in cells if (r["who"], r["interval_ms"], r["workers"]) == (who, ms, 1)]
        name = "waterclock" if who == WHO else f"every {every(of[0])}"
        lines.append((name, COLORS[who], [(r["pending"], r["p50_ms"]) for r in of]))
    for name, color, points in lines:
        axes.plot(*zip(*points, strict=True), color=color, lw=2.4 if name == "waterclock" else 1.3, marker="o", ms=4)
    _log(axes, x=True)
    axes.set_xticks(sizes, [short(size) for size in sizes])
    axes.set_xlim(min(sizes) / 1.6, max(sizes) * 1.6)
    axes.set_title(f"late by what is pending, {SKIP_LOCKED}, 1 worker")
    axes.set_xlabel("tasks that are due in 100 days")
    axes.set_ylabel("late, half of all")
    label_ends(axes, lines)


def _log(axes: Axes, *, x: bool) -> None:
    """Logarithmic, milliseconds upwards."""
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(10))
    axes.yaxis.set_major_formatter(FuncFormatter(_milliseconds))
    axes.yaxis.set_minor_locator(NullLocator())
    if x:
        axes.set_xscale("log")
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.xaxis.set_minor_locator(NullLocator())


def _milliseconds(ms: float, _: int) -> str:
    return f"{ms / 1000:g} s" if ms >= 1000 else f"{ms:g} ms"


# Bursts


def _burst(axes: Axes, bursts: Rows, commits: Rows) -> None:
    """Tasks a second by workers; beside them what the database commits."""
    lines: list[Line] = []
    for who, batch in _kinds(bursts):
        points = [(float(r["workers"]), r["a_second"]) for r in bursts if (r["who"], r["batch"]) == (who, batch)]
        lines.append((_named(who, batch), FAINT[who] if batch == 1 else COLORS[who], points))
    known = sorted({r["workers"] for r in bursts})
    bare = [(float(r["connections"]), r["a_second"]) for r in commits if r["connections"] in known]
    lines.append(("bare commits", COMMITS, bare))
    for _, color, points in lines:
        axes.plot(
            *zip(*points, strict=True), color=color, lw=1.6, ls="--" if color == COMMITS else "-", marker="o", ms=4
        )
    (ours,) = (r for r in bursts if r["who"] == WHO)
    at, color = (1, ours["a_second"]), COLORS[WHO]
    axes.plot(*at, "o", ms=8, color=color)
    axes.annotate("waterclock Timer, one process", at, (9, 0), textcoords="offset points", color=color, va="center",
                  fontsize=8.5, fontweight="bold")  # fmt: skip
    _rates(axes)
    axes.set_xticks(known)
    axes.set_xlim(known[0] - 0.25, known[-1] + 0.25)
    of = {batch: next(short(r["tasks"]) for r in bursts if r["batch"] == batch) for _, batch in _kinds(bursts)}
    axes.set_title(f"tasks a second, {of[max(of)]} due at one moment")
    axes.set_xlabel(f"workers (one by one: {of[min(of)]} tasks; bare commits: connections)")
    label_ends(axes, lines)


def _rates(axes: Axes) -> None:
    axes.set_yscale("log")
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda rate, _: short(int(rate))))


def _kinds(bursts: Rows) -> list[tuple[str, int]]:
    """Who polls, by the size of batches."""
    return [of for of in dict.fromkeys((r["who"], r["batch"]) for r in bursts) if of[0] != WHO]


def _named(who: str, batch: int) -> str:
    return f"{who}, one by one" if batch == 1 else f"{who}, {batch}"


def _lost(axes: Axes, bursts: Rows) -> None:
    """Rows that a worker saw and another one took, by row that was had."""
    kinds = _kinds(bursts)
    workers = sorted({r["workers"] for r in bursts})
    width = 0.8 / len(kinds)
    for place, (who, batch) in enumerate(kinds):
        of = [r for r in bursts if (r["who"], r["batch"]) == (who, batch)]
        at = [workers.index(r["workers"]) + (place - (len(kinds) - 1) / 2) * width for r in of]
        shares = [r["lost"] / r["tasks"] for r in of]
        color = FAINT[who] if batch == 1 else COLORS[who]
        bars = axes.bar(at, shares, width * 0.9, color=color, label=_named(who, batch))
        axes.bar_label(bars, [f"{share:.1f}" if share else "0" for share in shares], padding=2, fontsize=7.5)
    axes.set_xticks(range(len(workers)), [str(number) for number in workers])
    axes.grid(axis="x", visible=False)
    axes.set_ylim(top=max(2.0, axes.get_ylim()[1]) * 1.25)
    axes.set_title("rows lost to another worker, for each that was had")
    axes.set_xlabel("workers")
    axes.legend(fontsize=8, loc="upper left")
