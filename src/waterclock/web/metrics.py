"""Metrics as Prometheus reads them: the text format 0.0.4, which every version of it takes.

    # HELP waterclock_events_total Events taken from the source.
    # TYPE waterclock_events_total counter
    waterclock_events_total{pipeline="orders"} 1200

Rule 1: a name begins with waterclock_; a counter's ends with _total; a unit stands in the name, and is a base unit
        (_seconds, _bytes).
Rule 2: a value that is not known has no sample. A metric without samples is left out whole.
Rule 3: what goes out can be read: a wrong name is refused when the metric is made, labels are escaped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

KINDS = ("counter", "gauge", "summary")
_NAME = re.compile(r"waterclock_[a-z0-9_]+")
_LABEL = re.compile(r"[a-z][a-z0-9_]*")
_ENDINGS = {"counter": ("",), "gauge": ("",), "summary": ("_sum", "_count")}


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
        head = [f"# HELP {self.name} {' '.join(_escaped(self.help).split())}", f"# TYPE {self.name} {self.kind}"]
        return "\n".join(
            [*head, *(f"{self.name}{s.ending}{_labels(s.labels)} {_number(s.value)}" for s in self.samples)]
        )


def text(metrics: Iterable[Metric]) -> str:
    """The page of several metrics, in their order.

    >>> text([])
    ''
    """
    return "".join(f"{metric.text()}\n" for metric in metrics if metric.samples)


def _labels(labels: Mapping[str, str]) -> str:
    pairs = ",".join(f'{name}="{_quoted(value)}"' for name, value in labels.items())
    return f"{{{pairs}}}" if pairs else ""


def _quoted(value: str) -> str:
    return _escaped(value).replace('"', '\\"').replace("\n", "\\n")


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\")


def _number(value: float) -> str:
    """Whole numbers without a point; others as short as they can be read back."""
    return str(int(value)) if float(value).is_integer() else repr(float(value))
