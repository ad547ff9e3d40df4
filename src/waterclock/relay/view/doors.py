"""What relays tell at their web doors (`--metrics`), asked from elsewhere: `ls`, `due`, `show` with `--at`.

Rule 1: a relay knows of the partitions that it owns. What nobody asked owns is said to be missing, not left out in silence.
"""

from __future__ import annotations

import json
import os
import urllib.request
from collections import Counter
from collections.abc import Sequence
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote

from waterclock.errors import EnvironmentMissing, WaterclockError
from waterclock.relay.view.looking import Due, Messages, Overview

_PATIENCE_S = 10.0


def ls(doors: Sequence[str]) -> Overview:
    """What is pending, and what of it recurs."""
    told = [_statistics(door) for door in doors]
    recurring = [_asked(door, "series/", dict) for door in doors]
    counts = Counter[tuple[int, int, str]]()
    for span in (span for one in told for span in one["spans"]):
        counts[span["start_ms"], span["end_ms"], span["target"]] += span["pending"]
    series = [one for each in recurring for one in each["series"]]
    return Overview(counts, series, sum(each["more"] for each in recurring), _missing(told))


def due(doors: Sequence[str]) -> Due:
    """What each partition has."""
    told = [_statistics(door) for door in doors]
    return Due({int(number): each for one in told for number, each in one["partitions"].items()}, _missing(told))


def show(doors: Sequence[str], id: str) -> Messages:
    """The messages of an id."""
    found = [one for door in doors for one in _asked(door, f"ids/{quote(os.fsencode(id), safe='')}", list)]
    return Messages(found, _missing([_statistics(door) for door in doors]))


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
