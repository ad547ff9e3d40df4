"""What `ls`, `due` and `show` print, whoever told it: relays at their web doors (doors.py), or the logs (beside.py); and
`files`, of a folder (store/salvage.py).

Rule 1: the partitions of which nothing is told are named, not left out in silence.
"""

from __future__ import annotations

import json
import sys
from base64 import b64encode
from collections.abc import Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

from waterclock.durations import from_us
from waterclock.relay.store.salvage import Leftover, Salvage

_SPAN = ("start_ms", "end_ms", "target", "pending")
_Spans = Mapping[tuple[int, int, str], int]  # from, to, topic -> how many


class Overview(NamedTuple):
    """What is pending by span and topic, what recurs, how much more does, and the partitions of which nothing is told."""

    counts: _Spans
    series: Sequence[Any]
    more: int
    missing: Sequence[int]


class Due(NamedTuple):
    """What each partition has: `pending`, `next_due_ms`, whether it has `caught_up`, and more."""

    partitions: Mapping[int, Any]
    missing: Sequence[int]


class Messages(NamedTuple):
    """The messages of an id, each as `MessageStatistics` has it."""

    messages: Sequence[Any]
    missing: Sequence[int]


def print_listed(told: Overview, as_json: bool) -> int:
    """Print what is pending, and what of it recurs; the exit code."""
    spans: list[dict[str, Any]] = [dict(zip(_SPAN, (*key, n), strict=True)) for key, n in sorted(told.counts.items())]
    series = sorted(told.series, key=itemgetter("next_due_ms", "origin"))
    if as_json:
        _print_json({"pending": spans, "series": series, "more_series": told.more, "missing": told.missing})
        return 0
    _print(("DUE FROM", "TO", "TOPIC", "PENDING"), [
        (moment(one["start_ms"]), moment(one["end_ms"]), one["target"], f"{one['pending']:,}") for one in spans
    ])  # fmt: skip
    _print_series(series, told.more)
    _warn(told.missing)
    return 0


def _print_series(series: Sequence[Any], more: int) -> None:
    if not series:
        return
    print()
    _print(("SERIES", "CRON", "ZONE", "NEXT", "TOPIC", "OCCURRENCE"), [
        (one["id"], one["cron"], one["zone"], moment(one["next_due_ms"]), one["target"], f"{one['occurrence']:,}")
        for one in series
    ])  # fmt: skip
    if more:
        print(f"and {more:,} series more, which occur later")


def print_due(told: Due, as_json: bool) -> int:
    """Print what each partition has; the exit code."""
    if as_json:
        named = [{"partition": number, **each} for number, each in sorted(told.partitions.items())]
        _print_json({"partitions": named, "missing": told.missing})
        return 0
    _print(("PARTITION", "NEXT DUE", "PENDING", ""), [
        (str(number), moment(each["next_due_ms"]), f"{each['pending']:,}", _reading(each))
        for number, each in sorted(told.partitions.items())
    ])  # fmt: skip
    _warn(told.missing)
    return 0


def _reading(partition: Any) -> str:
    if partition["caught_up"]:
        return ""
    return f"is being read: at offset {partition['position']:,} of {partition['reads_to']:,}"


def print_shown(told: Messages, as_json: bool) -> int:
    """Print the messages of an id; the exit code: 1 for none."""
    found = told.messages
    if as_json:
        _print_json({"messages": found, "missing": told.missing})
        return 0 if found else 1
    columns = 6 if any(one.get("cron") for one in found) else 4
    rows = [
        (
            one["origin"],
            moment(one["due_ms"]),
            one["target"],
            one["state"],
            one.get("cron") or "",
            one.get("zone") or "",
        )
        for one in found
    ]
    _print(("REQUEST", "DUE", "TOPIC", "STATE", "CRON", "ZONE")[:columns], [row[:columns] for row in rows])
    _warn(told.missing)
    return 0 if found else 1


def print_files(folder: str, as_json: bool) -> int:
    """Print the messages of a folder, a line each; the exit code: 1 where some cannot be read."""
    salvage, count = Salvage(Path(folder)), 0
    for saved in salvage.messages():
        count += 1
        print(_json_file(saved) if as_json else _file(saved))
    print(
        f"waterclock: {count:,} messages{'' if salvage.is_known else ', delivered ones among them'}"
        + (f"; {salvage.damaged:,} are damaged, and are not printed" if salvage.damaged else ""),
        file=sys.stderr,
    )
    return 1 if salvage.damaged else 0


def _file(saved: Leftover) -> str:
    payload = saved.payload
    parts = [moment(saved.due_ms), saved.topic or "?"]
    parts += [part.decode("utf-8", "backslashreplace") for part in (payload.key, payload.value) if part is not None]
    return "  ".join([*parts, f"({saved.origin})"])


def _json_file(saved: Leftover) -> str:
    payload = saved.payload
    told = {"origin": saved.origin, "due_ms": saved.due_ms, "topic": saved.topic, "id": payload.id.decode() or None}
    texts = {**json_text("key", payload.key), **json_text("value", payload.value)}
    headers = [{"name": name, **json_text("value", value)} for name, value in payload.headers]
    return json.dumps({**told, **texts, "headers": headers})


def json_text(name: str, part: bytes | None) -> dict[str, str | None]:
    """Bytes for programs; what is no UTF-8 is told as base64, under another name.

    >>> json_text("key", b"ann"), json_text("key", bytes([255]))
    ({'key': 'ann'}, {'key_base64': '/w=='})
    """
    try:
        return {name: None if part is None else part.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": b64encode(part or b"").decode()}


def _warn(missing: Sequence[int]) -> None:
    """Rule 1."""
    if missing:
        numbers = ", ".join(map(str, missing))
        print(
            f"waterclock: of the partitions {numbers} nothing is told: another relay owns them (ask it too, --at; or leave "
            "--at out), or none",
            file=sys.stderr,
        )


def _print_json(told: Mapping[str, Any]) -> None:
    print(json.dumps(told))


def _print(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    for row in (head, *rows):
        print("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())


def moment(ms: int | None) -> str:
    """A due time; `-` where there is none."""
    return "-" if ms is None else from_us(1000 * ms).strftime("%Y-%m-%dT%H:%M:%SZ")
