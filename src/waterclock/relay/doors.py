"""What relays tell at their web doors (`--metrics`), asked from elsewhere: `ls`, `due`, `show`.

Rule 1: a relay knows of the partitions that it owns. What nobody asked owns is said to be missing, not left out in silence.
"""

from __future__ import annotations

import json
import sys
import urllib.request
from collections.abc import Iterable, Sequence
from typing import Any
from urllib.error import URLError
from urllib.parse import quote

from waterclock.errors import EnvironmentMissing, WaterclockError
from waterclock.rules.durations import from_us

_PATIENCE_S = 10.0


def ls(doors: Sequence[str]) -> int:
    """Print what is pending."""
    told = [_asked(door, "statistics.json") for door in doors]
    counts: dict[tuple[int, int, str], int] = {}
    for span in (span for one in told for span in one["spans"]):
        key = span["start_ms"], span["end_ms"], span["target"]
        counts[key] = counts.get(key, 0) + span["pending"]
    _print(("DUE FROM", "TO", "TOPIC", "PENDING"), [
        (_moment(start), _moment(end), target, f"{count:,}") for (start, end, target), count in sorted(counts.items())
    ])  # fmt: skip
    return _missing(told)


def due(doors: Sequence[str]) -> int:
    """Print what each partition has."""
    told = [_asked(door, "statistics.json") for door in doors]
    partitions = {int(number): each for one in told for number, each in one["partitions"].items()}
    _print(("PARTITION", "NEXT DUE", "PENDING", ""), [
        (str(number), _moment(each["next_due_ms"]), f"{each['pending']:,}", "" if each["caught_up"] else "is being read")
        for number, each in sorted(partitions.items())
    ])  # fmt: skip
    return _missing(told)


def show(doors: Sequence[str], id: str) -> int:
    """Print the messages of an id; the exit code."""
    found = [one for door in doors for one in _asked(door, f"ids/{quote(id, safe='')}")]
    _print(("REQUEST", "DUE", "TOPIC", "STATE"), [
        (one["origin"], _moment(one["due_ms"]), one["target"], one["state"]) for one in found
    ])  # fmt: skip
    _missing([_asked(door, "statistics.json") for door in doors])
    return 0 if found else 1


def _asked(door: str, path: str) -> Any:
    url = f"http://{door}/{path}"
    try:
        with urllib.request.urlopen(url, timeout=_PATIENCE_S) as answer:
            return json.load(answer)["statistics"]
    except URLError as error:
        raise EnvironmentMissing(
            f"No relay answers at {door} ({error.reason}): start one with --metrics {door.rpartition(':')[2]}, or say "
            "where one is (--at)."
        ) from None
    except (OSError, ValueError) as error:
        raise WaterclockError(f"What answers at {door} is no relay: {error}.") from None


def _missing(told: Iterable[Any]) -> int:
    """Rule 1."""
    told = list(told)
    if any("partitions_of_topic" not in one for one in told):
        raise WaterclockError("What answers is no relay: ask one (--at).")
    known = {int(number) for one in told for number in one["partitions"]}
    missing = sorted(set(range(told[0]["partitions_of_topic"])) - known)
    if missing:
        numbers = ", ".join(map(str, missing))
        print(
            f"waterclock: of the partitions {numbers} nothing is told: another relay owns them (ask it too, --at), or none",
            file=sys.stderr,
        )
    return 0


def _print(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    for row in (head, *rows):
        print("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())


def _moment(ms: int | None) -> str:
    """A due time; `-` where there is none."""
    return "-" if ms is None else from_us(1000 * ms).strftime("%Y-%m-%dT%H:%M:%SZ")
