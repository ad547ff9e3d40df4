"""The run in one picture: on the left the events as they came, a cloud; on the right the penalties, a line.

Rule 1: both panels are as high as the same number of days, so that what is scattered and what is not can be compared.
Rule 2: every event of the replay and every penalty of the table is a dot. One that stands elsewhere widens the panel.
Rule 3: the log knows days alone. An event's dot stands somewhere within its day, so that thousands of them can be seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from .charts import DELAY_DAYS, LIMIT, MADE, STYLE, TRUTH, dates, number

WAIT_DAYS = 60
_SPREAD = 0.618034  # of a day, from one event to the next: no two that follow each other lie together


@dataclass(frozen=True, slots=True)
class Scene:
    """What came: (day of the event, days behind, if it is a copy); what was made: (day of the notification, days)."""

    came: Sequence[tuple[date, int, bool]]
    made: Sequence[tuple[date, int]]


def draw(scene: Scene, headline: str, file: Path) -> None:
    """Write a PNG."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(11.5, 4.4), layout="constrained")
        left, right = figure.subplots(1, 2, sharex=True)
        _cloud(left, scene)
        _line(right, scene)
        figure.suptitle(headline, x=0.01, ha="left", fontsize=13, fontweight="bold")
        figure.savefig(file, dpi=130)


def _cloud(axes: Axes, scene: Scene) -> None:
    dots = [(day, behind + place * _SPREAD % 1, copy) for place, (day, behind, copy) in enumerate(scene.came)]
    for copies, color, label in (False, TRUTH, "an event"), (True, LIMIT, "a copy of one"):
        shown = [(day, behind) for day, behind, copy in dots if copy == copies]
        days, behind = zip(*shown, strict=True) if shown else ((), ())
        axes.scatter(days, behind, s=3, color=color, linewidths=0, label=label)
    axes.set_title(f"In: {number(len(dots))} events, as a careless network brings them")
    axes.set_ylabel("days behind the latest event")
    axes.set_ylim(0, max([DELAY_DAYS, *(behind + 1 for _, behind, _ in scene.came)]))
    _finish(axes, "day of the event")
    axes.legend(loc="upper right", markerscale=5, frameon=True, framealpha=0.9, edgecolor="none")


def _line(axes: Axes, scene: Scene) -> None:
    days, waits = zip(*scene.made, strict=True) if scene.made else ((), ())
    colors = [MADE if wait == WAIT_DAYS else LIMIT for wait in waits]
    axes.scatter(days, waits, s=9, c=colors, linewidths=0)
    axes.set_title(f"Out: {number(len(scene.made))} penalties, each on its day")
    axes.set_ylabel("days after the notification")
    half = DELAY_DAYS / 2
    axes.set_ylim(min([WAIT_DAYS - half, *(w - 1 for w in waits)]), max([WAIT_DAYS + half, *(w + 1 for w in waits)]))
    _finish(axes, "day of the notification")


def _finish(axes: Axes, label: str) -> None:
    axes.set_xlabel(label)
    axes.yaxis.set_major_locator(MaxNLocator(8, integer=True))
    dates(axes.xaxis, 8)
