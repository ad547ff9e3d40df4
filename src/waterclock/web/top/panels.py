"""What a process says of itself, as tables: the panels of the console's page, for a terminal. Times are of this machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from waterclock.web.top.drawing import Bar, Cell, Panel

Record = Mapping[str, Any]
DUE: Final = 10
_UNITS: Final = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"), (1, "ms"))
_ENDED_US: Final = 250_000_000_000_000_000  # a pipeline that is closed has a watermark behind it


class Look(NamedTuple):
    """A process's statistics as they are, and as they were `over_s` before; `due` is a relay's answer,
    of `due_ms`, None if there is none."""

    command: str
    now: Record
    before: Record
    over_s: float
    due: Record | None
    due_ms: int

    def rate(self, name: str) -> str:
        """How much a counter grew a second."""
        grown = self.now[name] - self.before[name]
        return "–" if self.over_s <= 0 or grown < 0 else f"{grown / self.over_s:,.1f}"


def panels_of(looked: Look) -> list[Panel]:
    """Those of its command; none of a command that is not known."""
    made: dict[str, Callable[[Look], list[Panel]]] = {
        "relay": _relay, "broker": _broker, "run": _pipeline, "cdc": _capture, "program": _program,
    }  # fmt: skip
    make = made.get(looked.command)
    return [] if make is None else make(looked)


def wheels_of(dials: Mapping[str, Record]) -> list[Panel]:
    """The levels of each wheel in which something waits."""
    found = [_levels(name, dial) for name, dial in dials.items() if any(dial["levels"])]
    return found or [Panel("Levels", note="Nothing waits in a wheel.")][: len(dials)]


def _levels(name: str, dial: Record) -> Panel:
    """A wheel's levels, with how many of the buckets are in use."""
    tick, size, rows = dial["tick_ms"], dial["size"], []
    for n, level in enumerate(dial["levels"], 1):
        sees, used = tick * size, len(level)
        timers = f"{sum(level.values()):,}"
        rows.append((str(n), span(tick), span(sees), f"{used} of {size}", timers, Bar(used / size)))
        tick = sees
    heads = ("level", "tick", "sees", ">buckets in use", ">timers", "")
    return Panel(f"Levels of {name}", heads, rows, drop=("tick", "sees"))


def span(ms: float | None) -> str:
    """A length of time.

    >>> span(256), span(65_536), span(None)
    ('256 ms', '1.1 min', '–')
    """
    if ms is None:
        return "–"
    size, unit = next((each for each in _UNITS if abs(ms) >= each[0]), _UNITS[-1])
    value = ms / size
    return f"{value:,.0f} {unit}" if value >= 100 or value == int(value) else f"{value:.2g} {unit}"


def moment(ms: int | None) -> str:
    """A moment, of ms since 1970; one that no calendar has is shown as its number."""
    try:
        return "–" if ms is None else f"{datetime.fromtimestamp(ms / 1000):%Y-%m-%d %H:%M:%S}"
    except (ValueError, OverflowError, OSError):
        return f"{ms} ms"


def count(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}"


def _relay(looked: Look) -> list[Panel]:
    now = looked.now
    parts = [
        (f"{now['topic']}-{number}", count(one["pending"]), count(one["near"]), moment(one["next_due_ms"]),
         "no room on the disk" if one["held"] else "delivers" if one["caught_up"] else "reads")
        for number, one in now["partitions"].items()
    ]  # fmt: skip
    parts += [
        (f"{now['topic']}-{number}", count(one["pending"]), "–", "–", one["why"] or "stands by")
        for number, one in now["standby"].items()
    ]
    heads = ("partition", ">pending", ">near", "next due", "state")
    found = Panel("Partitions", heads, parts, drop=("next due", ">near"))
    keys = now.get("fullest", {})
    most = max(keys.values(), default=1)
    waits = [(one["target"], count(one["pending"]), _by_key(one["keys"]), one["why"]) for one in now.get("waits", ())]
    letters = [(moment(one["at_ms"]), one["request"], one["value"], one["reason"]) for one in now.get("letters", ())]
    return [
        found, *_due(looked), _lateness(now),
        *_if_any("Fullest keys", ("key", ">messages", ""), [(key, count(n), Bar(n / most)) for key, n in keys.items()]),
        *_if_any("Due, and not delivered", ("topic", ">messages", "keys", "why"), waits, "keys"),
        *_if_any("The last dead letters", ("put aside", "request", "value", "why"), letters, "put aside", "value"),
    ]  # fmt: skip


def _if_any(title: str, heads: Sequence[str], rows: Sequence[Sequence[Cell]], *drop: str) -> list[Panel]:
    return [Panel(title, heads, rows, drop=drop)] if rows else []


