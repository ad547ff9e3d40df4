"""The broker's table: a block a workload, with how many times as good ours is."""

from __future__ import annotations

from typing import Any

from waterclock.bench.broker.campaign import OURS
from waterclock.bench.tables import aligned, notes

ABOUT = """\
medians over the rounds; (how many times as good waterclock is)
produce, consume: 100 B and 1 kB, batched, acks=all; one-by-one: each waits for the one before; latency: produce to consume
at 1,000 a second; transactions of 1 and of 1,000 messages, ms of a commit; closed-N: N producers with one request each
under way, in raw requests; connections, partitions: together 1,000 requests a second; long polls: all answered 50 times a
second; kill -9: with what was written until then, with all partitions of the growth, and with 10 GB in one"""

FIGURES = {
    "per_s": ("a second", "{:,.0f}", True),
    "mb_per_s": ("MB/s", "{:,.0f}", True),
    "messages_per_s": ("messages/s", "{:,.0f}", True),
    "p50_ms": ("p50 ms", "{:.2f}", False),
    "p99_ms": ("p99 ms", "{:.2f}", False),
    "cpu_s_per_million": ("CPU s a million", "{:.2f}", False),
    "written_gb": ("GB in the log", "{:.1f}", True),
    "ready_s": ("ready after s", "{:.2f}", False),
    "resident_mb": ("resident MB", "{:,.0f}", False),
    "idle_percent": ("% of a core, 10 consumers wait", "{:.1f}", False),
}
"""figure -> (its head, how it is written, whether more is better)"""


def table(found: dict[str, Any]) -> str:
    """A block a workload, a row a contender; in brackets how many times as good ours is."""
    runs = found["runs"]
    blocks = [_block(workload, runs) for workload in runs[OURS]]
    below = notes(found["notes"])
    return "\n\n".join([ABOUT, *blocks, *([below] if below else [])])


def _block(workload: str, runs: dict[str, Any]) -> str:
    by_name = {name: of[workload] for name, of in runs.items() if workload in of}
    shown = [name for name in FIGURES if any(name in figures for figures in by_name.values())]
    rows = [[name, *_cells(figures, by_name[OURS], shown, name == OURS)] for name, figures in by_name.items()]
    failed = [f"{name}: failed: {figures['error']}" for name, figures in by_name.items() if "error" in figures]
    return "\n".join([aligned([workload, *(FIGURES[name][0] for name in shown)], rows), *failed])


def _cells(figures: dict[str, Any], ours: dict[str, Any], shown: list[str], own: bool) -> list[str]:
    cells = []
    for name in shown:
        _, form, more = FIGURES[name]
        ratio = "" if own or name == "written_gb" else _ratio(figures.get(name), ours.get(name), more)
        cells.append(form.format(figures[name]) + ratio if name in figures else "-")
    return cells


def _ratio(theirs: float | None, ours: float | None, more: bool) -> str:
    if not ours or not theirs:
        return ""
    return f" ({ours / theirs if more else theirs / ours:.1f}x)"
