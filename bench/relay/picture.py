"""The picture of messages for later: how late, how quick at one instant, what is put in, what a cancel costs.

Rule 1: drawn from a record alone, from its largest number of pending messages. Ours are dark, others lighter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from waterclock.bench.tables import short

OURS: Final = "waterclock relay"
COLORS: Final = ("#0b3c5d", "#17839b", "#7a8ea3")  # of ours
OTHERS: Final = ("#d55e00", "#e8a06a", "#a03070", "#b8860b")
Runs = Sequence[Mapping[str, Any]]


def draw(figures: Mapping[str, Any]) -> Figure:
    """Six panels."""
    runs: Runs = [run for run in figures["runs"] if run["pending"] == max(figures["pending"])]
    rates = sorted((name for name in runs[0] if name.startswith("late ")), key=_size)
    bursts = sorted((name for name in runs[0] if name.startswith("burst ")), key=_size)
    panels = [(name, "p99_ms", f"late, 99 of 100, at {_size(name):,} a second", True) for name in rates]
    panels += [(name, "per_s", _burst_title(runs[0][name]), False) for name in bursts]
    panels += [("kept", "put_per_s", "put in a second, acknowledged", False)]
    panels += [("cancel", "per_s", "cancelled a second, answered", False)]
    figure = Figure(figsize=(11.5, 8.6))
    axes = list(figure.subplots(3, 2).flat)
    figure.subplots_adjust(left=0.19, right=0.955, top=0.95, bottom=0.06, wspace=0.72, hspace=0.34)
    colors = _colors(runs)
    for place, (name, key, title, is_time) in zip(axes, panels, strict=False):
        _panel(place, runs, name, key, title, colors, is_time)
    for place in axes[len(panels) :]:
        place.set_visible(False)
    words = f"{short(runs[0]['pending'])} pending; longer bars are worse in the first row, better in the others"
    figure.text(0.988, 0.012, words, fontsize=7, color="#777777", ha="right")
    return figure


def _size(name: str) -> int:
    return int(name.split(" ")[1])


def _burst_title(part: Mapping[str, Any]) -> str:
    return f"had a second, {short(part['messages'])} due at one instant" if "messages" in part else "due at one instant"


def _colors(runs: Runs) -> dict[str, str]:
    ours, others = iter(COLORS), iter(OTHERS)
    return {run["keeper"]: next(ours if run["keeper"].startswith(OURS) else others, "#999999") for run in runs}


def _panel(axes: Axes, runs: Runs, name: str, key: str, title: str, colors: Mapping[str, str], is_time: bool) -> None:
    """A bar for each keeper, from zero on."""
    known = runs[::-1]
    values = [run.get(name, {}).get(key) or 0.0 for run in known]
    names = [f"{run['keeper']}{_less(runs[0], run, name)}" for run in known]
    bars = axes.barh(names, values, color=[colors[run["keeper"]] for run in known], height=0.66)
    words = [(_time(v, 0) if is_time else f"{v:,.0f}") if v else "not measured" for v in values]
    axes.bar_label(bars, words, padding=3, fontsize=8)
    axes.xaxis.set_major_locator(MaxNLocator(4))
    axes.xaxis.set_major_formatter(FuncFormatter(_time if is_time else lambda value, _: short(int(value))))
    axes.set_xlim(0, max([*values, 1.0]) * 1.3)
    axes.grid(axis="y", visible=False)
    axes.tick_params(which="both", length=0, labelsize=8)
    axes.set_title(title)


def _less(ours: Mapping[str, Any], run: Mapping[str, Any], name: str) -> str:
    """In brackets, where less was asked of it."""
    for key in ("rate", "messages"):
        asked, wanted = run.get(name, {}).get(key), ours.get(name, {}).get(key)
        if asked and wanted and asked < wanted:
            return f"\n({short(asked)} only)"
    return ""


def _time(ms: float, _: int) -> str:
    return f"{ms / 1000:,.3g} s" if ms >= 1000 else f"{ms:,.3g} ms"
