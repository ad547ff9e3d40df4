"""A command's frozen statistics: each field says once how it is shown, and Prometheus's page and the JSON are made of it.

    delivered: int = field(default=0, metadata=counter("delivered", "Messages that are committed in their topics."))

    waterclock_relay_delivered_total{group="g"} 12
    {"command": "relay", "version": "0.1.0", "statistics": {"delivered": 12, ...}}

Rule 1: JSON has every field. A dataclass becomes an object of its fields, a mapping one of its keys as text, a tuple a
        list; what JSON has no form for becomes its text. No record is refused.
Rule 2: What is not known is null in JSON, and has no sample on the page. So are NaN and infinity, which JSON does not have.
Rule 3: The page has the fields that say so, and those of records inside of the record. A field's name bears its unit
        (_ms, _us), the metric's _seconds: the page divides.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from math import isfinite
from typing import Any, Final

from waterclock import __version__
from waterclock.web.metrics import Metric, Sample, text

_OF_A_SECOND: Final = {"ms": 1_000, "us": 1_000_000}  # by the ending of a field's name


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
    labels = {**labels, **{field.name: getattr(record, field.name) for field in its if field.metadata == LABEL}}
    for field in its:
        value = getattr(record, field.name)
        if is_dataclass(value):
            yield from _shown(value, prefix, labels)
        for how in field.metadata.values():
            if isinstance(how, Shown):
                for sample in how.samples(record, field.name):
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
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(each) for each in value]
    return str(value)
