"""A command's frozen statistics: each field says once how it is shown, and the JSON and Prometheus's page (the text format
0.0.4, which every version of it takes) are made of it.

    delivered: int = field(default=0, metadata=counter("delivered", "Messages that are committed in their topics."))

    # HELP waterclock_relay_delivered_total Messages that are committed in their topics. Since the start.
    # TYPE waterclock_relay_delivered_total counter
    waterclock_relay_delivered_total{group="g"} 12

    {"command": "relay", "version": "0.1.0", "statistics": {"delivered": 12, ...}}

Rule 1: JSON has every field. A dataclass becomes an object of its fields, a mapping one of its keys as text, a tuple a
        list; what JSON has no form for becomes its text. No record is refused.
Rule 2: what is not known is null in JSON, and has no sample on the page; a metric without samples is left out whole. JSON
        has no NaN and no infinity: they are null there, too.
Rule 3: the page has the fields that say so, and those of records inside of the record. A field's name bears its unit
        (_ms, _us), the metric's _seconds: the page divides.
Rule 4: a metric's name begins with waterclock_; a counter's ends with _total; a unit stands in the name, and is a base
        unit (_seconds, _bytes).
Rule 5: what goes out can be read: a wrong name is refused when the metric is made, labels are escaped.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from math import isfinite
from typing import Any, Final

from waterclock import __version__

KINDS = ("counter", "gauge", "summary")
_NAME = re.compile(r"waterclock_[a-z0-9_]+")
_LABEL = re.compile(r"[a-z][a-z0-9_]*")
_ENDINGS = {"counter": ("",), "gauge": ("",), "summary": ("_sum", "_count")}


_OF_A_SECOND: Final = {"ms": 1_000, "us": 1_000_000}  # by the ending of a field's name


@dataclass(frozen=True, slots=True)
class Sample:
    """One value, with its labels; `ending` is what a summary's samples have behind the name."""

    value: float
    labels: Mapping[str, str] = field(default_factory=dict)
    ending: str = ""


@dataclass(frozen=True, slots=True)
class Metric:
    """Samples of one name. ValueError for a name, kind, label or ending that Prometheus would not take.

    >>> print(Metric("waterclock_held_events", "gauge", "Events held for their order.", (Sample(3),)).text())
    # HELP waterclock_held_events Events held for their order.
    # TYPE waterclock_held_events gauge
    waterclock_held_events 3
    """

    name: str
    kind: str
    help: str
    samples: tuple[Sample, ...]

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"name must be waterclock_ and lower case letters, digits and _, got {self.name!r}")
        if self.kind not in KINDS:
            raise ValueError(f"kind must be one of {', '.join(KINDS)}, got {self.kind!r}")
        if (self.kind == "counter") is not self.name.endswith("_total"):
            raise ValueError(f"a counter's name ends with _total and no other's does, got {self.kind} {self.name!r}")
        for sample in self.samples:
            if sample.ending not in _ENDINGS[self.kind]:
                raise ValueError(
                    f"ending must be one of {_ENDINGS[self.kind]} for a {self.kind}, got {sample.ending!r}"
                )
            if wrong := [name for name in sample.labels if not _LABEL.fullmatch(name)]:
                raise ValueError(f"a label's name must be lower case letters, digits and _, got {wrong[0]!r}")

    def text(self) -> str:
        """The metric's lines, without the last line's end; ends of lines in the help become spaces."""
        lines = [f"# HELP {self.name} {' '.join(_escaped(self.help).split())}", f"# TYPE {self.name} {self.kind}"]
        for s in self.samples:
            quoted = {n: _escaped(value).replace('"', '\\"').replace("\n", "\\n") for n, value in s.labels.items()}
            labels = ",".join(f'{name}="{value}"' for name, value in quoted.items())
            # whole numbers without a point; others as short as they can be read back
            number = str(int(s.value)) if float(s.value).is_integer() else repr(float(s.value))
            lines.append(f"{self.name}{s.ending}{{{labels}}} {number}" if labels else f"{self.name}{s.ending} {number}")
        return "\n".join(lines)


def text(metrics: Iterable[Metric]) -> str:
    """The page of several metrics, in their order.

    >>> text([])
    ''
    """
    return "".join(f"{metric.text()}\n" for metric in metrics if metric.samples)


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\")


