"""What a process says of itself, as panels by its command: which values, where they stand in its statistics, in what unit.

Rule 1: the page and the terminal draw these. A panel that has nothing to show is made all the same: the page keeps its
        place. What is due next and the week ahead are filled by the page.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from waterclock.errors import unstopped
from waterclock.web.console.sources import Seen
from waterclock.web.panel import Bar, Cell, Chip, Moment, OnPage, Panel, count, moment, rate, size, span

Record = Mapping[str, Any]
_ENDED_US: Final = 250_000_000_000_000_000  # a pipeline that is closed has a watermark behind it
# of Spark's phases those that lie beside each other, in their order; the others hold some of them
_PHASES: Final = ("latestOffset", "getBatch", "queryPlanning", "walCommit", "take", "sink", "commitOffsets")


class Look(NamedTuple):
    """A process's statistics as they are, and as they were `over_s` before; `due` is a relay's answer,
    of `due_ms`, None if there is none."""

    now: Record
    before: Record
    over_s: float
    due: Record | None = None
    due_ms: int = 0

    def growth(self, name: str) -> float | None:
        """How much a counter grew a second; None if that is not known."""
        grown: float = self.now[name] - self.before[name]
        return None if self.over_s <= 0 or grown < 0 else grown / self.over_s


class History:
    """The last two records of a process."""

    def __init__(self) -> None:
        self._last, self._heard = 0, list[tuple[Record, float]]()

    @property
    def heard_s(self) -> float | None:
        """When the last one came; None if none ever did."""
        return self._heard[-1][1] if self._heard else None

    def hear(self, seen: Seen, now_s: float) -> None:
        """What is seen of it now."""
        if seen.record is not None and seen.heard != self._last:
            self._last, self._heard = seen.heard, [*self._heard[-1:], (seen.record, now_s)]

    def panels(self, due: Record | None = None, due_ms: int = 0) -> list[Panel]:
        """Those of its command, as far as its statistics could be read; none of a command that is not known."""
        if not self._heard:
            return []
        (before, then_s), (record, now_s) = self._heard[0], self._heard[-1]
        try:
            make = _MADE.get(record["command"])
            looked = Look(record["statistics"], before["statistics"], now_s - then_s, due, due_ms)
            return [] if make is None else make(looked)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            note = f"They are those of another version of waterclock ({unstopped(error)})."
            return [Panel("Statistics", note=note, page=OnPage("statistics"))]


def wheels_of(dials: Mapping[str, Record]) -> list[Panel]:
    """The levels of each wheel in which something waits."""
    found = [_levels(name, dial) for name, dial in dials.items() if any(dial["levels"])]
    return found or [Panel("Levels", note="Nothing waits in a wheel.")][: len(dials)]


def _levels(name: str, dial: Record) -> Panel:
    """A wheel's levels, with how many of the buckets are in use."""
    tick, cells, rows = dial["tick_ms"], dial["size"], []
    for n, level in enumerate(dial["levels"], 1):
        sees, used = tick * cells, len(level)
        timers = f"{sum(level.values()):,}"
        rows.append((str(n), span(tick), span(sees), f"{used} of {cells}", timers, Bar(used / cells)))
        tick = sees
    heads = ("level", "tick", "sees", ">buckets in use", ">timers", "")
    return Panel(f"Levels of {name}", heads, rows, drop=("tick", "sees"))


def _relay(looked: Look) -> list[Panel]:
    now = looked.now
    keys, waits = now.get("fullest", {}), now.get("waits", ())
    most = max(keys.values(), default=1)
    due = Panel("Due next", page=OnPage("due")) if looked.due is None else due_of(looked.due, looked.due_ms)
    return [
        _partitions(now), due, Panel("Due in the week ahead", page=OnPage("strip")), _lateness(now),
        Panel("Fullest keys", ("key", ">messages", ""), [(key, count(n), Bar(n / most)) for key, n in keys.items()],
              page=OnPage("fullest", 6, "Of the messages that are near. It is looked at every 5 seconds.")),
        Panel("Due, and not delivered", ("topic", ">messages", "why", "keys"),
              [(one["target"], count(one["pending"]), Chip(one["why"], "bad"), _by_key(one["keys"])) for one in waits],
              drop=("keys",), page=OnPage("waits")),
        _letters(now),
    ]  # fmt: skip


def _letters(now: Record) -> Panel:
    rows = [(Moment(one["at_ms"]), one["place"], one["reason"], one["value"]) for one in now.get("letters", ())]
    heads = ("put aside", "from", "why", "value")
    return Panel("The last dead letters", heads, rows, drop=(heads[0], heads[-1]), page=OnPage("letters"))


