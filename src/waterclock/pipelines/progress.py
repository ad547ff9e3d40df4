"""What a person sees of a pipeline: a bar while it works, a table at the end. On stderr, so that stdout stays data."""

from __future__ import annotations

from dataclasses import asdict
from types import TracebackType
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table

from waterclock.durations import from_us
from waterclock.wording import counted

if TYPE_CHECKING:
    from waterclock.streaming.statistics import Progress as Told
    from waterclock.streaming.statistics import Summary

_SHOWN = (
    ("events", "events taken"),
    ("released", "released in order"),
    ("reordered", "came out of order"),
    ("duplicates", "duplicates removed"),
    ("late", "late, put aside"),
    ("dead_letters", "dead letters"),
    ("held", "still held"),
    ("pending", "deadlines pending"),
)
_OF_CHANGES = (
    ("events", "changes read"),
    ("applied", "of tables that are asked for"),
    ("tombstones", "tombstones, which say nothing"),
    ("dead_letters", "dead letters"),
)
_CLOSING_YEAR = 9999


class Bar:
    """A progress bar for one pipeline; `quiet` shows nothing."""

    def __init__(self, name: str, quiet: bool = False, note: str = "starting") -> None:
        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[unit]}"),
            TimeElapsedColumn(),
            TextColumn("{task.fields[note]}"),
        )
        self._progress = Progress(*columns, console=Console(stderr=True), disable=quiet)
        self._task = self._progress.add_task(name, total=None, unit="", note=note)

    def __enter__(self) -> Bar:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and self._progress.tasks[self._task].total is None:  # no batch was told of
            self._progress.update(self._task, completed=0, total=0, note="nothing new to read")
        self._progress.stop()

    def report(self, reported: Told) -> None:
        """Show one batch's progress."""
        totals, mark = reported.totals, reported.watermark_us
        moment = None if mark is None else from_us(mark)
        until = "the start" if moment is None else f"{moment:%Y-%m-%d %H:%M}"
        if moment is not None and moment.year >= _CLOSING_YEAR - 1:
            until = "the end"
        note = f"{counted(totals.get('events', 0), 'event')}, {totals.get('held', 0):,} held, up to {until}"
        if "applied" in totals:
            note = f"{counted(totals['applied'], 'change')} applied"
        self._progress.update(self._task, completed=reported.done, total=reported.found, unit=reported.unit, note=note)


def summary_table(summary: Summary) -> None:
    """Print the end of a run for people, on stderr."""
    table = Table(title=f"{summary.pipeline}: done", title_justify="left", show_header=False)
    for name, words in _OF_CHANGES if "applied" in summary.totals else _SHOWN:
        table.add_row(words, f"{summary.totals.get(name, 0):,}")
    did = f"{counted(summary.events, 'event')} in {counted(summary.batches, 'batch')}, {summary.seconds:.1f} s"
    table.add_row("this run", did)
    if summary.events_per_second >= 1:  # of a few events it would be the speed of Spark's start
        table.add_row("speed", f"{summary.events_per_second:,.0f} events/s, start-up included")
    table.add_row("results", summary.sink)
    Console(stderr=True).print(table)


def summary_record(summary: Summary) -> dict[str, Any]:
    """The end of a run for programs."""
    return {**asdict(summary), "events_per_second": round(summary.events_per_second)}
