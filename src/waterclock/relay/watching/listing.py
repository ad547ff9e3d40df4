"""What `ls`, `due` and `show` print: what both logs say (view.py), or, with `--at`, what running relays say on the pages
that each has with `--metrics`; and what `files` prints, of a folder (store/folder.py).

Rule 1: a relay knows of the partitions that it owns. The partitions of which nothing is known are named, not left out in
        silence.
"""

from __future__ import annotations

import json
import sys
import urllib.request
from base64 import b64encode
from collections import Counter
from collections.abc import Mapping, Sequence
from http.client import HTTPException
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple
from urllib.error import HTTPError, URLError
from urllib.parse import quote

from waterclock.durations import from_us
from waterclock.errors import EnvironmentMissing, WaterclockError, unstopped
from waterclock.outside import os
from waterclock.relay.store.folder import Leftover, Salvage
from waterclock.wording import counted

_SPAN = ("start_ms", "end_ms", "target", "pending")


class Overview(NamedTuple):
    """What is pending by span and topic, what recurs, how much more does, and the partitions of which nothing is known."""

    counts: Mapping[tuple[int, int, str], int]  # from and to (ms since the epoch), topic -> how many
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


def print_listed(listed: Overview, as_json: bool) -> int:
    """Print what is pending, and what of it recurs; the exit code."""
    spans: list[dict[str, Any]] = [dict(zip(_SPAN, (*key, n), strict=True)) for key, n in sorted(listed.counts.items())]
    series = sorted(listed.series, key=itemgetter("next_due_ms", "origin"))
    if as_json:
        print(json.dumps(
            {"pending": spans, "series": series, "more_series": listed.more, "missing": listed.missing}
        ))  # fmt: skip
        return 0
    _print(("DUE FROM", "TO", "TOPIC", "PENDING"), [
        (moment(one["start_ms"]), moment(one["end_ms"]), one["target"], f"{one['pending']:,}") for one in spans
    ])  # fmt: skip
    if series:
        print()
        _print(("SERIES", "CRON", "ZONE", "NEXT", "TOPIC", "OCCURRENCE"), [
            (one["id"], one["cron"], one["zone"], moment(one["next_due_ms"]), one["target"], f"{one['occurrence']:,}")
            for one in series
        ])  # fmt: skip
        if listed.more:
            print(f"and {listed.more:,} series more, which occur later")
    _warn(listed.missing)
    return 0


def print_due(due: Due, as_json: bool) -> int:
    """Print what each partition has; the exit code."""
    if as_json:
        named = [{"partition": number, **each} for number, each in sorted(due.partitions.items())]
        print(json.dumps({"partitions": named, "missing": due.missing}))
        return 0
    rows = []
    for number, each in sorted(due.partitions.items()):
        reading = (
            f"is being read: at offset {each['position']:,} of {each['reads_to']:,}" if not each["caught_up"] else ""
        )
        rows.append((str(number), moment(each["next_due_ms"]), f"{each['pending']:,}", reading))
    _print(("PARTITION", "NEXT DUE", "PENDING", ""), rows)
    _warn(due.missing)
    return 0


def print_shown(shown: Messages, as_json: bool) -> int:
    """Print the messages of an id; the exit code: 1 for none."""
    found = shown.messages
    if as_json:
        print(json.dumps({"messages": found, "missing": shown.missing}))
    else:
        columns = 6 if any(one.get("cron") for one in found) else 4
        rows = []
        for one in found:
            cron, zone = one.get("cron") or "", one.get("zone") or ""
            rows.append((one["origin"], moment(one["due_ms"]), one["target"], one["state"], cron, zone)[:columns])
        _print(("REQUEST", "DUE", "TOPIC", "STATE", "CRON", "ZONE")[:columns], rows)
        _warn(shown.missing)
    return 0 if found else 1


def print_files(folder: str, as_json: bool) -> int:
    """Print the messages of a folder, a line each; the exit code: 1 if some cannot be read."""
    salvage, count = Salvage(Path(folder)), 0
    for saved in salvage.messages():
        count += 1
        print(_json_file(saved) if as_json else _file(saved))
    print(
        f"waterclock: {counted(count, 'message')}{'' if salvage.is_known else ', delivered ones among them'}"
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
    named = {"origin": saved.origin, "due_ms": saved.due_ms, "topic": saved.topic, "id": payload.id.decode() or None}
    texts = {**json_text("key", payload.key), **json_text("value", payload.value)}
    headers = [{"name": name, **json_text("value", value)} for name, value in payload.headers]
    return json.dumps({**named, **texts, "headers": headers})


def json_text(name: str, part: bytes | None) -> dict[str, str | None]:
    """Bytes for programs; what is no UTF-8 comes as base64, under another name.

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
            f"waterclock: nothing is known of the partitions {numbers}: another relay owns them (ask it too, --at; or "
            "leave --at out), or none",
            file=sys.stderr,
        )


def _print(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    for row in (head, *rows):
        print("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())


def moment(ms: int | None) -> str:
    """A due time; `-` if there is none."""
    return "-" if ms is None else from_us(1000 * ms).strftime("%Y-%m-%dT%H:%M:%SZ")


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
        said = unstopped(error.read(1_000).decode("utf-8", "replace")) or unstopped(error.reason)
        raise WaterclockError(f"The relay at {address} does not answer /{path}: {said}.") from None
    except URLError as error:
        raise EnvironmentMissing(
            f"No relay answers at {address} ({error.reason}): start one with --metrics {address.rpartition(':')[2]}, or "
            "say where one is (--at)."
        ) from None
    except (OSError, HTTPException, ValueError, KeyError, TypeError, RecursionError) as error:
        raise WaterclockError(f"What answers at {address} is no relay: {unstopped(error)}.") from None
    if not isinstance(found, kind):
        raise WaterclockError(f"What answers at {address} is no relay: ask one (--at).")
    return found


def _missing(statistics: Sequence[Any]) -> list[int]:
    """The partitions of which nothing is known."""
    known = {int(number) for one in statistics for number in one["partitions"]}
    return sorted(set(range(statistics[0]["partitions_of_topic"])) - known)
