"""The broker's picture: what the request path carries as producers come, and what connections cost a produce.

Rule 1: drawn from a record alone, as plots.py does, and in its colours: ours dark and thick, Kafka's grey.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure

COLORS: Final = {"waterclock": "#0b3c5d", "Apache Kafka, fsync": "#d55e00", "Apache Kafka, memory": "#555555"}
Points = Sequence[tuple[int, float]]


def figure(figures: Mapping[str, Any]) -> Figure:
    """Two panels: requests a second by producers in a closed loop; p99 of a produce by connections."""
    drawn = Figure(figsize=(9.5, 4.4))
    left, right = drawn.subplots(1, 2)
    for name, of in figures["runs"].items():
        _line(left, name, _points(of, "closed-", "per_s"))
        _line(right, name, _points(of, "connections: ", "p99_ms"))
    _axes(left, "requests a second, acks=all", "producers, one request each under way")
    _axes(right, "p99 of a produce, ms; 1,000 a second", "connections")
    drawn.subplots_adjust(left=0.07, right=0.86, top=0.9, bottom=0.17, wspace=0.5)
    return drawn


def _points(of: Mapping[str, Any], kind: str, figure: str) -> Points:
    """(number, figure) of all workloads that are `kind` and a number."""
    numbers = {name: name.removeprefix(kind).replace(",", "") for name in of if name.startswith(kind)}
    return sorted(
        (int(number), of[name][figure]) for name, number in numbers.items() if _there(number, of[name], figure)
    )


def _there(number: str, figures: Mapping[str, Any], figure: str) -> bool:
    return number.isdigit() and figure in figures


def _line(axes: Axes, name: str, points: Points) -> None:
    if not points:
        return
    color, width = COLORS.get(name, "#777777"), 2.4 if name == "waterclock" else 1.4
    axes.plot(*zip(*points, strict=True), color=color, lw=width, marker="o", ms=4)
    axes.annotate(name, points[-1], (8, 0), textcoords="offset points", color=color, fontsize=8.5, va="center")


def _axes(axes: Axes, title: str, across: str) -> None:
    axes.set_title(title)
    axes.set_xlabel(across)
    axes.set_xscale("log")
    axes.set_ylim(bottom=0)
    axes.tick_params(which="both", length=0)
