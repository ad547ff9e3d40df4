"""The figures of messages for later as text: a block a question, keepers down, with how many times as good ours is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from waterclock.bench.tables import aligned, notes, short

ABOUT: Final = """\
(how many times as good the first row is); messages of 200 bytes, each with an id; pending ones are due within a week
Apache Kafka is as it comes, and acknowledges what is in the page cache; waterclock's broker, what is on the disk
put: until acknowledged; filed: until the relay knows what the log holds; files: what the keeper has on the disk for each
pending message, log: what the broker's log has besides; crash: kill -9 of whoever keeps, started again at once, until all
partitions deliver again; take-over: a relay killed that stays away, until another one delivers in all of its partitions,
the group's timeout of 6 s included: cold, it has to read the log from the start; warm, it had the partitions before"""
Form = Callable[[Any], str]
Column = tuple[str, str, Form, bool | None]  # head, figure, how it is written, whether more is better (None: no ratio)


def _number(value: float) -> str:
    return f"{value:,.0f}"


def _ms(value: float) -> str:
    return f"{value:,.1f}" if value < 100 else f"{value:,.0f}"


def _percent(value: float) -> str:
    return f"{value:.1%}"


KEPT: Final[list[Column]] = [
    ("put, a second", "put_per_s", _number, True),
    ("filed, a second", "filed_per_s", _number, None),
    ("resident MB then", "resident_mb", _number, None),
    ("bytes each", "resident_bytes", _number, None),
    ("files, bytes each", "disk_files_bytes", _number, None),
    ("log, bytes each", "disk_log_bytes", _number, None),
]
LATE: Final[list[Column]] = [
    ("a second", "rate", _number, None),
    ("late p50, ms", "p50_ms", _ms, None),
    ("p99", "p99_ms", _ms, False),
    ("max", "max_ms", _ms, None),
]
BURST: Final[list[Column]] = [
    ("messages", "messages", _number, None),
    ("all after, ms", "all_ms", _ms, None),
    ("a second", "per_s", _number, True),
]
CANCEL: Final[list[Column]] = [("messages", "messages", _number, None), ("a second", "per_s", _number, True)]
IDLE: Final[list[Column]] = [
    ("relay", "relay", _percent, None),
    ("server", "server", _percent, None),
    ("broker", "broker", _percent, None),
    ("who waits", "taker", _percent, None),
    ("resident MB", "resident_mb", _number, None),
]
CRASH: Final[list[Column]] = [("delivers again after, ms", "again_ms", _number, None)]
TAKE_OVER: Final[list[Column]] = [("cold, ms", "cold_ms", _number, None), ("warm, ms", "warm_ms", _number, None)]
BLOCKS: Final = {
    "kept": ("kept", KEPT),
    "late": ("due", LATE),
    "burst": ("due at one instant", BURST),
    "cancel": ("cancel", CANCEL),
    "idle": ("idle, of a core", IDLE),
    "crash": ("crash", CRASH),
    "take-over": ("take-over", TAKE_OVER),
}


def table(found: Mapping[str, Any]) -> str:
    """All of it; the store alone where nothing else was measured."""
    parts = []
    if found.get("runs"):
        load = f"load {found['load']:.1f} at the start, {found['load_after']:.1f} at the end"
        servers = ", ".join(dict.fromkeys(run["version"] for run in found["runs"] if run.get("version")))
        parts = [f"{load}\n{servers}".rstrip(), ABOUT, *(_block(found["runs"], kind) for kind in BLOCKS)]
    parts += [_store(found["store"])] if "store" in found else []
    return "\n\n".join([*parts, *([notes(found["notes"])] if found.get("notes") else [])])


def _block(runs: Sequence[Mapping[str, Any]], kind: str) -> str:
    head, columns = BLOCKS[kind]
    rows, failed, first = list[list[str]](), dict[str, str](), dict[tuple[str, int], Mapping[str, Any]]()
    parts = dict.fromkeys(name for run in runs for name in run if name.split(" ")[0] == kind)
    for name in parts:
        for run in (run for run in runs if name in run):
            part = run[name]
            if why := part.get("error") or part.get("left_out"):
                failed[f"{run['keeper']}, {name}"] = f"{'failed' if 'error' in part else 'not measured'}: {why}"
                continue
            ours = first.setdefault((name, run["pending"]), part)
            rows.append([run["keeper"], short(_pending(run)), *(_cell(part, ours, column) for column in columns)])
    shown = [place for place, _ in enumerate(columns, 2) if any(row[place] != "-" for row in rows)]
    heads = [head, "pending", *(column[0] for column in columns)]
    lines = aligned(
        [heads[place] for place in (0, 1, *shown)], [[row[place] for place in (0, 1, *shown)] for row in rows]
    )
    return "\n".join([lines, *([notes(failed)] if failed else [])])


def _pending(run: Mapping[str, Any]) -> int:
    """As many as it was given to keep: of some less is asked."""
    return int(run["kept"].get("messages", run["pending"]))


def _cell(part: Mapping[str, Any], ours: Mapping[str, Any], column: Column) -> str:
    _, figure, form, more = column
    if part.get(figure) is None:
        return "-"
    if part is ours or more is None or not part[figure] or not ours.get(figure):
        return form(part[figure])
    times = ours[figure] / part[figure] if more else part[figure] / ours[figure]
    return f"{form(part[figure])} ({f'{times:.1f}' if times >= 0.1 else f'{times:.2g}'}x)"


def _store(found: Mapping[str, Mapping[str, float]]) -> str:
    """The relay's files alone, without Kafka."""
    blocks = []
    for what, figures in found.items():
        rows = [
            [name.replace("_", " "), f"{figure:,.1f}" if figure >= 10 else f"{figure:.3g}"]
            for name, figure in figures.items()
        ]
        blocks.append(aligned([f"the store alone, {what}", ""], rows))
    return "\n\n".join(blocks)
