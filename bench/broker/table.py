"""The broker's table: a row each workload and contender, with how many times as good ours is."""

from __future__ import annotations

from typing import Any

from waterclock.bench.broker.campaign import OURS
from waterclock.bench.tables import aligned

FIGURES = {
    "per_s": ("{:,.0f}/s", True),
    "mb_per_s": ("{:,.0f} MB/s", True),
    "messages_per_s": ("{:,.0f} messages/s", True),
    "p50_ms": ("p50 {:.2f} ms", False),
    "p99_ms": ("p99 {:.2f} ms", False),
    "cpu_s_per_million": ("CPU {:.2f} s a million", False),
    "ready_s": ("ready in {:.2f} s", False),
    "ready_after_kill_s": ("ready after kill -9 in {:.2f} s", False),
    "resident_mb": ("{:,.0f} MB resident", False),
    "idle_percent": ("idle {:.1f} % of a core", False),
}
"""figure -> (how it is written, whether more is better)"""


def table(found: dict[str, Any]) -> str:
    """All figures; in brackets how many times as good ours is."""
    rows = [
        [f"{workload}: {name}", *_cells(by_workload.get(workload, {}), found[OURS].get(workload, {}), name == OURS)]
        for workload in found[OURS]
        for name, by_workload in found.items()
    ]
    width = max(len(row) for row in rows)
    return aligned(["workload: broker", *[""] * (width - 1)], [row + [""] * (width - len(row)) for row in rows])


def _cells(figures: dict[str, Any], ours: dict[str, Any], own: bool) -> list[str]:
    if "error" in figures:
        return [f"failed: {figures['error']}"]
    cells = []
    for name, (form, more) in FIGURES.items():
        if name in figures:
            cells.append(form.format(figures[name]) + ("" if own else _ratio(figures[name], ours.get(name), more)))
    return cells


def _ratio(theirs: float, ours: float | None, more: bool) -> str:
    if not ours or not theirs:
        return ""
    return f" ({ours / theirs if more else theirs / ours:.1f}x)"
