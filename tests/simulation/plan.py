"""What a universe is drawn from its seed to be: its knobs, workloads and faults. A plan is JSON, and repeats a history.

Rule 1: each choice has a stream of its own, by its name: what one part draws, or whether it is there, shifts no other.
Rule 2: a fault keeps its number when others are left out, and with it the stream that its parameters come from.
Rule 3: `salt` gives the same plan another order of events. Where something is left out all that follows differs; salts
    are how shrinking finds a history again that still fails.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from tests.simulation import coverage, faults, knobs
from tests.simulation.clients import WORKLOADS
from waterclock.simulation.world import MS, NS


@dataclass(frozen=True)
class Fault:
    """One fault, `at_ns` after the first; `mark`: the branch of the product that it waits for, if it is an aimed one."""

    number: int
    at_ns: int
    kind: str
    mark: str = ""


@dataclass(frozen=True)
class Plan:
    """A universe, before it begins."""

    seed: int
    pair: bool = False
    seconds: float = 6
    knobs: Mapping[str, int] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    workloads: tuple[str, ...] = ()
    faults: tuple[Fault, ...] = ()
    absent: tuple[str, ...] = ()  # clients that are left out
    mixed: bool = False  # clients of one transactional id differ in the protocol, as in a rolled back upgrade
    past_known: bool = False  # a follower that cannot follow is emptied, as an operator would do
    damaged: bool = False  # files are damaged in the end (damaged.py)
    damages: str = ""  # only files of this kind, if there are any
    values: str = "all sizes"  # of knobs.VALUES; flushes and net: how fast they are, between faults
    flushes: str = "usual"
    net: str = "usual"
    pace: str = "usual"  # of the clients
    salt: int = 0

    def stream(self, name: str) -> Random:
        return stream(self.seed, name)

    @property
    def sizes(self) -> dict[str, object]:
        """What is not as usual: knobs, settings, values and speeds."""
        usual = knobs.defaults(self.pair)
        settings = {name: text for name, text in self.settings.items() if usual.get(name) != text}
        words = {name: getattr(self, name) for name, word in knobs.USUAL.items() if getattr(self, name) != word}
        return {**self.knobs, **settings, **words}

    def but(self, **changes: Any) -> Plan:
        return replace(self, **changes)

    def only(self, workloads: tuple[str, ...]) -> Plan:
        """With these workloads, and what the broker needs for them."""
        return self.but(workloads=workloads, settings={**self.settings, **settings_of(workloads)})

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1)

    def save(self, path: str | Path) -> None:
        Path(path).write_text(self.to_json() + "\n")


def read(path: str | Path) -> Plan:
    return from_json(json.loads(Path(path).read_text()))


def from_json(given: Mapping[str, Any]) -> Plan:
    lists = {name: tuple(given[name]) for name in ("workloads", "absent") if name in given}
    return Plan(**{**given, **lists, "faults": tuple(Fault(**one) for one in given.get("faults", ()))})


def stream(seed: int, name: str) -> Random:
    return Random(f"{seed}/plan/{name}")


def draw(
    seed: int,
    *,
    pair: bool = False,
    seconds: float = 6,
    kinds: Iterable[str] = (),
    workloads: tuple[str, ...] = (),
    few: bool = False,
    **named: bool,
) -> Plan:
    """The plan of a seed; `seconds`: 0 for as many as the seed says; `kinds`: the only kinds of faults, `workloads`
    likewise; `few`: up to three workloads, so that there are more histories."""
    pace = stream(seed, "pace").choice(("usual", *knobs.PACES))
    seconds = seconds or stream(seed, "seconds").choice((0.5, 1, 1.5) if pace == "eager" else (0.5, 1, 2, 3, 5))
    workloads = workloads or _workloads(seed, few)
    return Plan(
        seed,
        pair,
        seconds,
        knobs.draw(partial(stream, seed)),
        {**_settings(seed, pair), **settings_of(workloads)},
        workloads,
        _faults(seed, pair, seconds, tuple(kinds), workloads),
        values=stream(seed, "values").choice([*knobs.VALUES]),
        flushes=stream(seed, "flushes").choice(("usual", *knobs.FLUSHES)),
        net=stream(seed, "net").choice(("usual", *knobs.NETS)),
        pace=pace,
        **named,
    )


def _settings(seed: int, pair: bool) -> dict[str, str]:
    tables = (knobs.SETTINGS, knobs.OF_A_PAIR if pair else {})
    return {
        name: stream(seed, f"setting {name}").choice(choices) for table in tables for name, choices in table.items()
    }


def settings_of(workloads: Iterable[str]) -> dict[str, str]:
    """What the broker needs for these workloads."""
    return {name: text for one in WORKLOADS if one.name in workloads for name, text in one.settings.items()}


def _workloads(seed: int, few: bool) -> tuple[str, ...]:
    """Many of them, or up to three: then each has more of the broker, and there are more histories."""
    rng = stream(seed, "few workloads")
    if rng.random() < (1 if few else 0.4):
        chosen = rng.choices([one.name for one in WORKLOADS], [one.share for one in WORKLOADS], k=rng.randrange(1, 4))
        return tuple(one.name for one in WORKLOADS if one.name in chosen)
    drawn = tuple(one.name for one in WORKLOADS if stream(seed, f"workload {one.name}").random() < one.share)
    return drawn or tuple(one.name for one in WORKLOADS if one.share)


def _marks(rng: Random, pair: bool, relays: bool) -> list[str]:
    """What the aimed faults of a universe wait for: all marks of a module or two, so that they meet; or a few of any."""
    absent = {*(() if pair else coverage.OF_A_PAIR), *(() if relays else coverage.OF_RELAYS)}
    modules = [module for module in coverage.AIMED_AT if module not in absent]
    if relays and rng.random() < 0.5:
        modules = list(coverage.OF_RELAYS)
    chosen = rng.sample(modules, rng.choice((1, 1, 2)))
    if rng.random() < 0.3:
        return rng.sample(faults.MARKS, 4)
    return [name for name, (module, _) in coverage.MARKS.items() if module in chosen]


def _faults(
    seed: int, pair: bool, seconds: float, kinds: tuple[str, ...], workloads: tuple[str, ...]
) -> tuple[Fault, ...]:
    """Each universe has faults of its own: a few kinds, often or seldom, and few marks that the aimed ones wait for."""
    rng, kinds = stream(seed, "faults"), kinds or faults.kinds(pair)
    chosen = rng.sample(kinds, rng.randrange(min(3, len(kinds)), len(kinds) + 1))
    weights = {one: rng.choice((1, 1, 3)) for one in chosen}
    if rng.random() < 0.7 and "cut_power" in kinds:
        weights["cut_power"] = 4
    if pair and "lose_leader" in kinds:
        weights["lose_leader"] = 3
    weights |= {one: 6 for one in ("break_reads", "slow_file") if one in kinds}
    if rng.random() < 0.2:
        weights |= {one: 4 for one in ("flicker", "fill_disk") if one in kinds}
    if rng.random() < 0.4:  # a universe of aimed ones
        weights |= {one: 3 for one in (*sorted(faults.AIMED), "slow_call") if one in kinds}
    calm_ns = rng.choice((300 * MS, 600 * MS, 2 * NS, 5 * NS))
    marks = _marks(stream(seed, "marks"), pair, "relay" in workloads)
    found: list[Fault] = []
    at = 0
    while at < seconds * NS:
        kind = rng.choices([*weights], [*weights.values()])[0]
        number = len(found) + 1
        mark = stream(seed, f"mark {number}").choice(marks) if kind in faults.AIMED else ""
        found.append(Fault(number, at, kind, mark))
        at += rng.randrange(100 * MS, calm_ns)
    return tuple(found)
