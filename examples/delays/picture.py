"""How late reminders were, as a picture: how many by how late, and over time, with the kills.

Rule 1: what is dark is what was measured, vermilion a kill: while a relay is away its place is shaded.
Rule 2: lateness is shown on a logarithmic scale: a kill costs thousands of times what an ordinary turn does.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from .kills import Kill

MADE, AWAY = "#0b3c5d", "#d55e00"
_STYLE: Final[dict[Any, Any]] = {
    "font.size": 9,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e6e6e6",
}
_BINS: Final = 60
_TICKS_MS: Final = (1, 10, 100, 1_000, 10_000, 100_000)
Points = Sequence[tuple[int, int]]  # ms since the plan's zero at which one was due, and by how much it was late


def draw(points: Points, kills: Sequence[Kill], title: str, file: Path) -> None:
    """Write a PNG."""
    due_s = np.array([due_ms for due_ms, _ in points]) / 1000
    late_ms = np.maximum(1, [late for _, late in points])
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(11.5, 5.0), layout="constrained")
        left, right = figure.subplots(1, 2, sharey=True, width_ratios=[1, 3.2])
        _histogram(left, late_ms)
        _over_time(right, due_s, late_ms, kills)
        figure.suptitle(title, x=0.01, ha="left", fontsize=11)
        figure.savefig(file, dpi=130)


def _histogram(axes: Axes, late_ms: Any) -> None:
    edges = np.geomspace(1, max(100, late_ms.max() * 1.2), _BINS)
    axes.hist(late_ms, bins=list(edges), orientation="horizontal", color=MADE)
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(10))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_major_formatter(FuncFormatter(_time))
    for percent in (50, 99):
        at_ms = float(np.percentile(late_ms, percent))
        axes.axhline(at_ms, color="#777777", lw=0.8, ls="--")
        axes.annotate(f"p{percent} {at_ms:,.0f} ms", (1, at_ms), xycoords=("axes fraction", "data"), xytext=(-2, 2),
                      textcoords="offset points", ha="right", color="#444444", fontsize=8,
                      bbox={"boxstyle": "round,pad=0.1", "fc": "white", "ec": "none", "alpha": 0.8})  # fmt: skip
    axes.set_title("how many, by how late")
    axes.set_xlabel("reminders")
    axes.set_ylabel("late: from due until a reader has it")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda count, _: f"{count:,.0f}"))


def _over_time(axes: Axes, due_s: Any, late_ms: Any, kills: Sequence[Kill]) -> None:
    axes.plot(due_s, late_ms, ".", ms=1.5, color=MADE, alpha=0.35, mew=0, rasterized=True)
    for kill in kills:
        at_s = kill.at_ms / 1000
        axes.axvspan(at_s, at_s + kill.rest_s, color=AWAY, alpha=0.13, lw=0)
        axes.axvline(at_s, color=AWAY, lw=1)
        axes.annotate(f"{kill.name} killed,\naway {kill.rest_s:g} s", (at_s, 1), xycoords=("data", "axes fraction"),
                      xytext=(3, -2), textcoords="offset points", color=AWAY, fontsize=8, va="top")  # fmt: skip
    axes.set_ylim(top=axes.get_ylim()[1] * 3)  # room for the words
    axes.set_title("over time: a dot for each, at the moment at which it was due")
    axes.set_xlabel("seconds since the start")


def _time(ms: float, _: int) -> str:
    return f"{ms / 1000:g} s" if ms >= 1000 else f"{ms:g} ms"
