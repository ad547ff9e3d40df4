"""`ls`, `due` and `show` from running relays, by the pages that each has with `--metrics`: what `--at` asks for.

Rule 1: a relay knows of the partitions that it owns. Those that none of the relays asked owns are named as missing.
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
from waterclock.relay.watching.listing import Due, Messages, Overview

_PATIENCE_S = 10.0


def ls(addresses: Sequence[str]) -> Overview:
    """What is pending, and what of it recurs, by the relays at these HOST:PORT."""
    statistics = [_statistics(address) for address in addresses]
    recurring = [_page(address, "series/", dict) for address in addresses]
    counts = Counter[tuple[int, int, str]]()
    for span in (span for one in statistics for span in one["spans"]):
        counts[span["start_ms"], span["end_ms"], span["target"]] += span["pending"]
    series = [one for each in recurring for one in each["series"]]
    return Overview(counts, series, sum(each["more"] for each in recurring), _missing(statistics))


def due(addresses: Sequence[str]) -> Due:
    """What each partition has."""
    statistics = [_statistics(address) for address in addresses]
    partitions = {int(number): each for one in statistics for number, each in one["partitions"].items()}
    return Due(partitions, _missing(statistics))


def show(addresses: Sequence[str], id: str) -> Messages:
    """The messages of an id."""
    path = f"ids/{quote(os.fsencode(id), safe='')}"
    found = [one for address in addresses for one in _page(address, path, list)]
    return Messages(found, _missing([_statistics(address) for address in addresses]))


def _statistics(address: str) -> Any:
    found = _page(address, "statistics.json", dict)
    if not {"partitions_of_topic", "partitions", "spans"} <= found.keys():
        raise WaterclockError(f"What answers at {address} is no relay: ask one (--at).")
    return found


def _page(address: str, path: str, kind: type) -> Any:
    """What stands at that path, which is of that kind."""
    try:
        with urllib.request.urlopen(f"http://{address}/{path}", timeout=_PATIENCE_S) as answer:
            found = json.load(answer)["statistics"]
    except HTTPError as error:
        if error.code == 404:
            raise WaterclockError(
                f"What answers at {address} is no relay of this version: it has no page /{path}."
            ) from None
        said = error.read(1_000).decode("utf-8", "replace").strip().rstrip(".") or str(error.reason)
        raise WaterclockError(f"The relay at {address} does not answer /{path}: {said}.") from None
    except URLError as error:
        raise EnvironmentMissing(
            f"No relay answers at {address} ({error.reason}): start one with --metrics {address.rpartition(':')[2]}, or "
            "say where one is (--at)."
        ) from None
    except (OSError, HTTPException, ValueError, KeyError, TypeError, RecursionError) as error:
        raise WaterclockError(f"What answers at {address} is no relay: {error}.") from None
    if not isinstance(found, kind):
        raise WaterclockError(f"What answers at {address} is no relay: ask one (--at).")
    return found


def _missing(statistics: Sequence[Any]) -> list[int]:
    """The partitions of which nothing is known."""
    known = {int(number) for one in statistics for number in one["partitions"]}
    return sorted(set(range(statistics[0]["partitions_of_topic"])) - known)
