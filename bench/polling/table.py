"""The figures of a polled table as text: lateness beside what idling costs, bursts, commits, an open transaction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from waterclock.bench.tables import Rows, aligned, short

ABOUT = """\
{rate} tasks a second, each due a millisecond after it is sent, beside so many that are due in {days} days
late: from due until a worker has it, its commit and that of whoever added it included; lost: rows that another one took
idle: while nothing is due; questions (a Timer's: wake-ups), and shares of a core of the workers and of the server"""
BURSTS = """\
so many due at one moment, beside others that wait; a second: until the last one is had, the median of rounds: {rounds}
(times one worker); lost: rows that a worker saw and another one took, for each that was had; of 1: a commit a task"""
COMMITS = "nothing but commits of one row, by connections at a time: as often as this database commits at all"
OPEN = """\
a poll that finds nothing, one worker, SKIP LOCKED: {before:,.0f} us; after {tasks:,} tasks were done beside a transaction
that somebody left open: {beside:,.0f} us; when that one has ended, and another one has committed: {after:,.0f} us"""


def table(figures: Mapping[str, Any]) -> str:
    """All of it; the machine's load and the server's settings stand at its head: figures mean little without them."""
    load = f"load {figures['load']:.1f} at the start, {figures['load_after']:.1f} at the end"
    load += "\nPostgreSQL: " + ", ".join(f"{name} {value}" for name, value in figures["server"].items())
    cells, bursts = _cells(figures["cells"]), _bursts(figures["bursts"])
    parts = [load, cells, f"{bursts}\n{BURSTS.format(**figures)}", _commits(figures["commits"])]
    return "\n\n".join([*parts, *([_open(figures["open"])] if "open" in figures else [])])


def _cells(records: Rows) -> str:
    from waterclock.bench.polling.tasks import A_SECOND, FAR_DAYS

    head = ["polled", "every", "workers", "pending", "late p50, ms", "p99", "max", "lost"]
    head += ["idle: a second", "p50, us", "workers' CPU", "server's"]
    rows = [
        [
            r["who"],
            every(r),
            str(r["workers"]),
            short(r["pending"]),
            *(f"{r[name]:,.1f}" for name in ("p50_ms", "p99_ms", "max_ms")),
            f"{r['lost']:,}",
            f"{r['queries_a_second']:,.0f}",
            f"{r['empty_us']:,.0f}" if r["interval_ms"] else "-",
            *(f"{r[name]:.1%}" for name in ("workers_cpu", "server_cpu")),
        ]
        for r in records
    ]
    return f"{aligned(head, rows)}\n{ABOUT.format(rate=A_SECOND, days=FAR_DAYS)}"


def every(record: Mapping[str, Any]) -> str:
    """How often it looks.

    >>> [every({"interval_ms": ms}) for ms in (1, 100, 1000, None)]
    ['1 ms', '100 ms', '1 s', '-']
    """
    ms = record["interval_ms"]
    if ms is None:
        return "-"
    return f"{ms} ms" if ms < 1000 else f"{ms / 1000:g} s"


def _bursts(records: Rows) -> str:
    head = ["a burst", "batches of", "pending", "workers", "tasks", "a second", "", "all after, ms", "lost"]
    alone: dict[tuple[Any, ...], float] = {}
    rows = []
    for r in records:
        of = alone.setdefault((r["who"], r["batch"], r["pending"]), r["a_second"])
        times = "" if r["workers"] == 1 else f"({r['a_second'] / of:.1f}x)"
        who = [r["who"], str(r["batch"] or "-"), short(r["pending"]), str(r["workers"]), f"{r['tasks']:,}"]
        rows.append([*who, f"{r['a_second']:,.0f}", times, f"{r['all_ms']:,.0f}", f"{r['lost'] / r['tasks']:.2f}"])
    return aligned(head, rows)


def _commits(records: Rows) -> str:
    rows = [[str(r["connections"]), f"{r['a_second']:,.0f}", f"{r['p50_ms']:.2f}"] for r in records]
    return f"{aligned(['bare commits, connections', 'a second', 'p50, ms'], rows)}\n{COMMITS}"


def _open(record: Mapping[str, Any]) -> str:
    empty_us = {name: record[name]["empty_us"] for name in ("before", "beside", "after")}
    return OPEN.format(tasks=record["tasks"], **empty_us)