def _by_key(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{key}: {count(n)}" for key, n in counts.items())


def _partitions(now: Record) -> Panel:
    rows: list[tuple[Cell, ...]] = []
    for number, one in now["partitions"].items():
        state = Chip(f"reads: {count(one['position'])} of {count(one['reads_to'])}")
        if one["held"]:
            state = Chip(f"{count(one['held'])} wait for room on the disk", "bad")
        elif one["caught_up"]:
            state = Chip("delivers", "ok")
        near = Bar(one["near"] / max(one["pending"], 1))
        counts = count(one["pending"]), count(one["near"])
        rows.append((f"{now['topic']}-{number}", *counts, Moment(one["next_due_ms"]), near, state))
    for number, one in now["standby"].items():
        behind = "" if one["behind"] is None else f", {count(one['behind'])} behind"
        state = Chip(one["why"], "bad") if one["why"] else Chip(f"stands by{behind}")
        rows.append((f"{now['topic']}-{number}", count(one["pending"]), "–", Moment(None), "", state))
    heads = ("partition", ">pending", ">near", "next due", "", "state")
    say = "Near is what waits in memory, in the wheel; the rest lies in files until it comes near."
    return Panel("Partitions", heads, rows, drop=("next due", ">near", ""), page=OnPage("partitions", 7, say))


def due_of(answer: Record, now_ms: int) -> Panel:
    """What a relay answered at `now_ms` of what is due next."""
    rows: list[tuple[Cell, ...]] = []
    for one in answer["messages"]:
        late = now_ms - one["due_ms"]
        waits = "the next turn" if late > 0 else "its time; recurs" if one["recurs"] else "its time"
        within = f"{span(late)} late" if late > 0 else span(-late)
        named = one["target"], one["id"], one["key"], one["origin"]
        rows.append((Moment(one["due_ms"]), within, *named, Chip(one["why"], "bad") if one["why"] else waits))
    known, note = answer["known_to_ms"], "" if rows else "Nothing is pending."
    if known is not None:
        note = f"What is due from {moment(known)} on was too much to look through."
    heads = ("due", ">in", "topic", "id", "key", "request", "waits for")
    return Panel("Due next", heads, rows, note, ("request", "key", "due", "topic"), page=OnPage("due"))


def _lateness(now: Record) -> Panel:
    edges = {edge: n for edge, n in now["lateness_ms"].items() if n}
    shown = {edge: "more" if edge == "more" else span(int(edge)) for edge in edges}
    most, all_of_them = max(edges.values(), default=1), sum(edges.values())

    def within(share: float) -> str:
        seen = 0
        for edge, n in edges.items():
            seen += n
            if seen >= share * all_of_them:
                return shown[edge] if edge == "more" else f"≤ {shown[edge]}"
        return "–"

    latest = span(now["lateness_worst_ms"]) if edges else "–"
    rows = [(shown[edge], count(n), Bar(n / most)) for edge, n in edges.items()]
    names = ("delivered", "requests", "dead_letters", "missed")
    counts = [f"{count(now[name])} {name.replace('_', ' ')}" for name in names]
    figures = [(within(0.5), "half"), (within(0.99), "99 of 100"), (latest, "the latest")]
    heads = (">at most", ">messages", "")
    return Panel("Lateness", heads, rows, ", ".join(counts), figures=figures, page=OnPage("lateness", 6))


def _waiting(purgatories: Mapping[str, Record], of: str) -> Panel:
    rows: list[tuple[Cell, ...]] = []
    for name, one in purgatories.items():
        all_of_them = max(1, one["completed"] + one["expired"] + one["cancelled"])
        more = ((one["expired"] / all_of_them, "c3"), (one["cancelled"] / all_of_them, "c5"))
        counts = [count(one[each]) for each in ("delayed", "completed", "expired", "cancelled")]
        rows.append((name, *counts, Bar(one["completed"] / all_of_them, more), _by_key(one.get("fullest", {}))))
    heads = ["for", ">waiting", ">completed", ">timed out", ">cancelled", "", "fullest keys"]
    if not any(row[-1] for row in rows):
        heads, rows = heads[:-1], [row[:-1] for row in rows]
    say = f"{of}: completed by what they waited for, timed out, or cancelled."
    drop = ("", ">cancelled", "fullest keys", ">completed")
    return Panel("Waiting for a key or a deadline", heads, rows, drop=drop, page=OnPage("purgatories", 7, say))


def _broker(looked: Look) -> list[Panel]:
    now, copies = looked.now, looked.now["replication"]
    records = looked.growth("records_in")
    role = "leads" if copies["leads"] else f"follows {copies['peer']}"
    if copies["leads"] and copies["peer"]:
        role += f"; follower {copies['peer']} lacks {count(copies['lag'])} records"
    note = (
        f"{count(now['records_in'])} records in {count(now['topics'])} topics with {count(now['partitions'])} partitions; "
        f"{count(now['connections'])} connections; {role}; {count(now['scrub']['damaged'])} damaged places"
    )
    states = [("groups", state, count(n)) for state, n in now["groups"].items()]
    states += [("transactional ids", state, count(n)) for state, n in now["transactions"].items()]
    lags = [
        (name, one["state"], count(one["members"]), count(one["partitions"]), count(one["lag"]))
        for name, one in now.get("lags", {}).items()
    ]
    figures = [
        (rate(records), "records in / s"), (size(looked.growth("record_bytes_in")), "in / s"),
        (size(looked.growth("bytes_out")), "sent / s"), (span(now["flushes"]["last_ms"]), "the last flush"),
    ]  # fmt: skip
    return [
        _waiting(now["purgatories"], "The broker's purgatories since its start"),
        Panel("Broker", note=note, figures=figures, page=OnPage("broker", 6, lines=[records])),
        Panel("Groups and transactions", ("of", "state", ">how many"), states,
              f"Members of all groups: {count(now['group_members'])}.", page=OnPage("groups", 6)),
        Panel("Lag", ("group", "state", ">members", ">partitions", ">behind"), lags,
              drop=(">members", ">partitions", "state"),
              page=OnPage("lags", say="Records behind what a group has committed: the groups that are most behind.")),
    ]  # fmt: skip


def _pipeline(looked: Look) -> list[Panel]:
    now = looked.now

    def behind_ms(us: int | None) -> float | None:
        return None if us is None or us > _ENDED_US else max(0, now["now_us"] - us) / 1000

    newest, mark = behind_ms(now["newest_us"]), behind_ms(now["watermark_us"])
    figures = [
        (span(newest), "newest event behind now"), (span(mark), "watermark behind now"),
        (rate(now["events_per_second"]), "events / s"),
        (count(None if now["behind"] is None else sum(now["behind"].values())), f"{now['unit']} not taken yet"),
    ]  # fmt: skip
    spent = now["phases"] or {}
    phases = {name: spent[name]["last_s"] for name in _PHASES if name in spent}
    whole = max(phases.values(), default=0) or 1
    rows = [(name, span(1000 * took), Bar(took / whole)) for name, took in phases.items()]
    totals = [(name.replace("_", " "), count(n)) for name, n in (now["totals"] or {}).items()]
    marks = [
        (name, "nothing read yet" if us is None else "ended" if us > _ENDED_US else span(behind_ms(us)))
        for name, us in (now.get("watermarks") or {}).items()
    ]
    behind = "How far the newest event and the watermark are behind the clock. Below, where a batch's time goes."
    slowest = "The watermark is that of the partition which is furthest behind; what waits for its order waits too."
    return [
        Panel("Event time", ("phase", ">last", ""), rows, f"batch {count(now['batch_id'])}", figures=figures,
              page=OnPage("times", 8, behind, [mark, newest], is_stacked=True)),
        Panel("Counts over all runs", (" ", ">"), totals, page=OnPage("counts", 4)),
        Panel("Partitions that hold the watermark back", ("partition", ">watermark behind now"), marks,
              page=OnPage("watermarks", say=slowest)),
        _held(now), _letters(now),
    ]  # fmt: skip


def _held(now: Record) -> Panel:
    rows: list[tuple[Cell, ...]] = []
    for one in now.get("held_keys", ()):
        mark, until, missing = now["watermark_us"], one["until_us"], one["missing"]
        left = span(None if None in (mark, until) else max(0, until - mark) / 1000)
        why = "the watermark" if missing is None else f"number {missing}"
        rows.append((one["key"], count(one["events"]), why, Moment(until and until // 1000), left))
    heads = ("key", ">events", "waits for", "until the watermark is at", ">still to go")
    say = "Of the keys that were worked on lately, those with most. An order with on_gap = hold waits for its number alone."
    return Panel("Held for their order", heads, rows, drop=(heads[3],), page=OnPage("held", say=say))


def _capture(looked: Look) -> list[Panel]:
    now, changes = looked.now, looked.growth("changes")
    figures = [
        (rate(changes), "changes / s"), (count(now["changes"]), "changes in Kafka"),
        (count(now["dead_letters"]), "dead letters"),
    ]  # fmt: skip
    where = f"up to {now['place'] or 'no place yet'}"
    note = f"{count(now['transactions'])} transactions, {count(now['breaks'])} breaks survived; {where}"
    return [Panel("Capture", note=note, figures=figures, page=OnPage("capture", 6, lines=[changes])), _letters(now)]


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
    page = OnPage("timers", say="Since they were made; how late callbacks start.")
    waiting = _waiting(looked.now["purgatories"], "The program's purgatories since they were made")
    return [waiting, Panel("Timers", heads, rows, note, drop, page=page)]


_MADE: Final[Mapping[str, Callable[[Look], list[Panel]]]] = {
    "relay": _relay, "broker": _broker, "run": _pipeline, "cdc": _capture, "program": _program,
}  # fmt: skip