@dataclass(frozen=True, slots=True)
class Shown:
    """How a field of a record is shown: as one metric.

    `of` gives its value for the record, if that is not the field's own; None is not known. `by` are the labels of a
    mapping's keys: the mapping has a sample for each key; for several labels a key is a tuple of texts. `count` names the
    field that counts what a summary's field adds up.
    """

    name: str
    kind: str
    help: str
    of: Callable[[Any], Any] | None = None
    by: tuple[str, ...] = ()
    count: str = ""

    def samples(self, record: object, field: str) -> Iterator[Sample]:
        """Those of a record in whose field it stands."""
        value = getattr(record, field) if self.of is None else self.of(record)
        if value is None:
            return
        if self.by:
            for key, each in sorted(value.items()):
                texts = key if isinstance(key, tuple) else (key,)
                yield Sample(each, dict(zip(self.by, texts, strict=False)))
            return
        unit = 1 if self.of else _OF_A_SECOND.get(field.rpartition("_")[2], 1)
        yield Sample(value if unit == 1 else value / unit, ending="_sum" if self.count else "")
        if self.count:
            yield Sample(getattr(record, self.count), ending="_count")


@dataclass(frozen=True, slots=True)
class Each:
    """How a mapping of records is shown: each one's metrics with its key as a label, and `prefix` before their names."""

    label: str
    prefix: str = ""


LABEL: Final = {"": "label"}  # metadata of a field that is a label of all samples of its record


def counter(
    name: str, help: str, since: str = " Since the start.", of: Callable[[Any], Any] | None = None, by: str = ""
) -> dict[str, Shown]:
    """Metadata of a field that only grows; `name` without what all have before it and without _total."""
    return {name: Shown(f"{name}_total", "counter", f"{help}{since}", of, tuple(by.split()))}


def gauge(name: str, help: str, of: Callable[[Any], Any] | None = None, by: str = "") -> dict[str, Shown]:
    """Metadata of a field that goes up and down; `|` joins several of one field."""
    return {name: Shown(name, "gauge", help, of, tuple(by.split()))}


def summary(name: str, help: str, count: str) -> dict[str, Shown]:
    """Metadata of a field that is a sum of what the field `count` counts."""
    return {name: Shown(name, "summary", help, count=count)}


def page(record: object, prefix: str, labels: Mapping[str, str] | None = None) -> str:
    """Prometheus's text of a record; a metric's name is waterclock_, `prefix` and its own."""
    found: dict[str, tuple[Shown, list[Sample]]] = {}
    for name, shown, sample in _shown(record, prefix, labels or {}):
        found.setdefault(name, (shown, []))[1].append(sample)
    return text(Metric(f"waterclock_{name}", s.kind, s.help, tuple(samples)) for name, (s, samples) in found.items())


def _shown(record: object, prefix: str, labels: Mapping[str, str]) -> Iterable[tuple[str, Shown, Sample]]:
    """(name, how it is shown, sample) of a record and of those inside of it."""
    its: tuple[Any, ...] = fields(record)  # type: ignore[arg-type]  # a dataclass, which has no type
    labels = {**labels, **{each.name: getattr(record, each.name) for each in its if each.metadata == LABEL}}
    for own in its:
        value = getattr(record, own.name)
        if is_dataclass(value):
            yield from _shown(value, prefix, labels)
        for how in own.metadata.values():
            if isinstance(how, Shown):
                for sample in how.samples(record, own.name):
                    yield f"{prefix}{how.name}", how, Sample(sample.value, {**labels, **sample.labels}, sample.ending)
            elif isinstance(how, Each):
                for key, each in sorted((value or {}).items()):
                    yield from _shown(each, f"{prefix}{how.prefix}", {**labels, how.label: str(key)})


def to_json(command: str, statistics: object) -> str:
    """The record of `command`, on one line.

    >>> to_json("run", {"rate": float("nan")}).endswith(', "statistics": {"rate": null}}')
    True
    """
    return json.dumps({"command": command, "version": __version__, "statistics": plain(statistics)}, allow_nan=False)


def plain(value: object) -> Any:
    """`value` in dicts, lists, texts, numbers and None.

    >>> plain({("orders", 0): (1, 2.5, float("inf"), None)})
    {"('orders', 0)": [1, 2.5, None, None]}
    """
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if isfinite(value) else None
    if is_dataclass(value) and not isinstance(value, type):
        return {own.name: plain(getattr(value, own.name)) for own in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(each) for each in value]
    return str(value)