def _by_key(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{key}: {count(n)}" for key, n in counts.items())


def _due(looked: Look) -> list[Panel]:
    if looked.due is None:
        return []
    rows = []
    for one in looked.due["messages"]:
        late = looked.due_ms - one["due_ms"]
        waits = one["why"] or ("the next turn" if late > 0 else "its time; recurs" if one["recurs"] else "its time")
        within = f"{span(late)} late" if late > 0 else span(-late)
        rows.append((within, moment(one["due_ms"]), one["target"], one["id"], one["key"], one["origin"], waits))
    known, note = looked.due["known_to_ms"], "" if rows else "Nothing is pending."
    if known is not None:
        note = f"What is due from {moment(known)} on was too much to look through."
    heads = (">in", "due", "topic", "id", "key", "request", "waits for")
    return [Panel("Due next", heads, rows, note, ("request", "key", "due", "topic"))]


def _lateness(now: Record) -> Panel:
    edges = {edge: n for edge, n in now["lateness_ms"].items() if n}
    most = max(edges.values(), default=1)
    rows = [("more" if edge == "more" else span(int(edge)), count(n), Bar(n / most)) for edge, n in edges.items()]
    note = (
        f"{count(now['delivered'])} delivered, {count(now['requests'])} requests, {count(now['dead_letters'])} dead "
        f"letters, {count(now['missed'])} missed; the latest {span(now['lateness_worst_ms']) if edges else '–'} late"
    )
    return Panel("Lateness", (">at most", ">messages", ""), rows, note)


def _waiting(purgatories: Mapping[str, Record]) -> Panel:
    rows: list[tuple[str, ...]] = []
    for name, one in purgatories.items():
        keys = _by_key(one.get("fullest", {}))
        rows.append((name, *(count(one[each]) for each in ("delayed", "completed", "expired", "cancelled")), keys))
    heads = ["for", ">waiting", ">completed", ">timed out", ">cancelled", "fullest keys"]
    drop = (">cancelled", "fullest keys", ">completed")
    if not any(row[-1] for row in rows):
        heads, rows = heads[:-1], [row[:-1] for row in rows]
    return Panel("Waiting for a key or a deadline", heads, rows, drop=drop)


def _broker(looked: Look) -> list[Panel]:
    now, copies = looked.now, looked.now["replication"]
    flush = now["flushes"]["last_ms"]
    rates = [
        ("records in / s", looked.rate("records_in")), ("bytes in / s", looked.rate("record_bytes_in")),
        ("bytes sent / s", looked.rate("bytes_out")), ("last flush", span(flush)),
    ]  # fmt: skip
    role = "leads" if copies["leads"] else f"follows {copies['peer']}"
    if copies["leads"] and copies["peer"]:
        role += f"; follower {copies['peer']} lacks {count(copies['lag'])} records"
    note = (
        f"{count(now['records_in'])} records in {count(now['topics'])} topics with {count(now['partitions'])} partitions; "
        f"{count(now['connections'])} connections; {role}; {count(now['scrub']['damaged'])} damaged places"
    )
    states = [("groups", state, count(n)) for state, n in now["groups"].items()]
    states += [("transactional ids", state, count(n)) for state, n in now["transactions"].items()]
    lags = [(name, one["state"], count(one["lag"])) for name, one in now.get("lags", {}).items()]
    return [
        Panel("Broker", (" ", ">"), rates, note),
        *_if_any("Lag of groups", ("group", "state", ">records behind"), lags, "state"),
        _waiting(now["purgatories"]),
        Panel("Groups and transactions", ("of", "state", ">how many"), states, f"Members: {now['group_members']}."),
    ]


def _pipeline(looked: Look) -> list[Panel]:
    now = looked.now

    def behind(us: int | None) -> str:
        return "–" if us is None or us > _ENDED_US else span(max(0, now["now_us"] - us) / 1000)

    left = None if now["behind"] is None else sum(now["behind"].values())
    times = [
        ("newest event behind now", behind(now["newest_us"])), ("watermark behind now", behind(now["watermark_us"])),
        ("events / s", count(now["events_per_second"])), (f"{now['unit']} not taken yet", count(left)),
    ]  # fmt: skip
    phases = {name: one["last_s"] for name, one in (now["phases"] or {}).items()}
    whole = max(phases.values(), default=0) or 1
    spent = [(name, span(1000 * took), Bar(took / whole)) for name, took in phases.items()]
    totals = [(name.replace("_", " "), count(n)) for name, n in (now["totals"] or {}).items()]
    marks = [(name, behind(us)) for name, us in (now.get("watermarks") or {}).items()]
    return [
        Panel("Event time", (" ", ">"), times),
        *_if_any("Partitions that hold the watermark back", ("partition", ">behind now"), marks),
        Panel(f"Phases of batch {now['batch_id']}", ("phase", ">last", ""), spent),
        Panel("Counts over all runs", (" ", ">"), totals),
    ]


def _capture(looked: Look) -> list[Panel]:
    now = looked.now
    rows = [("changes / s", looked.rate("changes"))]
    rows += [
        (name.replace("_", " "), count(now[name])) for name in ("changes", "transactions", "dead_letters", "breaks")
    ]
    return [Panel("Capture", (" ", ">"), rows, f"Up to {now['place'] or 'no place yet'}.")]


def _program(looked: Look) -> list[Panel]:
    rows = [
        (name, *(count(one[each]) for each in ("pending", "fired", "cancelled", "failed")),
         *(span(one[each]) for each in ("p50_ms", "p99_ms", "latest_ms")))
        for name, one in looked.now["timers"].items()
    ]  # fmt: skip
    heads = ("timer", ">pending", ">fired", ">cancelled", ">failed", ">half", ">99 of 100", ">the latest")
    drop = (">cancelled", ">half", ">failed", ">the latest")
    age_s = looked.now.get("age_s", 0)
    note = "" if age_s == 0 else f"Its loop is busy: this is {span(age_s and 1_000 * age_s)} old."
    return [_waiting(looked.now["purgatories"]), Panel("Timers", heads, rows, note, drop)]
