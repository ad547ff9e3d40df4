"""What relays tell at their web doors (`--metrics`), asked from elsewhere: `ls`, `due`, `show`.

Rule 1: a relay knows of the partitions that it owns. What nobody asked owns is said to be missing, not left out in silence.
"""

from __future__ import annotations

import json
import os
import sys
import urllib.request
from collections.abc import Mapping, Sequence
from http.client import HTTPException
from operator import itemgetter
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote

from waterclock.errors import EnvironmentMissing, WaterclockError
from waterclock.rules.durations import from_us

_PATIENCE_S = 10.0
_SPAN = ("start_ms", "end_ms", "target", "pending")


def ls(doors: Sequence[str], as_json: bool = False) -> int:
    """Print what is pending, and what of it recurs."""
    told = [_statistics(door) for door in doors]
    recurring = [_asked(door, "series/", dict) for door in doors]
    counts: dict[tuple[int, int, str], int] = {}
    for span in (span for one in told for span in one["spans"]):
        key = span["start_ms"], span["end_ms"], span["target"]
        counts[key] = counts.get(key, 0) + span["pending"]
    spans: list[dict[str, Any]] = [dict(zip(_SPAN, (*key, n), strict=True)) for key, n in sorted(counts.items())]
    series = sorted((one for each in recurring for one in each["series"]), key=itemgetter("next_due_ms", "origin"))
    more = sum(each["more"] for each in recurring)
    if as_json:
        _print_json({"pending": spans, "series": series, "more_series": more, "missing": _missing(told)})
        return 0
    _print(("DUE FROM", "TO", "TOPIC", "PENDING"), [
        (_moment(one["start_ms"]), _moment(one["end_ms"]), one["target"], f"{one['pending']:,}") for one in spans
    ])  # fmt: skip
    _print_series(series, more)
    _warn(_missing(told))
    return 0


def _print_series(series: Sequence[Any], more: int) -> None:
    if not series:
        return
    print()
    _print(("SERIES", "CRON", "ZONE", "NEXT", "TOPIC", "OCCURRENCE"), [
        (one["id"], one["cron"], one["zone"], _moment(one["next_due_ms"]), one["target"], f"{one['occurrence']:,}")
        for one in series
    ])  # fmt: skip
    if more:
        print(f"and {more:,} series more, which occur later")


def due(doors: Sequence[str], as_json: bool = False) -> int:
    """Print what each partition has."""
    told = [_statistics(door) for door in doors]
    partitions = {int(number): each for one in told for number, each in one["partitions"].items()}
    if as_json:
        named = [{"partition": number, **each} for number, each in sorted(partitions.items())]
        _print_json({"partitions": named, "missing": _missing(told)})
        return 0
    _print(("PARTITION", "NEXT DUE", "PENDING", ""), [
        (str(number), _moment(each["next_due_ms"]), f"{each['pending']:,}", _reading(each))
        for number, each in sorted(partitions.items())
    ])  # fmt: skip
    _warn(_missing(told))
    return 0


def _reading(partition: Any) -> str:
    if partition["caught_up"]:
        return ""
    return f"is being read: at offset {partition['position']:,} of {partition['reads_to']:,}"


def show(doors: Sequence[str], id: str, as_json: bool = False) -> int:
    """Print the messages of an id; the exit code."""
    found = [one for door in doors for one in _asked(door, f"ids/{quote(os.fsencode(id), safe='')}", list)]
    missing = _missing([_statistics(door) for door in doors])
    if as_json:
        _print_json({"messages": found, "missing": missing})
        return 0 if found else 1
    columns = 6 if any(one.get("cron") for one in found) else 4
    rows = [
        (
            one["origin"],
            _moment(one["due_ms"]),
            one["target"],
            one["state"],
            one.get("cron") or "",
            one.get("zone") or "",
        )
        for one in found
    ]
    _print(("REQUEST", "DUE", "TOPIC", "STATE", "CRON", "ZONE")[:columns], [row[:columns] for row in rows])
    _warn(missing)
    return 0 if found else 1


def _statistics(door: str) -> Any:
    told = _asked(door, "statistics.json", dict)
    if not {"partitions_of_topic", "partitions", "spans"} <= told.keys():
        raise WaterclockError(f"What answers at {door} is no relay: ask one (--at).")
    return told


def _asked(door: str, path: str, kind: type) -> Any:
    """What stands at that path, which is of that kind."""
    url = f"http://{door}/{path}"
    try:
        with urllib.request.urlopen(url, timeout=_PATIENCE_S) as answer:
            told = json.load(answer)["statistics"]
    except HTTPError as error:
        if error.code == 404:
            raise WaterclockError(
                f"What answers at {door} is no relay of this version: it has no page /{path}."
            ) from None
        raise WaterclockError(f"The relay at {door} does not tell /{path}: {_said(error)}.") from None
    except URLError as error:
        raise EnvironmentMissing(
            f"No relay answers at {door} ({error.reason}): start one with --metrics {door.rpartition(':')[2]}, or say "
            "where one is (--at)."
        ) from None
    except (OSError, HTTPException, ValueError, KeyError, TypeError, RecursionError) as error:
        raise WaterclockError(f"What answers at {door} is no relay: {error}.") from None
    if not isinstance(told, kind):
        raise WaterclockError(f"What answers at {door} is no relay: ask one (--at).")
    return told


def _said(error: HTTPError) -> str:
    return error.read(1_000).decode("utf-8", "replace").strip().rstrip(".") or str(error.reason)


def _missing(told: Sequence[Any]) -> list[int]:
    """The partitions of which nothing is told."""
    known = {int(number) for one in told for number in one["partitions"]}
    return sorted(set(range(told[0]["partitions_of_topic"])) - known)


def _warn(missing: Sequence[int]) -> None:
    """Rule 1."""
    if missing:
        numbers = ", ".join(map(str, missing))
        print(
            f"waterclock: of the partitions {numbers} nothing is told: another relay owns them (ask it too, --at), or none",
            file=sys.stderr,
        )


def _print_json(told: Mapping[str, Any]) -> None:
    print(json.dumps(told))


def _print(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    for row in (head, *rows):
        print("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())


def _moment(ms: int | None) -> str:
    """A due time; `-` where there is none."""
    return "-" if ms is None else from_us(1000 * ms).strftime("%Y-%m-%dT%H:%M:%SZ")
